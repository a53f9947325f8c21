package compare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/internal/difference"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	crdGroup = "apiextensions.k8s.io"
	crdKind  = "CustomResourceDefinition"
)

// compareObjects adds all differing objects.
func (c *Result) compareObjects(before, after *side) {
	for _, id := range unionIDs(before.byID, after.byID) {
		c.compareObject(before, after, id)
	}
	sorted.By(c.Objects, func(a, b ObjectChange) int {
		return cmp.Or(strings.Compare(a.Component, b.Component), cmp.Compare(a.place().File, b.place().File),
			cmp.Compare(a.place().Document, b.place().Document), strings.Compare(a.Object.String(), b.Object.String()),
			strings.Compare(a.Variant, b.Variant))
	})
	sorted.By(c.Definitions, func(a, b DefinitionChange) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), slices.Compare(a.Variants, b.Variants))
	})
	sorted.By(c.Roles, func(a, b RoleChange) int {
		return cmp.Or(strings.Compare(a.Component, b.Component), strings.Compare(a.Object.String(), b.Object.String()))
	})
}

// unionIDs returns the identities in both maps, sorted.
func unionIDs(a, b map[manifest.ID][]*manifest.Manifest) []manifest.ID {
	ids := slices.Collect(maps.Keys(a))
	for id := range b {
		if _, ok := a[id]; !ok {
			ids = append(ids, id)
		}
	}
	sorted.By(ids, func(a, b manifest.ID) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return ids
}

// place returns the object's place in the second release, or in the first if the second does not have the object.
func (o ObjectChange) place() Place {
	if o.To != nil {
		return *o.To
	}
	return *o.From
}

// compareObject compares the manifests of an object, which may have variants for different clusters.
func (c *Result) compareObject(before, after *side, id manifest.ID) {
	old, now := before.byID[id], after.byID[id]
	variants := len(old) > 1 || len(now) > 1
	for _, pair := range pairUp(old, now) {
		a, b := pair[0], pair[1]
		change := ObjectChange{Object: id, From: placeOf(a), To: placeOf(b)}
		if variants {
			change.Variant = variantOf(cmp.Or(b, a))
		}
		switch {
		case a == nil:
			change.Change, change.Component = Added, b.Component
			if b.Tombstone() {
				change.Change = Deleted
			}
		case b == nil:
			change.Change, change.Component = Removed, a.Component
			change.Clusters = orphanedIn(a, now)
			if len(change.Clusters) > 0 {
				change.Change = Orphaned
			}
			if a.Tombstone() {
				continue // dropping a deletion is not a difference
			}
		default:
			change.Change, change.Component = Changed, b.Component
			if !change.compare(a, b) {
				c.Totals.ObjectsSame++
				continue
			}
			if b.Tombstone() && !a.Tombstone() {
				change.Change, change.Fields, change.Inclusion = Deleted, nil, nil
			}
		}
		c.count(change)
		c.Objects = append(c.Objects, change)
		c.compareDefinition(change, a, b)
		c.compareRole(change, a, b)
	}
}

func (c *Result) count(o ObjectChange) {
	switch o.Change {
	case Added:
		c.Totals.ObjectsAdded++
	case Changed, Rebuilt:
		c.Totals.ObjectsChanged++
	case Removed:
		c.Totals.ObjectsRemoved++
	case Deleted:
		c.Totals.ObjectsDeleted++
	case Orphaned:
		c.Totals.ObjectsOrphaned++
	}
}

// pairUp pairs the variants of an object in this order: identical variants, variants for the same clusters, variants in the same file, and
// variants with common clusters. It pairs deletions with deletions first. The partner of an unpaired variant is nil.
func pairUp(old, now []*manifest.Manifest) [][2]*manifest.Manifest {
	var pairs [][2]*manifest.Manifest
	old, now = slices.Clone(old), slices.Clone(now)
	for _, match := range []func(a, b *manifest.Manifest) bool{
		func(a, b *manifest.Manifest) bool { return a.File == b.File && same(a, b) },
		func(a, b *manifest.Manifest) bool {
			return a.Tombstone() == b.Tombstone() && variantOf(a) == variantOf(b)
		},
		func(a, b *manifest.Manifest) bool { return a.Tombstone() == b.Tombstone() && a.File == b.File },
		func(a, b *manifest.Manifest) bool { return a.Tombstone() == b.Tombstone() && sharing(a, b) },
		func(a, b *manifest.Manifest) bool { return sharing(a, b) || len(old) == 1 && len(now) == 1 },
	} {
		for i := 0; i < len(old); {
			j := slices.IndexFunc(now, func(b *manifest.Manifest) bool { return match(old[i], b) })
			if j < 0 {
				i++
				continue
			}
			pairs = append(pairs, [2]*manifest.Manifest{old[i], now[j]})
			old, now = slices.Delete(old, i, i+1), slices.Delete(now, j, j+1)
		}
	}
	for _, a := range old {
		pairs = append(pairs, [2]*manifest.Manifest{a, nil})
	}
	for _, b := range now {
		pairs = append(pairs, [2]*manifest.Manifest{nil, b})
	}
	return pairs
}

// sharing reports whether some cluster would get both manifests.
func sharing(a, b *manifest.Manifest) bool {
	return len(inclusion.Gates{}.Clusters(inclusion.ReachOf(a), inclusion.ReachOf(b))) > 0
}

// variantOf describes the clusters of a manifest, such as `hypershift,ibm-cloud-managed; TechPreviewNoUpgrade; gates X`.
func variantOf(m *manifest.Manifest) string {
	r := inclusion.ReachOf(m)
	if r.Never() {
		return "for no cluster"
	}
	parts := []string{strings.Join(r.Profiles, ",")}
	if r.FeatureSets != nil {
		parts = append(parts, strings.Join(slices.Sorted(slices.Values(r.FeatureSets)), ","))
	}
	if len(r.Gates) > 0 {
		parts = append(parts, "gates "+strings.Join(slices.Sorted(slices.Values(r.Gates)), ","))
	}
	return strings.Join(parts, "; ")
}

func placeOf(m *manifest.Manifest) *Place {
	if m == nil {
		return nil
	}
	return &Place{File: m.File, Document: m.Document}
}

// orphanedIn returns the clusters that get the object from the first release, but neither get it nor delete it in the second. It ignores
// gates.
func orphanedIn(m *manifest.Manifest, now []*manifest.Manifest) []string {
	if m.Tombstone() {
		return nil
	}
	var out []string
	reach := inclusion.ReachOf(m)
	for _, profile := range reach.Profiles {
		for _, set := range inclusion.KnownFeatureSets() {
			cluster := inclusion.Cluster{Profile: profile, FeatureSet: set}
			if reach.Has(cluster) && !slices.ContainsFunc(now, func(b *manifest.Manifest) bool { return inclusion.ReachOf(b).Has(cluster) }) {
				out = append(out, cluster.String())
			}
		}
	}
	return out
}

// compare adds the differences and reports whether there are any.
func (o *ObjectChange) compare(a, b *manifest.Manifest) bool {
	if x, y := a.Object.GetAPIVersion(), b.Object.GetAPIVersion(); x != y {
		o.APIVersions = []string{x, y}
	}
	if x, y := groupOf(a), groupOf(b); x != y {
		o.Runlevels = []string{x, y}
	}
	if !same(a, b) {
		o.split(difference.Objects(compared(a), compared(b), difference.Options{
			Keys: listKeys{}, Secret: a.Is("", "Secret") || b.Is("", "Secret"),
		}))
	}
	return len(o.APIVersions)+len(o.Runlevels)+len(o.Inclusion)+len(o.Fields) > 0 || !same(a, b)
}

func groupOf(m *manifest.Manifest) string { return fmt.Sprintf("%02d/%s", m.Runlevel, m.Component) }

// compared returns the object without the fields that are compared separately: apiVersion and the schemas of a CRD.
func compared(m *manifest.Manifest) map[string]any {
	object := maps.Clone(m.Object.Object)
	delete(object, "apiVersion")
	if !m.Is(crdGroup, crdKind) {
		return object
	}
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return object
	}
	spec = maps.Clone(spec)
	versions, _ := spec["versions"].([]any)
	versions = slices.Clone(versions)
	for i, entry := range versions {
		if fields, ok := entry.(map[string]any); ok {
			fields = maps.Clone(fields)
			delete(fields, "schema")
			versions[i] = fields
		}
	}
	spec["versions"] = versions
	object["spec"] = spec
	return object
}

