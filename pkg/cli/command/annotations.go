package command

import "github.com/spf13/cobra"

const lowMemory = "low-memory"

// LowMemory marks a command for which little memory matters more than speed.
func LowMemory(cmd *cobra.Command) { Annotate(cmd, lowMemory, "true") }

// Annotate sets one of cobra's annotations of a command and keeps the others.
func Annotate(cmd *cobra.Command, key, value string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[key] = value
}

// NeedsLowMemory reports whether LowMemory has marked a command.
func NeedsLowMemory(cmd *cobra.Command) bool { return cmd.Annotations[lowMemory] != "" }
