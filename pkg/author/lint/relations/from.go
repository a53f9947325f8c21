package relations

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/payload"
)

// checkFrom compares the CRDs with the CRDs in the release that clusters update from.
func (c check) checkFrom() {
	if c.from == nil {
		return
	}
	deleted := map[string]*source.Object{} // CRDs, by name
	for _, o := range c.Objects {
		if o.IsCRD() && o.Tombstone() {
			deleted[o.Object.GetName()] = o
		}
	}
	kinds := slices.SortedFunc(maps.Keys(c.from.CRDs), func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	for _, gk := range kinds {
		before := c.from.CRDs[gk]
		if after := c.CRDs[gk]; len(after) > 0 {
			c.checkStorageVersion(before, after)
			c.checkDroppedVersions(before, after)
			continue
		}
		first := slices.MinFunc(before, func(a, b *source.Definition) int { return strings.Compare(a.CRD.File, b.CRD.File) })
		name := first.CRD.Object.GetName()
		if tombstone := deleted[name]; tombstone != nil {
			tombstone.FindAs(finding.Info, &c.Found, "kind-dropped", nil, "deletes the CRD %s of %s and all objects of the kind, including those of users", name, c.from.Name())
			continue
		}
		c.Found.File("kind-dropped", payload.ReleaseDir, 0, "%s has the CRD %s, but this release neither contains nor deletes it: the CRD and its objects stay in clusters",
			c.from.Name(), name)
	}
}

// checkStorageVersion finds CRDs with a changed storage version, if some cluster gets both CRDs. A CRD without the earlier storage version
// is an error, because the API server rejects it.
func (c check) checkStorageVersion(before, after []*source.Definition) {
	for _, d := range after {
		for _, old := range before {
			if old.Storage == "" || d.Storage == "" || old.Storage == d.Storage || !meet(old, d) {
				continue
			}
			at := source.Path{"spec", "versions"}
			back := ""
			if _, known := old.Versions[d.Storage]; !known {
				back = fmt.Sprintf("; once %s is stored, clusters cannot go back to %s, which lacks it", d.Storage, c.from.Name())
			}
			if _, kept := d.Versions[old.Storage]; kept {
				d.CRD.Find("storage-version-change", at, "stores %s, but %s stores %s: objects stay in version %s until they are rewritten%s",
					d.Storage, c.from.Name(), old.Storage, old.Storage, back)
			} else {
				d.CRD.FindAs(finding.Error, &d.CRD.In.Found, "storage-version-change", at, "lacks %s, which %s stores: the API server rejects the CRD while its status.storedVersions lists %s%s",
					old.Storage, c.from.Name(), old.Storage, back)
			}
			break
		}
	}
}

// checkDroppedVersions finds CRDs without a version that the earlier release lists and some cluster may store. checkStorageVersion reports
// the version that the earlier release stores.
func (c check) checkDroppedVersions(before, after []*source.Definition) {
	for _, d := range after {
		listed, reported := sets.New[string](), sets.New[string]()
		for _, old := range before {
			if meet(old, d) {
				listed.Insert(slices.Collect(maps.Keys(old.Versions))...)
				reported.Insert(old.Storage)
			}
		}
		if dropped := sets.List(listed.Difference(reported).Difference(sets.KeySet(d.Versions))); len(dropped) > 0 {
			d.CRD.Find("version-dropped", source.Path{"spec", "versions"}, "lacks %s, which %s lists: the API server rejects the CRD where status.storedVersions still lists it",
				printable.List(dropped, printable.Few), c.from.Name())
		}
	}
}

// meet reports whether some cluster gets a CRD of the earlier release and one of the later release.
func meet(old, d *source.Definition) bool {
	return len(inclusion.Gates{}.Clusters(old.CRD.Reach(), d.CRD.Reach())) > 0
}
