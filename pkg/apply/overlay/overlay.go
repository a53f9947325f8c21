// Package overlay computes the object that a server-side apply builds and validates, which is the live object with the body laid over it.
// If the API server rejects that object, the overlay finds the values near the rejected field that the body lacks, and determines which of
// them belong to a union. It sends nothing and does not interpret the text of the rejection.
package overlay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Overlay is the object that a server-side apply builds and validates: the live object with the body laid over it, without the fields that
// only we had set and that the body lacks. A rejection names fields of this object, and list items by position, which neither the body nor
// the live object alone has. managedFields show which lists have items with keys, so a schema is needed only if they are empty, or if keys
// have defaults.
type Overlay struct {
	kind       schema.GroupVersionKind
	live, body map[string]any
	lists      *Lists
	// keys maps the pattern of a list to the names of the fields that identify its items. A set has none.
	keys map[string][]string
	// own contains the fields of our entry, others those of all other entries.
	own, others *fieldpath.Set
	entries     []metav1.ManagedFieldsEntry
	dropped     func(fieldpath.Path) bool
}

// place is a location in an overlay.
type place struct {
	path fieldpath.Path
	// pattern is the path without the keys of items: `.spec.ports[].name`.
	pattern        string
	lists          *Lists
	live, body     any
	inLive, inBody bool
}

// foreign reports whether the live object has a value at the place and the manifest does not.
func (s place) foreign() bool { return s.inLive && !s.inBody }

func (s place) isItem() bool { return len(s.path) > 0 && s.path[len(s.path)-1].FieldName == nil }

// Lay returns the overlay of a body on a live object of a kind.
func Lay(kind schema.GroupVersionKind, body map[string]any, live *unstructured.Unstructured) *Overlay {
	o := &Overlay{kind: kind, entries: live.GetManagedFields(), live: live.Object, body: body, keys: map[string][]string{
		".metadata.finalizers": {}, ".metadata.ownerReferences": {"uid"},
	}}
	o.own, o.others = ownership.Split(live.GetManagedFields())
	for _, set := range []*fieldpath.Set{o.own, o.others} {
		for path := range set.All() {
			pattern := ""
			for _, step := range path {
				if step.FieldName != nil {
					pattern += "." + *step.FieldName
					continue
				}
				if _, known := o.keys[pattern]; !known && step.Index == nil { // an index shows no keys
					o.keys[pattern] = keysOf(step)
				}
				pattern += "[]"
			}
		}
	}
	return o
}

// root returns the place of the whole object.
func (o *Overlay) root() place {
	return place{lists: o.lists, live: o.live, body: o.body, inLive: true, inBody: true}
}

// field returns the place of a field, which may not exist.
func (s place) field(name string) place {
	next := place{path: append(slices.Clone(s.path), fieldName(name)), pattern: s.pattern + "." + name, lists: s.lists.field(name)}
	next.live, next.inLive = lookup(s.live, name)
	next.body, next.inBody = lookup(s.body, name)
	return next
}

func lookup(object any, name string) (any, bool) {
	fields, _ := object.(map[string]any)
	found, ok := fields[name]
	return found, ok
}

