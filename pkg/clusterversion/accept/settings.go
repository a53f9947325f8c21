package accept

import (
	"maps"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/inclusion"
)

// Settings select, together with the ClusterVersion, the manifests that a cluster gets. They hold the operator's flags and the cluster's
// feature set and gates. They are immutable.
type Settings struct {
	// Profile, ExcludeID and FeatureSet are described at inclusion.Filter.
	Profile, ExcludeID, FeatureSet string
	// Gates are the enabled feature gates, by the release version for which they were written.
	Gates map[string]sets.Set[string]
	// BringYourOwnNetwork is described at payload.Options.
	BringYourOwnNetwork bool
	// AlwaysEnable lists capabilities that are enabled even if the ClusterVersion does not request them.
	AlwaysEnable []configv1.ClusterVersionCapability
}

// With returns the settings with the feature set and the gates of FeatureGate cluster. gates may be nil: such a cluster has the default
// feature set.
func (s Settings) With(gates *configv1.FeatureGate) Settings {
	s.FeatureSet, s.Gates = "", nil
	if gates == nil {
		return s
	}
	s.FeatureSet, s.Gates = string(gates.Spec.FeatureSet), map[string]sets.Set[string]{}
	for _, details := range gates.Status.FeatureGates {
		on := sets.New[string]()
		for _, gate := range details.Enabled {
			on.Insert(string(gate.Name))
		}
		s.Gates[details.Version] = on
	}
	return s
}

// GatesOf returns the feature gates for a release version. An operator in that release writes them, so they do not exist before the release
// is rolled out. Until then, GatesOf returns the gates of the newest history entry that has any. An update therefore leaves gated objects
// unchanged until the new operator has written its gates, and then changes them at once. The order of events and restarts do not matter.
func (s Settings) GatesOf(cv *configv1.ClusterVersion, version string) sets.Set[string] {
	if on, ok := s.Gates[version]; ok {
		return on
	}
	for _, entry := range cv.Status.History {
		if on, ok := s.Gates[entry.Version]; ok {
			return on
		}
	}
	return sets.New[string]()
}

// Filter returns the filter that selects the cluster's manifests of a release version. Enabled capabilities stay enabled: those in the
// status and those in stay.
func (s Settings) Filter(cv *configv1.ClusterVersion, version string, stay ...configv1.ClusterVersionCapability) inclusion.Filter {
	filter := inclusion.Filter{
		Profile: s.Profile, ExcludeID: s.ExcludeID, FeatureSet: s.FeatureSet, Gates: s.GatesOf(cv, version), Overrides: cv.Spec.Overrides,
	}
	on := sets.New(cv.Status.Capabilities.EnabledCapabilities...).Insert(s.AlwaysEnable...).Insert(stay...)
	filter.Capabilities, _ = inclusion.EnabledCapabilities(cv.Spec.Capabilities, filter.Gates, on)
	return filter
}

// Question holds every input that decides whether a release is acceptable and which of its manifests this cluster gets.
type Question struct {
	target request.Target
	// request is the serial number of the target's request.
	request  int
	settings Settings
	// wanted are the capabilities that are requested or already enabled, regardless of the feature gates.
	wanted sets.Set[configv1.ClusterVersionCapability]
}

// NewQuestion returns the question for a reconcile.
func NewQuestion(cv *configv1.ClusterVersion, target request.Target, request int, settings Settings) Question {
	// With every gate enabled, no capability name is left out.
	every := Settings{Gates: map[string]sets.Set[string]{"": inclusion.CapabilityGates()}, AlwaysEnable: settings.AlwaysEnable}
	return Question{target: target, request: request, settings: settings, wanted: every.Filter(cv, "").Capabilities.Enabled}
}

// sameRelease reports whether both questions concern the same release: they have the same request, or q names the accepted release.
func (q Question) sameRelease(asked Question, latest Acceptance) bool {
	if latest.Done && q.target.Named() == latest.Image() && (q.target.Version == "" || q.target.Version == latest.Payload.Release.Version) {
		return true
	}
	return q.request == asked.request && q.target.Image == asked.target.Image && q.target.Version == asked.target.Version && q.target.Force == asked.target.Force
}

// SettingsStand reports whether the answer for earlier settings is still valid. Once a release is accepted, only its own feature gates
// matter, and capabilities that it enabled do not count as a change.
func (q Question) SettingsStand(cv *configv1.ClusterVersion, earlier Question, a Acceptance) bool {
	if q.settings.FeatureSet != earlier.settings.FeatureSet {
		return false
	}
	if a.Payload != nil {
		version := a.Payload.Release.Version
		if !q.settings.GatesOf(cv, version).Equal(earlier.settings.GatesOf(cv, version)) {
			return false
		}
	} else if !maps.EqualFunc(q.settings.Gates, earlier.settings.Gates, sets.Set[string].Equal) {
		return false
	}
	if a.Done {
		return earlier.wanted.Union(a.Filter.Capabilities.Enabled).IsSuperset(q.wanted)
	}
	return earlier.wanted.Equal(q.wanted)
}
