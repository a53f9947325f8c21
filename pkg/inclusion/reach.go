package inclusion

import (
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// KnownProfiles returns the cluster profiles of OpenShift's releases, sorted.
func KnownProfiles() []string {
	return []string{"hypershift", "ibm-cloud-managed", api.DefaultProfile, "single-node-developer"}
}

// Reach describes which clusters get a manifest, as far as its annotations decide that. It ignores capabilities, because all of them can be
// enabled at once.
type Reach struct {
	// Profiles lists the profiles that include the manifest, sorted; empty if no cluster gets it.
	Profiles []string
	// FeatureSets lists the feature sets that the manifest is limited to; nil for all.
	FeatureSets []string
	// Gates lists the feature gates that must be on or, with a leading "-", off.
	Gates []string
}

// ReachOf returns the reach of a manifest. It does not report invalid annotations, see Filter.
func ReachOf(m *manifest.Manifest) Reach {
	var r Reach
	annotations := m.Object.GetAnnotations()
	for key, value := range annotations {
		if profile, ok := strings.CutPrefix(key, api.IncludePrefix); ok && value == "true" {
			r.Profiles = append(r.Profiles, profile)
		}
	}
	slices.Sort(r.Profiles)
	if value, ok := annotations[api.FeatureSetAnnotation]; ok {
		r.FeatureSets = strings.Split(value, ",")
	}
	if value, ok := annotations[api.FeatureGateAnnotation]; ok {
		for gate := range strings.SplitSeq(value, ",") {
			if gate = strings.TrimSpace(gate); gate != "" && gate != "-" {
				r.Gates = append(r.Gates, gate)
			}
		}
	}
	return r
}

// Never reports whether no profile includes the manifest.
func (r Reach) Never() bool { return len(r.Profiles) == 0 }

// Has reports whether the cluster gets the manifest, ignoring gates.
func (r Reach) Has(c Cluster) bool {
	return slices.Contains(r.Profiles, c.Profile) && (r.FeatureSets == nil || slices.Contains(r.FeatureSets, c.FeatureSet))
}

// ForMajor reports whether the annotation release.openshift.io/major-version of a manifest allows a major version; nil stands for
// any.
func ForMajor(m *manifest.Manifest, major *uint64) bool {
	value := m.Annotation(api.MajorVersionAnnotation)
	if value == "" || major == nil {
		return true
	}
	included, excluded, err := parseMajors(value)
	return err == nil && !excluded.Has(*major) && (included.Len() == 0 || included.Has(*major))
}

// Cluster is a cluster profile with a feature set. The empty feature set is written as Default.
type Cluster struct {
	Profile    string `json:"profile"`
	FeatureSet string `json:"featureSet"`
}

// String returns text such as `self-managed-high-availability/Default`.
func (c Cluster) String() string { return fmt.Sprintf("%s/%s", c.Profile, c.FeatureSet) }

// FeatureGates returns the gates that a FeatureGate of the release lists as on and off, or none for other manifests.
func FeatureGates(m *manifest.Manifest) (enabled, disabled []string) {
	if !m.Is("config.openshift.io", "FeatureGate") {
		return nil, nil
	}
	status, _ := m.Object.Object["status"].(map[string]any)
	list, _ := status["featureGates"].([]any)
	names := func(value any) []string {
		var out []string
		gates, _ := value.([]any)
		for _, gate := range gates {
			attributes, _ := gate.(map[string]any)
			if name, ok := attributes["name"].(string); ok {
				out = append(out, name)
			}
		}
		return out
	}
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		enabled, disabled = append(enabled, names(fields["enabled"])...), append(disabled, names(fields["disabled"])...)
	}
	return enabled, disabled
}

// FeatureGateClusters returns the clusters that a FeatureGate of the release applies to. Its include annotations name their profiles,
// though with a value that excludes the manifest everywhere. Without a feature set, it applies to Default.
func FeatureGateClusters(m *manifest.Manifest) []Cluster {
	annotations := m.Object.GetAnnotations()
	featureSets := []string{defaultFeatureSet}
	if value, ok := annotations[api.FeatureSetAnnotation]; ok {
		featureSets = strings.Split(value, ",")
	}
	var out []Cluster
	for key := range annotations {
		profile, ok := strings.CutPrefix(key, api.IncludePrefix)
		if !ok {
			continue
		}
		for _, set := range featureSets {
			out = append(out, Cluster{profile, set})
		}
	}
	sorted.By(out, func(a, b Cluster) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// Gates maps each cluster to the feature gates that a release enables there.
type Gates map[Cluster]sets.Set[string]

// ReadGates returns the gates from a release's FeatureGates for its major version; nil stands for any version.
func ReadGates(manifests []*manifest.Manifest, major *uint64) Gates {
	out := Gates{}
	for _, m := range manifests {
		enabled, disabled := FeatureGates(m)
		if len(enabled)+len(disabled) == 0 || !ForMajor(m, major) {
			continue
		}
		for _, c := range FeatureGateClusters(m) {
			out[c] = sets.New(enabled...)
		}
	}
	return out
}

// Clusters returns the clusters that get the manifests of all given reaches together, sorted. Where gates are unknown or an administrator
// can set them, any gate may be on.
func (g Gates) Clusters(all ...Reach) []Cluster {
	var out []Cluster
	for _, profile := range all[0].Profiles {
		for _, set := range KnownFeatureSets() {
			if c := (Cluster{profile, set}); g.admits(c, all) {
				out = append(out, c)
			}
		}
	}
	return out
}

// Includes reports whether the cluster gets a manifest with this reach.
func (g Gates) Includes(c Cluster, r Reach) bool { return g.admits(c, []Reach{r}) }

func (g Gates) admits(c Cluster, all []Reach) bool {
	on, off := sets.New[string](), sets.New[string]()
	for _, r := range all {
		if !r.Has(c) {
			return false
		}
		for _, gate := range r.Gates {
			if name, negated := strings.CutPrefix(gate, "-"); negated {
				off.Insert(name)
			} else {
				on.Insert(gate)
			}
		}
	}
	if on.HasAny(off.UnsortedList()...) {
		return false
	}
	enabled, known := g[c]
	if !known || c.FeatureSet == string(configv1.CustomNoUpgrade) {
		return true
	}
	return enabled.IsSuperset(on) && !enabled.HasAny(off.UnsortedList()...)
}
