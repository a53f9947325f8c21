// Package inclusion decides which manifests of a release a cluster gets, and the reason to exclude each of the others. Annotations of a
// manifest name cluster profiles, feature sets, feature gates, capabilities and major versions. The package takes manifests and settings of
// clusters and returns values. It does not find out the settings of a cluster.
package inclusion

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inclusion/override"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// defaultFeatureSet is the name of the empty feature set in annotations.
const defaultFeatureSet = "Default"

// Filter selects the manifests of a release for a cluster. The zero value stands for a plain self-managed cluster: the default profile and
// feature set, no feature gates and no overrides, without a check of capabilities and major version.
type Filter struct {
	// Profile is the cluster profile; default api.DefaultProfile.
	Profile string
	// ExcludeID excludes manifests with the annotation exclude.release.openshift.io/<id>: "true"; empty excludes none.
	ExcludeID string
	// FeatureSet is the cluster's feature set; "" and "Default" are equivalent.
	FeatureSet string
	// Gates lists the enabled feature gates.
	Gates sets.Set[string]
	// Capabilities selects the optional parts of the release.
	Capabilities Capabilities
	// MajorVersion is the release's major version; nil skips the rule.
	MajorVersion *uint64
	// Overrides lists the overrides in the ClusterVersion's spec.
	Overrides []configv1.ComponentOverride
}

// Unconditional returns the filter without the rules that an administrator can change at any time, which are capabilities and overrides.
// The payload hash covers the manifests that it keeps.
func (f Filter) Unconditional() Filter {
	f.Capabilities, f.Overrides = Capabilities{}, nil
	return f
}

// KnownFeatureSets returns the feature sets that a manifest may name, sorted. The empty one is "Default".
func KnownFeatureSets() []string {
	out := []string{string(configv1.CustomNoUpgrade)}
	for _, s := range configv1.AllFixedFeatureSets {
		out = append(out, featureSetName(string(s)))
	}
	slices.Sort(out)
	return out
}

func featureSetName(set string) string {
	if set == "" {
		return defaultFeatureSet
	}
	return set
}

// rule returns the reason to exclude a manifest, or "" to keep it.
type rule func(f Filter, m *manifest.Manifest, annotations map[string]string) string

// rules returns the inclusion rules of OpenShift's library-go in their order. If several rules exclude a manifest, the first one provides
// the reason.
func rules() []rule {
	return []rule{
		Filter.byAnnotations,
		Filter.byExcludeID,
		Filter.byFeatureSetAndGate,
		Filter.byFeatureSet,
		Filter.byFeatureGate,
		Filter.byMajorVersion,
		Filter.byProfile,
		Filter.byCapabilities,
		Filter.byOverrides,
	}
}

// Exclude reports whether a cluster excludes a manifest, and the reason without a full stop. As in the original, a malformed annotation
// excludes the manifest, and empty entries in lists of feature gates and major versions have no effect.
func (f Filter) Exclude(m *manifest.Manifest) (reason string, excluded bool) {
	annotations := m.Object.GetAnnotations()
	for _, check := range rules() {
		if reason := check(f, m, annotations); reason != "" {
			return reason, true
		}
	}
	return "", false
}

func (f Filter) byAnnotations(_ *manifest.Manifest, annotations map[string]string) string {
	if len(annotations) == 0 {
		return "no annotations"
	}
	return ""
}

func (f Filter) byExcludeID(_ *manifest.Manifest, annotations map[string]string) string {
	if f.ExcludeID != "" && annotations[api.ExcludePrefix+f.ExcludeID] == "true" {
		return fmt.Sprintf("annotation %s%s is true", api.ExcludePrefix, f.ExcludeID)
	}
	return ""
}

func (f Filter) byFeatureSetAndGate(_ *manifest.Manifest, annotations map[string]string) string {
	_, set := annotations[api.FeatureSetAnnotation]
	_, gate := annotations[api.FeatureGateAnnotation]
	if set && gate {
		return fmt.Sprintf("annotations %s and %s are mutually exclusive", api.FeatureSetAnnotation, api.FeatureGateAnnotation)
	}
	return ""
}

