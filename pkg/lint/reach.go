package lint

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// knownProfiles are those that releases of OpenShift are made for.
func knownProfiles() []string {
	return []string{"hypershift", "ibm-cloud-managed", api.DefaultProfile, "single-node-developer"}
}

// reach says which clusters get an object, as far as its annotations decide that. Capabilities are left aside: every
// set of them can be enabled at once.
type reach struct {
	// profiles that include it, sorted.
	profiles []string
	// sets are the feature sets that it is for; nil for all.
	sets []string
	// gates must be on, or, with a "-" before them, off.
	gates []string
}

// never: no profile applies it.
func (r reach) never() bool { return len(r.profiles) == 0 }

func reachOf(annotations map[string]string) reach {
	var r reach
	for key, value := range annotations {
		if profile, ok := strings.CutPrefix(key, api.IncludePrefix); ok && value == "true" {
			r.profiles = append(r.profiles, profile)
		}
	}
	slices.Sort(r.profiles)
	if value, ok := annotations[api.FeatureSetAnnotation]; ok {
		r.sets = strings.Split(value, ",")
	}
	if value, ok := annotations[api.FeatureGateAnnotation]; ok {
		for gate := range strings.SplitSeq(value, ",") {
			r.gates = append(r.gates, strings.TrimSpace(gate))
		}
	}
	return r
}

// cluster is one profile with one feature set.
type cluster struct{ profile, set string }

// featureGates are the gates that a release enables on each kind of cluster, as its FeatureGate manifests tell.
type featureGates map[cluster]sets.Set[string]

// eachGate calls do for what a FeatureGate's status says.
func eachGate(o *object, do func(name string, enabled bool)) {
	if !o.Is("config.openshift.io", "FeatureGate") {
		return
	}
	list, _, _ := unstructured.NestedSlice(o.Object.Object, "status", "featureGates")
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		for _, key := range []string{"enabled", "disabled"} {
			gates, _ := fields[key].([]any)
			for _, gate := range gates {
				attributes, _ := gate.(map[string]any)
				if name, ok := attributes["name"].(string); ok {
					do(name, key == "enabled")
				}
			}
		}
	}
}

// readGates takes the gates from FeatureGates for the release's own major version. Their include annotation has a value
// that nobody applies, and names the profile all the same.
func readGates(objects []*object, major uint64) featureGates {
	out := featureGates{}
	for _, o := range objects {
		enabled := sets.New[string]()
		says := false
		eachGate(o, func(name string, on bool) {
			says = true
			if on {
				enabled.Insert(name)
			}
		})
		annotations := o.Object.GetAnnotations()
		if !says || !forMajor(annotations[api.MajorVersionAnnotation], major) {
			continue
		}
		featureSets := []string{"Default"}
		if value, ok := annotations[api.FeatureSetAnnotation]; ok {
			featureSets = strings.Split(value, ",")
		}
		for key := range annotations {
			profile, ok := strings.CutPrefix(key, api.IncludePrefix)
			if !ok {
				continue
			}
			for _, set := range featureSets {
				out[cluster{profile, set}] = enabled
			}
		}
	}
	return out
}

// reaches answers whether two objects can meet in a cluster.
type reaches struct {
	gates featureGates
}

// meet reports whether some cluster gets both.
func (r reaches) meet(a, b reach) bool {
	return r.clusters(a, b) != nil
}

// clusters lists the kinds of cluster that get all of them, sorted.
func (r reaches) clusters(all ...reach) []cluster {
	var out []cluster
	for _, profile := range all[0].profiles {
		if slices.ContainsFunc(all, func(x reach) bool { return !slices.Contains(x.profiles, profile) }) {
			continue
		}
		for _, set := range manifest.KnownFeatureSets() {
			if r.admits(cluster{profile, set}, all) {
				out = append(out, cluster{profile, set})
			}
		}
	}
	return out
}

func (r reaches) admits(c cluster, all []reach) bool {
	on, off := sets.New[string](), sets.New[string]()
	for _, x := range all {
		if x.sets != nil && !slices.Contains(x.sets, c.set) {
			return false
		}
		for _, gate := range x.gates {
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
	enabled, known := r.gates[c]
	if !known || c.set == string(configv1.CustomNoUpgrade) {
		return true // any gate may be on
	}
	return enabled.IsSuperset(on) && !enabled.HasAny(off.UnsortedList()...)
}

// filter returns the rules by which such a cluster chooses its manifests.
func (r reaches) filter(c cluster, major uint64) manifest.Filter {
	return manifest.Filter{Profile: c.profile, FeatureSet: c.set, Gates: r.gates[c], MajorVersion: major}
}
