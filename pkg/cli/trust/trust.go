// Package trust provides the command 'cvo trust', which creates trust policies.
package trust

import (
	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/cli/command"
)

// New returns the command 'cvo trust' with its subcommand.
func New(streams command.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Create the trust policy, which lists the accepted signers of releases",
		Args:  command.UsageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFromImagePolicyCmd(streams))
	return cmd
}