// byFeatureSet does not trim spaces around names, because the original does not.
func (f Filter) byFeatureSet(_ *manifest.Manifest, annotations map[string]string) string {
	value, ok := annotations[api.FeatureSetAnnotation]
	if !ok {
		return ""
	}
	named := strings.Split(value, ",")
	for _, set := range named {
		if !slices.Contains(KnownFeatureSets(), set) {
			return fmt.Sprintf("unknown feature set %q in annotation %s", set, api.FeatureSetAnnotation)
		}
	}
	if set := featureSetName(f.FeatureSet); !slices.Contains(named, set) {
		return fmt.Sprintf("feature set %s is not in %s", set, value)
	}
	return ""
}

func (f Filter) byFeatureGate(_ *manifest.Manifest, annotations map[string]string) string {
	value, ok := annotations[api.FeatureGateAnnotation]
	if !ok {
		return ""
	}
	for gate := range strings.SplitSeq(value, ",") {
		gate = strings.TrimSpace(gate)
		name, negated := strings.CutPrefix(gate, "-")
		switch {
		case name == "":
		case negated && f.Gates.Has(name):
			return fmt.Sprintf("feature gate %s is enabled", name)
		case !negated && !f.Gates.Has(name):
			return fmt.Sprintf("feature gate %s is not enabled", name)
		}
	}
	return ""
}

func (f Filter) byMajorVersion(m *manifest.Manifest, annotations map[string]string) string {
	value, ok := annotations[api.MajorVersionAnnotation]
	if !ok || f.MajorVersion == nil {
		return ""
	}
	if !m.Is("config.openshift.io", "FeatureGate") && !m.Is("apiextensions.k8s.io", "CustomResourceDefinition") {
		return fmt.Sprintf("annotation %s is allowed only on FeatureGates and CustomResourceDefinitions", api.MajorVersionAnnotation)
	}
	included, excluded, err := parseMajors(value)
	switch own := *f.MajorVersion; {
	case err != nil:
		return fmt.Sprintf("annotation %s: %v", api.MajorVersionAnnotation, err)
	case excluded.Has(own):
		return fmt.Sprintf("major version %d is excluded by %q", own, value)
	case included.Len() > 0 && !included.Has(own):
		return fmt.Sprintf("major version %d is not in %q", own, value)
	}
	return ""
}

func parseMajors(value string) (included, excluded sets.Set[uint64], err error) {
	included, excluded = sets.New[uint64](), sets.New[uint64]()
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		digits, negated := strings.CutPrefix(entry, "-")
		major, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("%q is not a major version", entry)
		}
		if negated {
			excluded.Insert(major)
		} else {
			included.Insert(major)
		}
	}
	if both := sets.List(included.Intersection(excluded)); len(both) > 0 {
		return nil, nil, fmt.Errorf("major version %d is both included and excluded", both[0])
	}
	return included, excluded, nil
}

func (f Filter) byProfile(_ *manifest.Manifest, annotations map[string]string) string {
	profile := f.Profile
	if profile == "" {
		profile = api.DefaultProfile
	}
	switch value, ok := annotations[api.IncludePrefix+profile]; {
	case !ok:
		return fmt.Sprintf("no annotation %s%s", api.IncludePrefix, profile)
	case value != "true":
		return fmt.Sprintf("annotation %s%s is %q, not true", api.IncludePrefix, profile, value)
	}
	return ""
}

func (f Filter) byCapabilities(_ *manifest.Manifest, annotations map[string]string) string {
	if f.Capabilities.Known == nil {
		return ""
	}
	var unknown, disabled []configv1.ClusterVersionCapability
	for _, c := range parseCapabilities(annotations) {
		if !f.Capabilities.Known.Has(c) {
			unknown = append(unknown, c)
		}
		if !f.Capabilities.Enabled.Has(c) {
			disabled = append(disabled, c)
		}
	}
	switch {
	case len(unknown) > 0:
		return "unknown capability " + CapabilityNames(unknown)
	case len(disabled) > 0:
		return "capability not enabled: " + CapabilityNames(disabled)
	}
	return ""
}

func (f Filter) byOverrides(m *manifest.Manifest, _ map[string]string) string {
	if override.Excluded(m.ID(), f.Overrides) {
		return override.Reason
	}
	return ""
}
