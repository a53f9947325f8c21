package upgradeable

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"
)

// ReasonOverrides is the reason not to update a cluster with overrides to another minor version.
const ReasonOverrides = "ClusterVersionOverridesSet"

// OverridesMessage is the message for ReasonOverrides.
const OverridesMessage = "Disabling ownership via cluster version overrides prevents updates between minor or major versions. Please remove overrides before requesting a minor or major version update."

// Overridden reports whether some object is unmanaged.
func Overridden(overrides []configv1.ComponentOverride) bool {
	return slices.ContainsFunc(overrides, func(o configv1.ComponentOverride) bool { return o.Unmanaged })
}

// overrides returns an obstacle while any object is unmanaged, because releases are not tested with parts of other releases.
func overrides(in Input) []Obstacle {
	if !Overridden(in.Overrides) {
		return nil
	}
	return []Obstacle{{
		Source: SourceOverrides, Reason: ReasonOverrides, Message: OverridesMessage,
		Risk: SourceOverrides, URL: docs("overrides"),
	}}
}
