package command

import "github.com/spf13/cobra"

const lowMemory = "low-memory"

// LowMemory marks a command for which little memory matters more than speed.
func LowMemory(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[lowMemory] = "true"
}

// NeedsLowMemory reports whether LowMemory has marked a command.
func NeedsLowMemory(cmd *cobra.Command) bool { return cmd.Annotations[lowMemory] != "" }
