package inclusion

import (
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Capabilities that the pinned API module does not define yet.
const (
	CapabilityCompatibilityRequirements configv1.ClusterVersionCapability = "CompatibilityRequirements"
	CapabilityClusterAPI                configv1.ClusterVersionCapability = "ClusterAPI"
)

// Feature gates that capabilities depend on.
const (
	gateCRDCompatibilityRequirementOperator = "CRDCompatibilityRequirementOperator"
	gateClusterAPIMachineManagement         = "ClusterAPIMachineManagement"
)

// Capabilities selects a cluster's optional parts of a release. The zero value disables the check and keeps every manifest.
type Capabilities struct {
	// Known lists the capabilities that this operator knows; nil disables the check.
	Known sets.Set[configv1.ClusterVersionCapability]
	// Enabled lists the enabled capabilities.
	Enabled sets.Set[configv1.ClusterVersionCapability]
}

// KnownCapabilities returns all known capabilities, sorted.
func KnownCapabilities() []configv1.ClusterVersionCapability {
	known := sets.New(configv1.KnownClusterVersionCapabilities...)
	known.Insert(CapabilityCompatibilityRequirements, CapabilityClusterAPI)
	return sets.List(known)
}

// CapabilityNames returns the names of capabilities, separated by commas.
func CapabilityNames(capabilities []configv1.ClusterVersionCapability) string {
	names := make([]string, len(capabilities))
	for i, c := range capabilities {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}

// AllCapabilities returns all capabilities that the feature gates allow, as known and enabled.
func AllCapabilities(gates sets.Set[string]) Capabilities {
	known := withoutGated(sets.New(KnownCapabilities()...), gates)
	return Capabilities{Known: known, Enabled: known.Clone()}
}

// BaselineCapabilities returns the capabilities of a baseline set, sorted. The empty set stands for vCurrent, which has all capabilities.
// ok is false for an unknown set.
func BaselineCapabilities(set configv1.ClusterVersionCapabilitySet) (capabilities []configv1.ClusterVersionCapability, ok bool) {
	if set == "" || set == configv1.ClusterVersionCapabilitySetCurrent {
		return KnownCapabilities(), true
	}
	capabilities, ok = configv1.ClusterVersionCapabilitySets[set]
	capabilities = slices.Clone(capabilities)
	slices.Sort(capabilities)
	return capabilities, ok
}

// enablingGates returns the feature gates that a capability depends on: it exists if at least one of them is on. It returns nil for a
// capability that always exists.
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

// EnabledCapabilities returns the enabled capabilities: the baseline set and the additions in the ClusterVersion's spec, plus mustStay.
// Those are capabilities that were enabled before, because a capability can never be disabled, or that the operator's flags enable. It also
// returns the implicit capabilities, sorted: those that only mustStay enables. All enabled capabilities count as known, because a newer
// release may have enabled some that this operator does not know. Capabilities whose feature gates are all off are neither known nor
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

// With returns the capabilities with more that are known and enabled, except those whose feature gates are all off.
func (c Capabilities) With(more []configv1.ClusterVersionCapability, gates sets.Set[string]) Capabilities {
	c.Enabled = withoutGated(c.Enabled.Union(sets.New(more...)), gates)
	if c.Known != nil {
		c.Known = withoutGated(c.Known.Union(sets.New(more...)), gates)
	}
	return c
}

// ImplicitCapabilities returns the capabilities that a new release makes necessary, sorted. If the old release applied an object to this
// cluster and the new release assigns the object to a disabled capability, then that capability becomes enabled, even if it is unknown.
// Otherwise the object would be orphaned. capabilities are the current ones, before are the cluster's manifests of the old release, and
// after are the manifests of the new release that would be included with all capabilities.
func ImplicitCapabilities(capabilities Capabilities, before, after []*manifest.Manifest) []configv1.ClusterVersionCapability {
	had := make(map[manifest.ID]*manifest.Manifest, len(before))
	for _, m := range before {
		if !m.Tombstone() { // the cluster does not have the object
			had[m.ID()] = m
		}
	}
	implicit := sets.New[configv1.ClusterVersionCapability]()
	for _, m := range after {
		if old, ok := had[m.ID()]; ok {
			implicit = implicit.Union(sets.New(CapabilitiesOf(m)...).Delete(CapabilitiesOf(old)...))
		}
	}
	return sets.List(implicit.Difference(capabilities.Enabled))
}

// CapabilitiesOf returns the capabilities of a manifest, in the order of its annotation. A manifest without any is always included.
func CapabilitiesOf(m *manifest.Manifest) []configv1.ClusterVersionCapability {
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
