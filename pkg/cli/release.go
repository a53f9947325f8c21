package cli

import "github.com/spf13/cobra"

func newReleaseCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Build, sign, read and inspect release images",
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newReleaseNewCmd(streams), newReleaseInfoCmd(streams), newReleaseExtractCmd(streams), newReleaseGraphCmd(streams))
	cmd.AddCommand(newReleaseSignCmd(streams), newReleaseKeygenCmd(streams), newReleaseMirrorCmd(streams))
	cmd.AddCommand(newReleaseVerifyCmd(streams))
	cmd.AddCommand(newReleaseLintCmd(streams), newReleaseDiffCmd(streams), newReleaseRBACCmd(streams))
	return cmd
}
