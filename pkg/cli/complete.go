package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completeTheRest settles what a shell offers where a command has not said it: files for flags that are called a file,
// folders for those that are called a folder, else nothing. cobra would offer files everywhere.
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

// completeFolders completes an argument that may be an OCI layout.
func completeFolders(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}
