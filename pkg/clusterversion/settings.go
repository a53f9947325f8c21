package clusterversion

import (
	"context"
	"maps"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Settings are what decides which manifests a cluster gets, beside its ClusterVersion: how the operator was started, and
// the cluster's feature set and gates. They are a value that nobody changes.
type Settings struct {
	// Profile, ExcludeID and FeatureSet: see manifest.Filter.
	Profile, ExcludeID, FeatureSet string
	// Gates are the feature gates that are on, by the version of the release that they were written for.
	Gates map[string]sets.Set[string]
	// BringYourOwnNetwork: see payload.Options.
	BringYourOwnNetwork bool
	// AlwaysEnable lists capabilities that are on whatever the ClusterVersion asks for.
	AlwaysEnable []configv1.ClusterVersionCapability
}

// SettingsOf reads the settings from FeatureGate cluster, which may be nil: such a cluster has the default feature set.
func SettingsOf(gates *configv1.FeatureGate) Settings {
	if gates == nil {
		return Settings{}
	}
	s := Settings{FeatureSet: string(gates.Spec.FeatureSet), Gates: map[string]sets.Set[string]{}}
	for _, details := range gates.Status.FeatureGates {
		on := sets.New[string]()
		for _, gate := range details.Enabled {
			on.Insert(string(gate.Name))
		}
		s.Gates[details.Version] = on
	}
	return s
}

// gates returns the feature gates that count for a release. The operator that writes them for a version comes with the
// release of that version, so until it has run there are none for a release that is only being accepted: then it is
// those of the newest release in the history that has any. That way an update first keeps what is gated as it was, and
// changes it in one go when the new operator has spoken, whatever the order of events; and a restart in between comes to
// the same answer.
func (s Settings) gates(cv *configv1.ClusterVersion, version string) sets.Set[string] {
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

// Filter decides which manifests of the release of that version the cluster gets. Capabilities that were on stay on: those
// that status tells of, and those of stay.
func (s Settings) Filter(cv *configv1.ClusterVersion, version string, stay ...configv1.ClusterVersionCapability) manifest.Filter {
	filter := manifest.Filter{
		Profile: s.Profile, ExcludeID: s.ExcludeID, FeatureSet: s.FeatureSet, Gates: s.gates(cv, version), Overrides: cv.Spec.Overrides,
	}
	on := sets.New(cv.Status.Capabilities.EnabledCapabilities...).Insert(s.AlwaysEnable...).Insert(stay...)
	filter.Capabilities, _ = manifest.EnabledCapabilities(cv.Spec.Capabilities, filter.Gates, on)
	return filter
}

// question is what the answer to "is this release acceptable, and what of it does this cluster get" depends on.
type question struct {
	target   Target
	settings Settings
	// wanted are the capabilities that are asked for or on already, whatever gates say.
	wanted sets.Set[configv1.ClusterVersionCapability]
}

func newQuestion(cv *configv1.ClusterVersion, target Target, settings Settings) question {
	// With every gate on, none of the names is left out.
	every := Settings{Gates: map[string]sets.Set[string]{"": manifest.CapabilityGates()}, AlwaysEnable: settings.AlwaysEnable}
	return question{target: target, settings: settings, wanted: every.Filter(cv, "").Capabilities.Enabled}
}

// sameTarget reports whether both are about the same release; a difference in what follows from the history is none.
func (q question) sameTarget(other question) bool {
	return q.target.Image == other.target.Image && q.target.Version == other.target.Version && q.target.Force == other.target.Force
}

// answeredBy reports whether an answer to an earlier question about the same release answers this one, too. Once a
// release is accepted only its own feature gates matter, and capabilities that it has switched on are no news.
func (q question) answeredBy(cv *configv1.ClusterVersion, earlier question, a Acceptance) bool {
	if q.settings.FeatureSet != earlier.settings.FeatureSet {
		return false
	}
	if a.Payload != nil {
		version := a.Payload.Release.Version
		if !q.settings.gates(cv, version).Equal(earlier.settings.gates(cv, version)) {
			return false
		}
	} else if !maps.EqualFunc(q.settings.Gates, earlier.settings.Gates, sets.Set[string].Equal) {
		return false
	}
	if a.Done {
		return earlier.wanted.Union(a.filter.Capabilities.Enabled).IsSuperset(q.wanted)
	}
	return earlier.wanted.Equal(q.wanted)
}

// readSettings reads which manifests the cluster gets, from memory.
func (c *Reconciler) readSettings(_ context.Context, r *round) error {
	r.settings = c.stages.Settings()
	return nil
}
