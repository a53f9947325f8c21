package upgrade

import (
	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/update/request"
)

type channelOptions struct {
	requestFlags
	request.Channel
}

func newChannelCmd(streams command.Streams) *cobra.Command {
	o := &channelOptions{}
	cmd := &cobra.Command{
		Use:   "channel [CHANNEL]",
		Short: "Set the update channel; without an argument, clear it",
		Long: `Set the update channel of the cluster. Without an argument, clear it.

Without a channel, a cluster no longer looks for updates. If the cluster knows its channels, you need
--allow-explicit-channel to set another channel, or to clear a known one.

Exit codes: 0 set, or set already; 1 failure; 2 invalid command line; 3 refused.`,
		Example: `  # List the channels
  cvo upgrade -o json | jq -r '.desired.channels[]'

  # Switch to the channel of the next minor version
  cvo upgrade channel stable-4.15`,
		Args: command.UsageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.Name = args[0]
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams, o.Plan)
		},
	}
	cmd.Flags().BoolVar(&o.AllowExplicit, "allow-explicit-channel", false, "allow a channel that is not listed")
	o.add(cmd)
	cmd.ValidArgsFunction = o.complete
	return cmd
}

func (o *channelOptions) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.cluster.Complete(cmd, func(cv *configv1.ClusterVersion) []string {
		var offers []string
		for _, channel := range cv.Status.Desired.Channels {
			offers = append(offers, terminal.OneLine(channel))
		}
		return offers
	})
}