// split separates annotations that control how the object is applied from other fields.
func (o *ObjectChange) split(fields []difference.Field) {
	for _, f := range fields {
		if strings.HasPrefix(f.Path, "metadata.annotations[") && slices.ContainsFunc(inclusionKeys(), func(key string) bool {
			return strings.HasPrefix(f.Path, `metadata.annotations["`+key)
		}) {
			o.Inclusion = append(o.Inclusion, f)
		} else {
			o.Fields = append(o.Fields, f)
		}
	}
}

func inclusionKeys() []string {
	return []string{
		api.IncludePrefix, api.ExcludePrefix, api.FeatureSetAnnotation, api.FeatureGateAnnotation, api.MajorVersionAnnotation,
		api.CapabilityAnnotation, api.CreateOnlyAnnotation, api.DeleteAnnotation, api.OnImmutableAnnotation,
	}
}

// listKeys identifies list entries by common key fields, if their values are unique in both lists. Manifests have no schema that defines
// the keys.
type listKeys struct{}

// Field implements difference.Keys. The same keys apply everywhere.
func (k listKeys) Field(string) difference.Keys { return k }

// Item implements difference.Keys.
func (k listKeys) Item(string) difference.Keys { return k }

// Identify implements difference.Keys.
func (k listKeys) Identify(before, after []any) func(item any) string {
	for _, key := range []string{"name", "mountPath", "containerPort", "port", "key", "type", "ip"} {
		if names(before, key) && names(after, key) {
			return func(item any) string {
				fields, _ := item.(map[string]any)
				return difference.KeyText(fields, []string{key})
			}
		}
	}
	if k.words(before) && k.words(after) {
		return func(item any) string { return "[=" + difference.Text(item) + "]" }
	}
	return nil
}

// names reports whether the key has a unique value in each entry.
func names(list []any, key string) bool {
	seen := map[any]bool{}
	for _, item := range list {
		fields, _ := item.(map[string]any)
		switch value := fields[key].(type) {
		case string, int64, float64:
			if seen[value] {
				return false
			}
			seen[value] = true
		default:
			return false
		}
	}
	return true
}

// words reports whether the entries are distinct texts. Such lists are compared as sets. Command arguments are sequences, but the
// differences are listed in their order.
func (listKeys) words(list []any) bool {
	seen := map[string]bool{}
	for _, item := range list {
		text, ok := item.(string)
		if !ok || seen[text] {
			return false
		}
		seen[text] = true
	}
	return true
}
