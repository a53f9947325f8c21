package request

import (
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
)

// Channel sets the channel. An empty name clears it.
type Channel struct {
	Name          string
	AllowExplicit bool
}

// Plan implements Plan. It sets the channel.
func (o *Channel) Plan(cv *configv1.ClusterVersion, r *Request) error {
	r.Action, r.failure = "channel", "unable to set channel"
	was, known := cv.Spec.Channel, cv.Status.Desired.Channels
	r.From.Channel, r.To.Channel = was, o.Name
	list := strings.Join(known, ", ")
	switch {
	case o.Name == was && was == "":
		r.Message = "info: Cluster channel is already clear (no change)"
		return nil
	case o.Name == was:
		r.Message = "info: Cluster is already in " + was + " (no change)"
		return nil
	case o.Name == "" && slices.Contains(known, was) && !o.AllowExplicit:
		return refuse("You are requesting to clear the update channel. The current channel %q is one of the available channels, "+
			"you must pass --allow-explicit-channel to continue", was)
	case o.Name == "":
		r.warn("Clearing channel %q; cluster will no longer request available update recommendations.", was)
	case len(known) == 0:
		r.warn("No channels known to be compatible with the current version %q; unable to validate %q. Setting the update channel to %q anyway.",
			cv.Status.Desired.Version, o.Name, o.Name)
	case slices.Contains(known, o.Name):
	case !o.AllowExplicit:
		return refuse("the requested channel %q is not one of the available channels (%s), you must pass --allow-explicit-channel to continue", o.Name, list)
	default:
		r.warn("The requested channel %q is not one of the available channels (%s). You have used --allow-explicit-channel to proceed anyway. "+
			"Setting the update channel to %q.", o.Name, list, o.Name)
	}
	r.Spec = cv.Spec.DeepCopy()
	r.Spec.Channel = o.Name
	r.SpecPatch = map[string]any{"channel": o.Name}
	switch {
	case o.Name == "":
		r.Message = "info: Cluster channel is clear (was " + was + ")"
	case was == "":
		r.Message = "info: Cluster is in " + o.Name
	default:
		r.Message = "info: Cluster is in " + o.Name + " (was " + was + ")"
	}
	return nil
}
