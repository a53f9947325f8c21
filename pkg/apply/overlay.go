package apply

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/cluster-version/cvo/pkg/ownership"
)

// overlay is the object that a server-side apply makes and then has validated: the one that is there, with the body laid
// over it, less what only we had set and the body does not. A refusal names its fields, and those of lists by position,
// which neither the body nor the object alone can tell. Which lists consist of items with keys is read from managedFields:
// no schema is needed.
type overlay struct {
	live, body map[string]any
	// keys are the names of the fields that tell the items of a list apart, by the list's pattern.
	keys map[string][]string
	// own is what our entry has, others what any other has.
	own, others *fieldpath.Set
}

// spot is a place in an overlay.
type spot struct {
	path fieldpath.Path
	// pattern is the path without what tells items apart: `.spec.ports[].name`.
	pattern        string
	live, body     any
	inLive, inBody bool
}

// foreign reports whether the object has the place, and the manifest does not.
func (s spot) foreign() bool { return s.inLive && !s.inBody }

func (s spot) isItem() bool { return len(s.path) > 0 && s.path[len(s.path)-1].Key != nil }

func lay(body map[string]any, live *unstructured.Unstructured) *overlay {
	o := &overlay{live: live.Object, body: body, keys: map[string][]string{}}
	o.own, o.others = ownership.Split(live.GetManagedFields())
	for _, set := range []*fieldpath.Set{o.own, o.others} {
		for path := range set.All() {
			pattern := ""
			for _, step := range path {
				if step.FieldName != nil {
					pattern += "." + *step.FieldName
					continue
				}
				if _, known := o.keys[pattern]; step.Key != nil && !known {
					for _, field := range *step.Key {
						o.keys[pattern] = append(o.keys[pattern], field.Name)
					}
				}
				pattern += "[]"
			}
		}
	}
	return o
}

func (o *overlay) root() spot {
	return spot{live: o.live, body: o.body, inLive: true, inBody: true}
}

// field is the place of a field, which may be nowhere.
func (s spot) field(name string) spot {
	next := spot{path: append(slices.Clone(s.path), fieldName(name)), pattern: s.pattern + "." + name}
	next.live, next.inLive = lookup(s.live, name)
	next.body, next.inBody = lookup(s.body, name)
	return next
}

func lookup(object any, name string) (any, bool) {
	fields, _ := object.(map[string]any)
	found, ok := fields[name]
	return found, ok
}

// names are those of the fields at a place.
func (s spot) names() []string {
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

// entry is an item of one of the two lists that are merged.
type entry struct {
	key  fieldpath.PathElement
	id   string
	item any
}

// entries returns the items of a list, which has keys.
func entries(list any, keys []string) (all []entry, byID map[string]any) {
	items, _ := list.([]any)
	byID = map[string]any{}
	for _, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		var key value.FieldList
		for _, name := range keys {
			v, ok := fields[name]
			if !ok && name == "protocol" { // the one key of a built-in kind that has a default
				v = "TCP"
			}
			key = append(key, value.Field{Name: name, Value: value.NewValueInterface(v)})
		}
		key.Sort()
		e := entry{key: fieldpath.PathElement{Key: &key}, item: item}
		e.id = e.key.String()
		all, byID[e.id] = append(all, e), item
	}
	return all, byID
}

// items returns the items of a list with keys, in the order in which structured-merge-diff has them: mostly that of the
// body, with what the object has besides where it stood; nil for anything else.
func (o *overlay) items(list spot) []spot {
	keys := o.keys[list.pattern]
	if keys == nil {
		return nil
	}
	live, inLive := entries(list.live, keys)
	body, inBody := entries(list.body, keys)
	var shared []string
	for _, e := range body {
		if _, ok := inLive[e.id]; ok {
			shared = append(shared, e.id)
		}
	}
	var all []spot
	merged := map[string]bool{}
	add := func(e entry) {
		merged[e.id] = true
		if len(shared) > 0 && shared[0] == e.id {
			shared = shared[1:]
		}
		next := spot{path: append(slices.Clone(list.path), e.key), pattern: list.pattern + "[]"}
		next.live, next.inLive = inLive[e.id]
		next.body, next.inBody = inBody[e.id]
		if next.inBody || !o.goes(next.path) {
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
			l++ // it comes where the body has it
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

// goes reports whether what is at a path, and the body lacks, is removed by the apply: it is ours alone.
func (o *overlay) goes(path fieldpath.Path) bool {
	return ownership.Reaches(o.own, path) && !ownership.Reaches(o.others, path)
}

// walk follows a field as a refusal names it, `spec.ports[1].name` or `data[a.b]`, as far as there is something. It
// returns the places on the way, the object itself first, and the steps that lead nowhere.
func (o *overlay) walk(field string) (way []spot, rest []string) {
	at := o.root()
	way = []spot{at}
	steps := fieldSteps(field)
	for i, step := range steps {
		name, position := strings.CutPrefix(step, "[")
		next := at.field(name)
		for _, other := range at.names() {
			if !next.inLive && !next.inBody && strings.EqualFold(other, name) { // some refusals name fields of Go
				next = at.field(other)
			}
		}
		if n, err := strconv.Atoi(name); position && err == nil {
			if items := o.items(at); n >= 0 && n < len(items) {
				next = items[n]
			}
		}
		if !next.inLive && !next.inBody || next.foreign() && o.goes(next.path) {
			return way, steps[i:]
		}
		way, at = append(way, next), next
	}
	return way, nil
}

// fieldSteps divides the name of a field. What stood in brackets keeps the first.
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

// each calls visit for every item of every list with keys.
func (o *overlay) each(at spot, visit func(list, item spot)) {
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

// merged returns what the overlay has at a place.
func (o *overlay) merged(at spot) any {
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
		if !next.inBody && o.goes(next.path) {
			continue
		}
		value := o.merged(next)
		if next.foreign() && isEmpty(value) && !isEmpty(next.live) {
			continue // of what has lost all of its entries null is left, and that is taken over
		}
		object[name] = value
	}
	return object
}

// replaced reports whether an object is replaced as a whole, because its schema says so.
func (o *overlay) replaced(at spot) bool {
	fields, _ := at.live.(map[string]any)
	return len(fields) > 0 && ownership.Whole(o.own.Union(o.others), at.path)
}

func isObject(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

// sameValue compares values as they are in JSON.
func sameValue(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
