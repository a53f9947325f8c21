package manifest

import (
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
)

// Capabilities that releases already name while the API module that this one is built with does not.
const (
	CapabilityCompatibilityRequirements configv1.ClusterVersionCapability = "CompatibilityRequirements"
	CapabilityClusterAPI                configv1.ClusterVersionCapability = "ClusterAPI"
)

// Feature gates that capabilities depend on.
const (
	gateCRDCompatibilityRequirementOperator = "CRDCompatibilityRequirementOperator"
	gateClusterAPIMachineManagement         = "ClusterAPIMachineManagement"
)

// Capabilities say which optional parts of a release a cluster runs. The zero value checks nothing: every manifest
// passes, whatever capabilities it names.
type Capabilities struct {
	// Known are the names that mean something to this operator; nil switches the check of capabilities off.
	Known sets.Set[configv1.ClusterVersionCapability]
	// Enabled are those that are on.
	Enabled sets.Set[configv1.ClusterVersionCapability]
	// AllowUnknown lets names pass that are not known; they must still be enabled.
	AllowUnknown bool
}

// KnownCapabilities returns every capability that has a meaning, sorted.
func KnownCapabilities() []configv1.ClusterVersionCapability {
	known := sets.New(configv1.KnownClusterVersionCapabilities...)
	known.Insert(CapabilityCompatibilityRequirements, CapabilityClusterAPI)
	return sets.List(known)
}

// AllCapabilities knows and enables every capability whose feature gates allow it.
func AllCapabilities(gates sets.Set[string]) Capabilities {
	known := withoutGated(sets.New(KnownCapabilities()...), gates)
	return Capabilities{Known: known, Enabled: known.Clone()}
}

// BaselineCapabilities returns the capabilities of a baseline set, sorted; "" stands for vCurrent, which is all of
// them. An unknown set is not ok.
func BaselineCapabilities(set configv1.ClusterVersionCapabilitySet) (capabilities []configv1.ClusterVersionCapability, ok bool) {
	if set == "" || set == configv1.ClusterVersionCapabilitySetCurrent {
		return KnownCapabilities(), true
	}
	capabilities, ok = configv1.ClusterVersionCapabilitySets[set]
	capabilities = slices.Clone(capabilities)
	slices.Sort(capabilities)
	return capabilities, ok
}

// enablingGates are the feature gates of which one must be on for a capability to exist at all; nil: it always does.
func enablingGates(capability configv1.ClusterVersionCapability) []string {
	switch capability {
	case CapabilityCompatibilityRequirements:
		return []string{gateCRDCompatibilityRequirementOperator, gateClusterAPIMachineManagement}
	case CapabilityClusterAPI:
		return []string{gateClusterAPIMachineManagement}
	default:
		return nil
	}
}

// CapabilityGates returns the feature gates that capabilities depend on.
func CapabilityGates() sets.Set[string] {
	gates := sets.New[string]()
	for _, c := range KnownCapabilities() {
		gates.Insert(enablingGates(c)...)
	}
	return gates
}

func withoutGated(capabilities sets.Set[configv1.ClusterVersionCapability], gates sets.Set[string]) sets.Set[configv1.ClusterVersionCapability] {
	out := sets.New[configv1.ClusterVersionCapability]()
	for c := range capabilities {
		if needed := enablingGates(c); needed == nil || gates.HasAny(needed...) {
			out.Insert(c)
		}
	}
	return out
}

// EnabledCapabilities works out what is on: the baseline set of the ClusterVersion's spec, what the spec adds, and what
// must stay on because it was on before (a capability can never be switched off again) or because the operator was
// started so. What must stay on but is not asked for is implicit, sorted. What is on is known, too: a newer release may
// have switched on what this operator has no name for. Capabilities whose feature gates are all off are neither known nor
// enabled nor implicit. A nil spec and an empty or unknown baseline stand for vCurrent.
func EnabledCapabilities(spec *configv1.ClusterVersionCapabilitiesSpec, gates sets.Set[string], mustStay sets.Set[configv1.ClusterVersionCapability]) (capabilities Capabilities, implicit []configv1.ClusterVersionCapability) {
	if spec == nil {
		spec = &configv1.ClusterVersionCapabilitiesSpec{}
	}
	baseline, ok := BaselineCapabilities(spec.BaselineCapabilitySet)
	if !ok {
		baseline = KnownCapabilities()
	}
	asked := sets.New(baseline...).Insert(spec.AdditionalEnabledCapabilities...)
	capabilities = Capabilities{
		Known:   withoutGated(sets.New(KnownCapabilities()...).Union(mustStay), gates),
		Enabled: withoutGated(asked.Union(mustStay), gates),
	}
	return capabilities, sets.List(capabilities.Enabled.Difference(asked))
}

// ImplicitCapabilities returns the capabilities that a new release makes necessary, sorted: an object that the old
// release brought to this cluster now belongs to a capability that is not enabled. Leaving it out would orphan it, so
// its capabilities become enabled, even those that are not known here. The capabilities are those that are on as the new
// release comes; before are the manifests that the cluster had of the old one, after those that it may have of the new
// one, if it were not for capabilities.
func ImplicitCapabilities(capabilities Capabilities, before, after []*Manifest) []configv1.ClusterVersionCapability {
	had := make(map[ID]*Manifest, len(before))
	for _, m := range before {
		had[m.ID()] = m
	}
	implicit := sets.New[configv1.ClusterVersionCapability]()
	for _, m := range after {
		if old, ok := had[m.ID()]; ok {
			implicit = implicit.Union(sets.New(m.Capabilities()...).Delete(old.Capabilities()...))
		}
	}
	return sets.List(implicit.Difference(capabilities.Enabled))
}

// Capabilities returns the capabilities that a manifest belongs to, in the order of its annotation; none is always on.
func (m *Manifest) Capabilities() []configv1.ClusterVersionCapability {
	return parseCapabilities(m.Object.GetAnnotations())
}

func parseCapabilities(annotations map[string]string) []configv1.ClusterVersionCapability {
	value := annotations[api.CapabilityAnnotation]
	if value == "" {
		return nil
	}
	var out []configv1.ClusterVersionCapability
	for name := range strings.SplitSeq(value, "+") {
		out = append(out, configv1.ClusterVersionCapability(name))
	}
	return out
}
