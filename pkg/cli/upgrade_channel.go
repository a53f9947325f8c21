package cli

import (
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
)

type upgradeChannelOptions struct {
	requestFlags
	channel       string
	allowExplicit bool
}

func newUpgradeChannelCmd(streams Streams) *cobra.Command {
	o := &upgradeChannelOptions{}
	cmd := &cobra.Command{
		Use:   "channel [CHANNEL]",
		Short: "Set the channel that updates come from; without an argument, clear it",
		Long: `Set the channel that updates come from; without an argument, clear it.

A cluster without a channel does not ask for updates any more. If the cluster knows its channels, another one takes
--allow-explicit-channel, and so does clearing one of them.

Exit codes: 0 set, or so already; 1 something went wrong; 2 the command line cannot be understood; 3 refused.`,
		Example: `  # The channels there are
  cvo upgrade -o json | jq -r '.desired.channels[]'

  # Go on to the next minor version
  cvo upgrade channel stable-4.15`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.channel = args[0]
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams, o.plan)
		},
	}
	cmd.Flags().BoolVar(&o.allowExplicit, "allow-explicit-channel", false, "also a channel that the cluster does not know")
	o.add(cmd)
	cmd.ValidArgsFunction = o.complete
	return cmd
}

func (o *upgradeChannelOptions) plan(cv *configv1.ClusterVersion, r *request) error {
	r.Action, r.unable = "channel", "unable to set channel"
	was, known := cv.Spec.Channel, cv.Status.Desired.Channels
	r.From.Channel, r.To.Channel = was, o.channel
	list := strings.Join(known, ", ")
	switch {
	case o.channel == was && was == "":
		r.Message = "info: Cluster channel is already clear (no change)"
		return nil
	case o.channel == was:
		r.Message = "info: Cluster is already in " + was + " (no change)"
		return nil
	case o.channel == "" && slices.Contains(known, was) && !o.allowExplicit:
		return refusef("You are requesting to clear the update channel. The current channel %q is one of the available channels, "+
			"you must pass --allow-explicit-channel to continue", was)
	case o.channel == "":
		r.warn("Clearing channel %q; cluster will no longer request available update recommendations.", was)
	case len(known) == 0:
		r.warn("No channels known to be compatible with the current version %q; unable to validate %q. Setting the update channel to %q anyway.",
			cv.Status.Desired.Version, o.channel, o.channel)
	case slices.Contains(known, o.channel):
	case !o.allowExplicit:
		return refusef("the requested channel %q is not one of the available channels (%s), you must pass --allow-explicit-channel to continue", o.channel, list)
	default:
		r.warn("The requested channel %q is not one of the available channels (%s). You have used --allow-explicit-channel to proceed anyway. "+
			"Setting the update channel to %q.", o.channel, list, o.channel)
	}
	r.spec = cv.Spec.DeepCopy()
	r.spec.Channel = o.channel
	r.specPatch = map[string]any{"channel": o.channel}
	switch {
	case o.channel == "":
		r.Message = "info: Cluster channel is clear (was " + was + ")"
	case was == "":
		r.Message = "info: Cluster is in " + o.channel
	default:
		r.Message = "info: Cluster is in " + o.channel + " (was " + was + ")"
	}
	return nil
}

func (o *upgradeChannelOptions) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.cluster.complete(cmd, func(cv *configv1.ClusterVersion) []string {
		var offers []string
		for _, channel := range cv.Status.Desired.Channels {
			offers = append(offers, oneLine(channel))
		}
		return offers
	})
}