// names returns the names of the fields at a place.
func (s place) names() []string {
	var names []string
	for _, object := range []any{s.live, s.body} {
		fields, _ := object.(map[string]any)
		for name := range fields {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// entry is an item of one of the two merged lists.
type entry struct {
	step fieldpath.PathElement
	id   string
}

// entries returns the items of a list with keys or, without keys, of a set. fit is false if the value is not such a list.
func entries(list any, keys []string, defaults map[string]any) (all []entry, byID map[string]any, fit bool) {
	items, ok := list.([]any)
	byID = map[string]any{}
	for _, item := range items {
		step, ok := stepTo(item, keys, defaults)
		if !ok {
			return nil, nil, false
		}
		e := entry{step: step, id: step.String()}
		all, byID[e.id] = append(all, e), item
	}
	return all, byID, ok || list == nil
}

// items returns the items of a list with keys or a set in the order of structured-merge-diff. This is mostly the order in the body, with the
// live object's other items at their old positions. It returns nil for other values, also if only one of the two is such a list.
func (o *Overlay) items(list place) []place {
	keys, lists := o.keys[list.pattern], cmp.Or(list.lists, &Lists{})
	if keys == nil && len(o.entries) == 0 {
		keys = lists.keys
	}
	if keys == nil {
		return nil
	}
	live, inLive, fits := entries(list.live, keys, lists.defaults)
	body, inBody, fit := entries(list.body, keys, lists.defaults)
	if !fits || !fit {
		return nil
	}
	var shared []string
	for _, e := range body {
		if _, ok := inLive[e.id]; ok {
			shared = append(shared, e.id)
		}
	}
	var all []place
	merged := map[string]bool{}
	add := func(e entry) {
		merged[e.id] = true
		if len(shared) > 0 && shared[0] == e.id {
			shared = shared[1:]
		}
		next := place{path: append(slices.Clone(list.path), e.step), pattern: list.pattern + "[]", lists: lists.items}
		next.live, next.inLive = inLive[e.id]
		next.body, next.inBody = inBody[e.id]
		if next.inBody || !o.isRemoved(next) {
			all = append(all, next)
		}
	}
	for l, b := 0, 0; l < len(live) || b < len(body); {
		wanted := false
		if l < len(live) {
			_, wanted = inBody[live[l].id]
		}
		switch {
		case l < len(live) && b < len(body) && live[l].id == body[b].id:
			add(body[b])
			l, b = l+1, b+1
		case l < len(live) && b < len(body) && wanted && len(shared) > 0 && shared[0] != live[l].id:
			l++ // it follows the order of the body
		case l < len(live) && !wanted:
			add(live[l])
			l++
		case l < len(live) && merged[live[l].id]:
			l++
			if b < len(body) {
				add(body[b])
				b++
			}
		default:
			add(body[b])
			b++
		}
	}
	return all
}

// Drop also removes the values for which dropped returns true and that the body lacks. It asks for the fields of an object, the items of a
// list with keys and the members of a set, which may have other writers, and not for the whole object, list or set.
func (o *Overlay) Drop(dropped func(fieldpath.Path) bool) { o.dropped = dropped }

// isRemoved reports whether the apply removes a value that the body lacks, because only we own it.
func (o *Overlay) isRemoved(at place) bool {
	if o.dropped != nil && (at.isItem() || !isObject(at.live) && o.items(at) == nil) && o.dropped(at.path) {
		return true
	}
	return ownership.Reaches(o.own, at.path) && !ownership.Reaches(o.others, at.path)
}

// walk follows a field name in a rejection, such as `spec.ports[1].name` or `data[a.b]`, as far as the field exists. It returns the places
// along the path, starting with the object itself.
func (o *Overlay) walk(field string) (places []place) {
	at := o.root()
	places = []place{at}
	for _, step := range fieldSteps(field) {
		name, position := strings.CutPrefix(step, "[")
		next := at.field(name)
		for _, other := range at.names() {
			if !next.inLive && !next.inBody && strings.EqualFold(other, name) { // some rejections use Go field names
				next = at.field(other)
			}
		}
		if n, err := strconv.Atoi(name); position && err == nil {
			if items := o.items(at); n >= 0 && n < len(items) {
				next = items[n]
			}
		}
		if !next.inLive && !next.inBody || next.foreign() && o.isRemoved(next) {
			return places
		}
		places, at = append(places, next), next
	}
	return places
}

// fieldSteps splits a field name into steps. A step in brackets keeps the opening bracket.
func fieldSteps(field string) (steps []string) {
	for field != "" {
		if rest, ok := strings.CutPrefix(field, "["); ok {
			name, after, _ := strings.Cut(rest, "]")
			steps, field = append(steps, "["+name), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(field, ".[")
		if end < 0 {
			return append(steps, field)
		}
		steps = append(steps, field[:end])
		field = strings.TrimPrefix(field[end:], ".")
	}
	return steps
}

// each calls visit for every item of every list with keys and every set.
func (o *Overlay) each(at place, visit func(list, item place)) {
	for _, name := range at.names() {
		next := at.field(name)
		if items := o.items(next); items != nil {
			for _, item := range items {
				visit(next, item)
				o.each(item, visit)
			}
			continue
		}
		o.each(next, visit)
	}
}

// ChangesWhole reports whether the body has another value for a list or map that only we own, and that we own as a whole. If the next API
// version owns the entries separately, the server does not know that they were ours, so an apply would not remove those that the body lacks.
func (o *Overlay) ChangesWhole() bool { return o.changesWhole(o.root()) }

func (o *Overlay) changesWhole(at place) bool {
	if items := o.items(at); items != nil {
		return slices.ContainsFunc(items, o.changesWhole)
	}
	_, isList := at.live.([]any)
	if (isList || isObject(at.live)) && at.inBody && ownership.Whole(o.own, at.path) {
		return !ownership.Reaches(o.others, at.path) && !sameValue(at.live, at.body)
	}
	return slices.ContainsFunc(at.names(), func(name string) bool {
		next := at.field(name)
		return next.inLive && next.inBody && o.changesWhole(next)
	})
}

// Object returns the object that the API server validates.
func (o *Overlay) Object() any { return o.merged(o.root()) }

// merged returns the overlay's value at a place.
func (o *Overlay) merged(at place) any {
	if items := o.items(at); items != nil {
		list := make([]any, len(items))
		for i, item := range items {
			list[i] = o.merged(item)
		}
		return list
	}
	switch {
	case at.inBody && (!isObject(at.body) || o.replaced(at)):
		return at.body
	case !at.inBody && !isObject(at.live):
		return at.live
	}
	object := map[string]any{}
	for _, name := range at.names() {
		next := at.field(name)
		if !next.inBody && o.isRemoved(next) {
			continue
		}
		value := o.merged(next)
		if next.foreign() && manifest.IsEmpty(value) && !manifest.IsEmpty(next.live) {
			continue // an emptied map would become null, so takeOver removes it
		}
		object[name] = value
	}
	return object
}

// replaced reports whether the schema requires an object to be replaced as a whole.
func (o *Overlay) replaced(at place) bool {
	fields, _ := at.live.(map[string]any)
	return len(fields) > 0 && ownership.Whole(o.own.Union(o.others), at.path)
}

func isObject(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

// sameValue compares the JSON forms of values.
func sameValue(a, b any) bool {
	one, err := json.Marshal(a)
	other, otherErr := json.Marshal(b)
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}
