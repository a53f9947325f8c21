// Package inventory records the objects that releases have applied to a cluster. Each record contains the release that last applied or
// confirmed the object, and the release that dropped it. An Inventory is a value. A Store reads and writes it in ConfigMaps, so it survives
// the operator. Callers decide which objects to record, and whether to delete an object that the release no longer contains.
package inventory

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Content identifies the applied content of an object: the first half of a SHA-256. The zero value means none.
type Content [16]byte

// ContentOf shortens the hash of a manifest's content.
func ContentOf(sum [sha256.Size]byte) Content { return Content(sum[:len(Content{})]) }

// String returns the hash in hexadecimal, or "" for the zero value.
func (c Content) String() string { return ownership.Hash(c).String() }

// MarshalText implements encoding.TextMarshaler.
func (c Content) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Content) UnmarshalText(text []byte) error {
	*c = Content{}
	if len(text) == 0 {
		return nil
	}
	if hex.DecodedLen(len(text)) != len(c) {
		return fmt.Errorf("content %q: want %d hexadecimal digits", text, hex.EncodedLen(len(c)))
	}
	if _, err := hex.Decode(c[:], text); err != nil {
		return fmt.Errorf("content %q: %w", text, err)
	}
	return nil
}

// Record is the record of one object.
type Record struct {
	ID manifest.ID `json:"object"`
	// Version is the API version without the group. It is needed to find the object.
	Version string `json:"version"`
	// Content identifies the applied content.
	Content Content `json:"content,omitzero"`
	// Fields is the hash of our fields in the object after that apply.
	Fields ownership.Hash `json:"fields,omitzero"`
	// UID, Time and Generation come from the response to the last apply; for Time see ownership.Time. ResourceVersion also comes from it,
	// but is set only for objects without a generation. Earlier versions of the operator recorded none of the four, so UID is empty in
	// their records.
	UID             types.UID `json:"uid,omitempty"`
	Time            int64     `json:"time,omitempty"`
	Generation      int64     `json:"generation,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Release is the version of the release that last applied the object, or last found it matching.
	Release string `json:"release"`
	// Reached is true if the gate has settled in that release.
	Reached bool `json:"reached,omitempty"`
	// Finished is true for a finished Job that the cluster deletes after some time. It must not run again, in whatever release. Earlier versions
	// of the operator did not record it.
	Finished bool `json:"finished,omitempty"`
	// CreateOnly is true if the last release with the object made it create-only, so it belongs to other clients. The object does not show
	// that if an earlier release applied it. Earlier versions of the operator did not record it.
	CreateOnly bool `json:"createOnly,omitempty"`
	// Since is the time since when the gate has been unsettled in that release, or the time in the object itself. Only ClusterOperators
	// have it, because their problems have a time limit.
	Since time.Time `json:"since,omitzero"`
	// Dropped is the version of the first release without the object; empty if the current release contains it.
	Dropped string `json:"dropped,omitempty"`
	// File and Document identify the object's last manifest, and so its place in the order of the release. Earlier versions of the operator
	// did not record File.
	File     string `json:"file,omitempty"`
	Document int    `json:"document,omitempty"`
}

// Inventory lists the objects of releases in a cluster. It is a value: functions return a new one and do not change their argument. The
// zero value is the inventory of an empty cluster.
type Inventory struct {
	// Release and Digest identify the release of the last plan. Digest is the digest of the release image; it may be empty.
	Release, Digest string
	// Records contains all applied objects that have not been forgotten.
	Records map[manifest.ID]Record
	// Kinds and Namespaces are sorted lists of where objects of the release may be, including those that are not applied yet. Store.Save
	// adds those of the records.
	Kinds      []schema.GroupKind
	Namespaces []string
}

// Plan returns the inventory at the start of a rollout to the release with the given version. named contains every manifest of the release
// by its object, including tombstones and manifests that the cluster excludes. skipped lists the files of the release that the operator
// could not read. All other recorded objects are marked as dropped by version, unless an earlier release already dropped them or their file
// was skipped. Objects that the release contains again lose their mark. Objects that it makes create-only get that mark here, because the
// rollout adds no record of an existing object. Plan adds no records, and removes only those that WithoutStrayNamespaces removes.
//
// Kinds and Namespaces are taken from named, so an inventory that is saved before the rollout shows where the objects will be. The digest
// is kept if the release stays the same. Otherwise it is empty, and the caller sets it.
func Plan(inv Inventory, named map[manifest.ID]*manifest.Manifest, skipped []string, version string) Inventory {
	next := Inventory{Release: version, Records: make(map[manifest.ID]Record, len(inv.Records))}
	if inv.Release == version {
		next.Digest = inv.Digest
	}
	known := inv.WithoutStrayNamespaces(func(id manifest.ID) bool { return named[id] == nil && named[withoutNamespace(id)] != nil })
	for id, r := range known.Records {
		switch {
		case named[id] != nil:
			r.Dropped, r.CreateOnly = "", r.CreateOnly || named[id].CreateOnly()
		case r.Dropped == "" && !slices.Contains(skipped, r.File):
			r.Dropped = version
		}
		next.Records[id] = r
	}
	scope := newScope(Inventory{})
	for id := range named {
		scope.add(id)
	}
	next.Kinds, next.Namespaces = scope.sorted()
	return next
}

// WithoutStrayNamespaces returns the inventory with records of cluster-scoped objects without namespaces. Earlier versions of the operator
// recorded the namespaces of their manifests. clusterScoped is called for each record. Of several records of one object, the current one
// stays.
func (inv Inventory) WithoutStrayNamespaces(clusterScoped func(manifest.ID) bool) Inventory {
	records := make(map[manifest.ID]Record, len(inv.Records))
	for _, r := range slices.SortedFunc(maps.Values(inv.Records), compareAge) {
		if clusterScoped(r.ID) {
			r.ID = withoutNamespace(r.ID)
		}
		records[r.ID] = r
	}
	inv.Records = records
	return inv
}

// compareAge orders records of one object: dropped records come first, and the current record comes last. That is the record of the last
// apply, and of those without a time the one without a namespace, because earlier versions of the operator wrote the others.
func compareAge(a, b Record) int {
	empty := func(text string) int { return -min(len(text), 1) }
	return cmp.Or(cmp.Compare(empty(a.Dropped), empty(b.Dropped)), cmp.Compare(a.Time, b.Time),
		cmp.Compare(empty(a.ID.Namespace), empty(b.ID.Namespace)), Compare(a.ID, b.ID))
}

func withoutNamespace(id manifest.ID) manifest.ID {
	id.Namespace = ""
	return id
}

// With returns the inventory with the given records, which replace earlier records of the same objects.
func (inv Inventory) With(records ...Record) Inventory {
	inv.Records = maps.Clone(inv.Records)
	if inv.Records == nil {
		inv.Records = make(map[manifest.ID]Record, len(records))
	}
	for _, r := range records {
		inv.Records[r.ID] = r
	}
	return inv
}

// Forget returns the inventory without the records of these objects, which no longer exist or are no longer managed.
func (inv Inventory) Forget(ids ...manifest.ID) Inventory {
	inv.Records = maps.Clone(inv.Records)
	for _, id := range ids {
		delete(inv.Records, id)
	}
	return inv
}

// Orphans returns the records of objects that the release no longer contains, in the order of their deletion: protected objects come last,
// because objects of their kinds keep CustomResourceDefinitions. Otherwise it is the order of Compare. A dropped record is no orphan if the
// release contains its object under another identity, for example in another API group.
func (inv Inventory) Orphans() []Record {
	contained := map[types.UID]bool{}
	for _, r := range inv.Records {
		if r.Dropped == "" && r.UID != "" {
			contained[r.UID] = true
		}
	}
	var orphans []Record
	for _, r := range inv.Records {
		if r.Dropped != "" && !contained[r.UID] {
			orphans = append(orphans, r)
		}
	}
	sorted.By(orphans, func(a, b Record) int { return Compare(a.ID, b.ID) })
	isProtected := func(r Record) bool { _, is := Protected(r.ID); return is }
	return slices.Concat(slices.DeleteFunc(slices.Clone(orphans), isProtected), slices.DeleteFunc(orphans, func(r Record) bool { return !isProtected(r) }))
}

// HasDropped reports whether the inventory has records of objects that the release no longer contains.
func (inv Inventory) HasDropped() bool {
	for _, r := range inv.Records {
		if r.Dropped != "" {
			return true
		}
	}
	return false
}

// Compare orders objects by group, kind, namespace and name.
func Compare(a, b manifest.ID) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// scope collects the kinds and namespaces of objects.
type scope struct {
	kinds      map[schema.GroupKind]bool
	namespaces map[string]bool
}

// newScope returns the kinds and namespaces of an inventory, without the kinds and namespaces of its records.
func newScope(inv Inventory) scope {
	s := scope{kinds: make(map[schema.GroupKind]bool, len(inv.Kinds)), namespaces: make(map[string]bool, len(inv.Namespaces))}
	for _, kind := range inv.Kinds {
		s.kinds[kind] = true
	}
	for _, namespace := range inv.Namespaces {
		s.namespaces[namespace] = true
	}
	return s
}

func (s scope) add(id manifest.ID) {
	s.kinds[schema.GroupKind{Group: id.Group, Kind: id.Kind}] = true
	if id.Namespace != "" {
		s.namespaces[id.Namespace] = true
	}
}

func (s scope) sorted() ([]schema.GroupKind, []string) {
	kinds := slices.SortedFunc(maps.Keys(s.kinds), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) })
	return kinds, slices.Sorted(maps.Keys(s.namespaces))
}
