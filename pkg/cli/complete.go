package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completeTheRest sets the shell completion of flags that define none: files for values named file or path, folders for values named
// folder, and nothing for other values. cobra's default would offer files everywhere.
func completeTheRest(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_, said := cmd.GetFlagCompletionFunc(f.Name)
		_, folder := f.Annotations[cobra.BashCompSubdirsInDir]
		if said || folder {
			return
		}
		switch what, _ := pflag.UnquoteUsage(f); what {
		case "file", "path":
		case "folder":
			_ = cmd.MarkFlagDirname(f.Name)
		default:
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	})
	for _, sub := range cmd.Commands() {
		completeTheRest(sub)
	}
}
