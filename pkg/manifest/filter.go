package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
)

// defaultFeatureSet is how the annotation of a manifest spells the empty feature set.
const defaultFeatureSet = "Default"

// Filter decides which manifests of a release a cluster gets. The zero value is a plain self-managed cluster: default
// profile, default feature set, no feature gate, no check of capabilities or of the major version, no overrides.
type Filter struct {
	// Profile is the cluster profile; default api.DefaultProfile.
	Profile string
	// ExcludeID leaves out manifests annotated exclude.release.openshift.io/<id>: "true"; default none.
	ExcludeID string
	// FeatureSet is the cluster's feature set; "" and "Default" are the same.
	FeatureSet string
	// Gates are the enabled feature gates.
	Gates sets.Set[string]
	// Capabilities are the optional parts that are on.
	Capabilities Capabilities
	// MajorVersion is the release's own major version; 0 leaves the rule out.
	MajorVersion uint64
	// Overrides are those of the ClusterVersion's spec.
	Overrides []configv1.ComponentOverride
}

// Unconditional returns the filter without the rules that a cluster's administrator can change at any time
// (capabilities, overrides). What it keeps is what the payload hash is computed over.
func (f Filter) Unconditional() Filter {
	f.Capabilities, f.Overrides = Capabilities{}, nil
	return f
}

// KnownFeatureSets returns the feature sets that a manifest may name, sorted, the empty one as "Default".
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

// rule is one reason to leave a manifest out: a sentence, or "" to let it pass.
type rule func(f Filter, m *Manifest, annotations map[string]string) string

// rules are those of OpenShift library-go's manifest inclusion, in its order, which decides the reason that is given
// for a manifest that several rules exclude.
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

// Exclude tells whether a cluster leaves a manifest out, and why, in one sentence without a full stop. A broken
// annotation excludes too, as it does in the original.
func (f Filter) Exclude(m *Manifest) (reason string, excluded bool) {
	annotations := m.Object.GetAnnotations()
	for _, check := range rules() {
		if reason := check(f, m, annotations); reason != "" {
			return reason, true
		}
	}
	return "", false
}

func (f Filter) byAnnotations(_ *Manifest, annotations map[string]string) string {
	if len(annotations) == 0 {
		return "no annotations"
	}
	return ""
}

func (f Filter) byExcludeID(_ *Manifest, annotations map[string]string) string {
	if f.ExcludeID != "" && annotations[api.ExcludePrefix+f.ExcludeID] == "true" {
		return fmt.Sprintf("annotation %s%s is true", api.ExcludePrefix, f.ExcludeID)
	}
	return ""
}

func (f Filter) byFeatureSetAndGate(_ *Manifest, annotations map[string]string) string {
	_, set := annotations[api.FeatureSetAnnotation]
	_, gate := annotations[api.FeatureGateAnnotation]
	if set && gate {
		return fmt.Sprintf("annotations %s and %s exclude each other", api.FeatureSetAnnotation, api.FeatureGateAnnotation)
	}
	return ""
}

// byFeatureSet does not trim spaces around names, as the original does not.
func (f Filter) byFeatureSet(_ *Manifest, annotations map[string]string) string {
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

func (f Filter) byFeatureGate(_ *Manifest, annotations map[string]string) string {
	value, ok := annotations[api.FeatureGateAnnotation]
	if !ok {
		return ""
	}
	for gate := range strings.SplitSeq(value, ",") {
		gate = strings.TrimSpace(gate)
		name, negated := strings.CutPrefix(gate, "-")
		switch {
		case name == "":
			return fmt.Sprintf("empty name in annotation %s: %q", api.FeatureGateAnnotation, value)
		case negated && f.Gates.Has(name):
			return fmt.Sprintf("feature gate %s is enabled", name)
		case !negated && !f.Gates.Has(name):
			return fmt.Sprintf("feature gate %s is not enabled", name)
		}
	}
	return ""
}

func (f Filter) byMajorVersion(m *Manifest, annotations map[string]string) string {
	value, ok := annotations[api.MajorVersionAnnotation]
	if !ok || f.MajorVersion == 0 {
		return ""
	}
	if !m.Is("config.openshift.io", "FeatureGate") && !m.Is("apiextensions.k8s.io", "CustomResourceDefinition") {
		return fmt.Sprintf("annotation %s is allowed on FeatureGates and CustomResourceDefinitions only", api.MajorVersionAnnotation)
	}
	included, excluded, err := parseMajors(value)
	switch {
	case err != nil:
		return fmt.Sprintf("annotation %s: %v", api.MajorVersionAnnotation, err)
	case excluded.Has(f.MajorVersion):
		return fmt.Sprintf("major version %d is excluded by %q", f.MajorVersion, value)
	case included.Len() > 0 && !included.Has(f.MajorVersion):
		return fmt.Sprintf("major version %d is not in %q", f.MajorVersion, value)
	}
	return ""
}

func parseMajors(value string) (included, excluded sets.Set[uint64], err error) {
	included, excluded = sets.New[uint64](), sets.New[uint64]()
	for entry := range strings.SplitSeq(value, ",") {
		digits, negated := strings.CutPrefix(strings.TrimSpace(entry), "-")
		major, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("%q is not a major version", strings.TrimSpace(entry))
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

func (f Filter) byProfile(_ *Manifest, annotations map[string]string) string {
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

func (f Filter) byCapabilities(_ *Manifest, annotations map[string]string) string {
	if f.Capabilities.Known == nil {
		return ""
	}
	var unknown, disabled []string
	for _, c := range parseCapabilities(annotations) {
		if !f.Capabilities.Known.Has(c) {
			unknown = append(unknown, string(c))
		}
		if !f.Capabilities.Enabled.Has(c) {
			disabled = append(disabled, string(c))
		}
	}
	switch {
	case len(unknown) > 0 && !f.Capabilities.AllowUnknown:
		return "unknown capability " + strings.Join(unknown, ", ")
	case len(disabled) > 0:
		return "capability not enabled: " + strings.Join(disabled, ", ")
	}
	return ""
}

// byOverrides compares an override's namespace only with that of a namespaced object.
func (f Filter) byOverrides(m *Manifest, _ map[string]string) string {
	id := m.ID()
	for _, o := range f.Overrides {
		if o.Unmanaged && o.Group == id.Group && o.Kind == id.Kind && o.Name == id.Name &&
			(id.Namespace == "" || o.Namespace == id.Namespace) {
			return "overridden: spec.overrides sets it unmanaged"
		}
	}
	return ""
}
