package upgradeable

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"
)

// ReasonOverrides is why a cluster with overrides is not updated to another minor version.
const ReasonOverrides = "ClusterVersionOverridesSet"

// OverridesMessage is the message to it.
const OverridesMessage = "Disabling ownership via cluster version overrides prevents updates between minor or major versions. Please remove overrides before requesting a minor or major version update."

// overrides objects while some object is left alone: nobody has tested a release with a part of another one.
func overrides(in Input) []Obstacle {
	if !slices.ContainsFunc(in.Overrides, func(o configv1.ComponentOverride) bool { return o.Unmanaged }) {
		return nil
	}
	return []Obstacle{{
		Source: SourceOverrides, Reason: ReasonOverrides, Message: OverridesMessage,
		Risk: SourceOverrides, URL: docs("overrides"),
	}}
}
