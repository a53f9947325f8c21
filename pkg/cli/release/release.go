// Package release provides the command 'cvo release' with the subcommands that read a release: diff, extract, graph, info and rbac.
// Its subpackages provide the subcommands that build, check, sign or copy a release.
package release

import (
	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/release/create"
	"github.com/cluster-version/cvo/pkg/cli/release/linting"
	"github.com/cluster-version/cvo/pkg/cli/release/mirror"
	"github.com/cluster-version/cvo/pkg/cli/release/signing"
)

// New returns the command 'cvo release' with its subcommands.
func New(streams command.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Build, sign, read and inspect release images",
		Args:  command.UsageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(create.New(streams), newInfoCmd(streams), newExtractCmd(streams), newGraphCmd(streams))
	cmd.AddCommand(signing.NewSign(streams), signing.NewKeygen(streams), mirror.New(streams))
	cmd.AddCommand(signing.NewVerify(streams))
	cmd.AddCommand(linting.New(streams), newDiffCmd(streams), newRBACCmd(streams))
	return cmd
}
