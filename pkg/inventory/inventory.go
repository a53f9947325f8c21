// Package inventory keeps what releases have applied to a cluster: one record for each object, with which release
// brought or confirmed it last, and which release no longer names it. An Inventory is a value; a Store reads it from
// ConfigMaps and writes it there, so that it outlives the operator. What is recorded, and whether an object that no
// release names any more is deleted, is for others to decide.
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

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
)

// Content stands for what was sent for an object: the first half of a SHA-256. The zero value stands for nothing.
type Content [16]byte

// ContentOf shortens the hash of what is sent for a manifest.
func ContentOf(sum [sha256.Size]byte) Content { return Content(sum[:len(Content{})]) }

// String is the hash in hexadecimal, empty for the zero value.
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

// Record is what is kept of one object.
type Record struct {
	ID manifest.ID `json:"object"`
	// Version is the API version it was applied at, without the group: what it takes to find it again.
	Version string `json:"version"`
	// Content stands for what was sent.
	Content Content `json:"content,omitzero"`
	// Fields stands for what was ours of the object after that.
	Fields ownership.Hash `json:"fields,omitzero"`
	// Release is the version of the release that applied it, or found it as it should be, last.
	Release string `json:"release"`
	// Reached says that its gate was met in that release.
	Reached bool `json:"reached,omitempty"`
	// Since is when its gate was first found unmet in that release, in a row, by the object's own account if it gives one;
	// kept for ClusterOperators alone, whose troubles have a limit of time.
	Since time.Time `json:"since,omitzero"`
	// Dropped is the version of the first release that names it no more; empty while a manifest names it.
	Dropped string `json:"dropped,omitempty"`
	// File and Document name the manifest that it was applied by, which is its place in the order of the release. File is
	// empty in what versions wrote that did not record it.
	File     string `json:"file,omitempty"`
	Document int    `json:"document,omitempty"`
}

// Inventory is what a cluster has of releases. It is a value: the functions of this package return another one and
// leave their argument as it was. The zero value is that of a cluster that has nothing.
type Inventory struct {
	// Release and Digest say which release it was planned for last. Digest is that of the release image, may be empty.
	Release, Digest string
	// Records are the objects that were applied and not yet forgotten.
	Records map[manifest.ID]Record
	// Kinds and Namespaces are where objects of the release may be, also those not applied yet; sorted. What records
	// name beyond that is added by Store.Save.
	Kinds      []schema.GroupKind
	Namespaces []string
}

// Plan returns the inventory of a cluster that turns to the release of that version. named holds every object that a
// manifest of the release names, whether the cluster includes the manifest or not, and tombstones too: only what no
// manifest speaks of is dropped. Records of what is not named are marked as dropped by version, unless an earlier release
// dropped them, whose mark stays; the marks of those that are named again are taken off. No record is added or removed.
//
// Kinds and Namespaces become those of named: an inventory that is saved before the release is applied says where its
// objects will be. The digest is kept if the release stays the same and is empty otherwise; the caller sets it.
func Plan(inv Inventory, named map[manifest.ID]bool, version string) Inventory {
	next := Inventory{Release: version, Records: make(map[manifest.ID]Record, len(inv.Records))}
	if inv.Release == version {
		next.Digest = inv.Digest
	}
	for id, r := range inv.Records {
		switch {
		case named[id]:
			r.Dropped = ""
		case r.Dropped == "":
			r.Dropped = version
		}
		next.Records[id] = r
	}
	scope := newScope(Inventory{})
	for id, ok := range named {
		if ok {
			scope.add(id)
		}
	}
	next.Kinds, next.Namespaces = scope.sorted()
	return next
}

// With returns the inventory with these records, each in the place of an earlier one of the same object.
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

// Forget returns the inventory without the records of these objects, which are gone from the cluster or given up.
func (inv Inventory) Forget(ids ...manifest.ID) Inventory {
	inv.Records = maps.Clone(inv.Records)
	for _, id := range ids {
		delete(inv.Records, id)
	}
	return inv
}

// Orphans returns the records of objects that no manifest names any more, sorted by group, kind, namespace and name.
func (inv Inventory) Orphans() []Record {
	var orphans []Record
	for _, r := range inv.Records {
		if r.Dropped != "" {
			orphans = append(orphans, r)
		}
	}
	slices.SortFunc(orphans, func(a, b Record) int { return Compare(a.ID, b.ID) })
	return orphans
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

// newScope starts with what an inventory says beside its records.
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
