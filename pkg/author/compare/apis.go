package compare

import (
	"cmp"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/author/compare/schema"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

// DefinitionChange is a change to an API that a CRD defines.
type DefinitionChange struct {
	// Name is the name of the CRD, such as clusterversions.config.openshift.io.
	Name      string `json:"name"`
	Component string `json:"component"`
	// Variants are the variants of the CRD with this change; empty if the CRD has no variants.
	Variants []string `json:"variants,omitempty"`
	Change   Change   `json:"change"`
	// VersionsAdded are the newly served versions. VersionsRemoved are the versions that are no longer served.
	VersionsAdded   []string `json:"versionsAdded,omitempty"`
	VersionsRemoved []string `json:"versionsRemoved,omitempty"`
	// VersionsDeprecated are the newly deprecated versions.
	VersionsDeprecated []string `json:"versionsDeprecated,omitempty"`
	// Storage contains the old and the new storage version if they differ.
	Storage []string `json:"storage,omitempty"`
	// Scope contains the old and the new scope if they differ.
	Scope []string `json:"scope,omitempty"`
	// Schema contains the changes to the schemas.
	Schema []schema.Change `json:"schema,omitempty"`
	// Breaking is set if valid objects or working clients may break.
	Breaking bool `json:"breaking"`
}

// compareDefinition adds the API changes of a CRD.
func (c *Result) compareDefinition(object ObjectChange, a, b *manifest.Manifest) {
	if !isCRD(a) && !isCRD(b) {
		return
	}
	d := DefinitionChange{Name: object.Object.Name, Component: object.Component, Change: object.Change}
	if object.Variant != "" {
		d.Variants = []string{object.Variant}
	}
	switch {
	case !isCRD(a):
		d.VersionsAdded = sets.List(servedVersions(b))
	case !isCRD(b):
		d.VersionsRemoved = sets.List(servedVersions(a))
		// If other variants stay, clusters with those variants keep the API.
		d.Breaking = object.Change == Deleted || object.Change == Orphaned
	default:
		d.compare(a, b)
		if len(d.VersionsAdded)+len(d.VersionsRemoved)+len(d.VersionsDeprecated)+len(d.Storage)+len(d.Scope)+len(d.Schema) == 0 {
			return
		}
	}
	c.addDefinition(d)
}

// addDefinition adds a change. If another variant has the same change, it adds the variant to that change.
func (c *Result) addDefinition(d DefinitionChange) {
	for i := range c.Definitions {
		other := &c.Definitions[i]
		variants := other.Variants
		if other.Name != d.Name || len(variants) == 0 || len(d.Variants) == 0 {
			continue
		}
		other.Variants = d.Variants
		equal := reflect.DeepEqual(*other, d)
		if other.Variants = variants; equal {
			other.Variants = append(other.Variants, d.Variants...)
			return
		}
	}
	if d.Breaking {
		c.Totals.BreakingAPIs++
	}
	c.Definitions = append(c.Definitions, d)
}

func isCRD(m *manifest.Manifest) bool { return m != nil && m.Is(crdGroup, crdKind) && !m.Tombstone() }

func (d *DefinitionChange) compare(a, b *manifest.Manifest) {
	before, after := servedVersions(a), servedVersions(b)
	d.VersionsAdded, d.VersionsRemoved = sets.List(after.Difference(before)), sets.List(before.Difference(after))
	if x, y := storageVersion(a), storageVersion(b); x != y {
		d.Storage = []string{x, y}
	}
	scope := func(m *manifest.Manifest) string {
		s, _, _ := unstructured.NestedString(m.Object.Object, "spec", "scope")
		return s
	}
	if x, y := scope(a), scope(b); x != y {
		d.Scope = []string{x, y}
	}
	old, now := versionsOf(a), versionsOf(b)
	for _, name := range unionKeys(old, now) {
		x, y := old[name], now[name]
		if y.Fields == nil {
			continue
		}
		if x.Fields == nil {
			d.compareAdded(old[storageVersion(a)], y)
			continue
		}
		if y.Fields["deprecated"] == true && x.Fields["deprecated"] != true {
			d.VersionsDeprecated = append(d.VersionsDeprecated, name)
		}
		d.Schema = append(d.Schema, schema.Compare(name, x.Schema(), y.Schema())...)
	}
	d.Breaking = len(d.VersionsRemoved)+len(d.Scope) > 0 ||
		slices.ContainsFunc(d.Schema, func(c schema.Change) bool { return c.Breaking })
}

// compareAdded compares the schemas of an added version and of the version in which the earlier release stores objects. No object and no
// client uses the added version yet, so no difference is breaking.
func (d *DefinitionChange) compareAdded(stored, added definition.Version) {
	if stored.Fields == nil || !added.Served {
		return
	}
	for _, change := range schema.Compare(added.Name, stored.Schema(), added.Schema()) {
		change.Breaking = false
		d.Schema = append(d.Schema, change)
	}
}

func versionsOf(m *manifest.Manifest) map[string]definition.Version {
	out := map[string]definition.Version{}
	for _, v := range definition.Versions(m.Object.Object) {
		out[v.Name] = v
	}
	return out
}

func servedVersions(m *manifest.Manifest) sets.Set[string] {
	out := sets.New[string]()
	for name, v := range versionsOf(m) {
		if v.Served {
			out.Insert(name)
		}
	}
	return out
}

func storageVersion(m *manifest.Manifest) string {
	for name, v := range versionsOf(m) {
		if v.Storage {
			return name
		}
	}
	return ""
}

func texts(value any) sets.Set[string] {
	out := sets.New[string]()
	list, _ := value.([]any)
	for _, item := range list {
		if text, ok := item.(string); ok {
			out.Insert(text)
		}
	}
	return out
}

// GateChange is a feature gate that differs between the releases.
type GateChange struct {
	Name string `json:"name"`
	// Change is added or removed if only one of the releases has the gate.
	Change Change `json:"change"`
	// Clusters maps each profile/feature set with a different state to the old and the new state: `enabled`, `disabled` or `unknown`.
	Clusters map[string][2]string `json:"clusters"`
}

// compareGates compares the FeatureGate manifests of two releases.
func compareGates(before, after *side) []GateChange {
	old, now := before.gates(), after.gates()
	var out []GateChange
	for _, name := range unionKeys(old, now) {
		change := GateChange{Name: name, Change: Changed, Clusters: map[string][2]string{}}
		switch {
		case old[name] == nil:
			change.Change = Added
		case now[name] == nil:
			change.Change = Removed
		}
		for _, cluster := range unionKeys(old[name], now[name]) {
			if x, y := cmp.Or(old[name][cluster], "unknown"), cmp.Or(now[name][cluster], "unknown"); x != y {
				change.Clusters[cluster] = [2]string{x, y}
			}
		}
		if len(change.Clusters) > 0 {
			out = append(out, change)
		}
	}
	return out
}

// gates maps each gate to its state in each cluster. It applies to the release's own major version.
func (s *side) gates() map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, m := range s.manifests {
		enabled, disabled := inclusion.FeatureGates(m)
		if len(enabled)+len(disabled) == 0 || !inclusion.ForMajor(m, s.major()) {
			continue
		}
		for _, cluster := range inclusion.FeatureGateClusters(m) {
			for state, gates := range map[string][]string{"enabled": enabled, "disabled": disabled} {
				for _, name := range gates {
					if out[name] == nil {
						out[name] = map[string]string{}
					}
					out[name][cluster.String()] = state
				}
			}
		}
	}
	return out
}
