// Package cli assembles the cvo command from the packages below. It also starts the operator, prints the version and completes command
// lines. A command turns flags into an options struct, makes one call, and prints. It makes no decisions about releases or clusters itself.
// Results go to stdout, progress and warnings to stderr.
package cli

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/install"
	"github.com/cluster-version/cvo/pkg/cli/nodes"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/cli/release"
	"github.com/cluster-version/cvo/pkg/cli/status"
	"github.com/cluster-version/cvo/pkg/cli/trust"
	"github.com/cluster-version/cvo/pkg/cli/upgrade"
	"github.com/cluster-version/cvo/pkg/operator"
)

// New returns the cvo command with all its subcommands.
func New(streams command.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "cvo",
		Short: "Install and update a whole Kubernetes platform from one signed release image",
		Long: `cvo installs and updates a whole Kubernetes platform from one signed release image. It pulls and verifies the image, orders
its manifests into a dependency graph, and applies them runlevel by runlevel. At each runlevel it waits for every
ClusterOperator.

With the file name kubectl-cvo in your PATH, the program is also a plugin of kubectl: kubectl cvo.`,
		Version:       binaryVersion(),
		Args:          command.UsageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			registries.WarnOfInsecurity(streams, cmd.Flags())
			if cmd.Name() != startCommand {
				// Only the operator needs the logs of libraries. Without a logger, controller-runtime complains after half a minute.
				operator.SetLogger(logr.Discard())
				cmd.SetContext(registries.WithPatience(streams, cmd))
			}
		},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.SetFlagErrorFunc(command.FlagError)
	root.AddCommand(
		install.New(streams), nodes.New(streams), newPayloadCmd(streams), release.New(streams), newStartCmd(streams), status.New(streams),
		trust.New(streams), install.NewUninstall(streams), upgrade.New(streams), newVersionCmd(streams),
	)
	completeTheRest(root)
	addHelpAndCompletion(root)
	return root
}

// addHelpAndCompletion adds the commands help and completion. cobra would add them itself, but would accept unknown arguments to them.
func addHelpAndCompletion(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, topic []string) error {
				if _, unknown, err := root.Find(topic); err != nil || len(unknown) > 0 {
					return &command.UsageError{Err: fmt.Errorf("unknown help topic %q for %q", strings.Join(topic, " "), root.Name())}
				}
				return nil
			}
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			cmd.Args = command.UsageArgs(cobra.NoArgs)
			for _, shell := range cmd.Commands() {
				shell.Args = command.UsageArgs(cobra.NoArgs)
			}
		}
	}
}
