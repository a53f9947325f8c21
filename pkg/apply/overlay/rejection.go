package overlay

import (
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Rejection is one field that the API server rejects, with the class of the error.
type Rejection struct {
	Field string
	Type  metav1.CauseType
}

// Value is a value of the live object that the body lacks.
type Value struct {
	Path fieldpath.Path
	// Member means that the value and a value of the body are members of a union, so the object can have only one of them.
	Member bool
	// Empty means that the apply removes all content of the value, but another owner keeps the empty field.
	Empty bool
	// Shells are the paths of empty objects inside the value. Like the value itself, they remain if another manager owns them.
	Shells []fieldpath.Path
	// Owners lists the other field managers that own the value or a part of it, sorted.
	Owners []string
}

// Removable reports whether the manifest may remove the value, because it is a union member or has no owner.
func (v Value) Removable() bool {
	return v.Empty || len(v.Path) > 1 && (v.Member || len(v.Owners) == 0)
}

// Field returns the path without the leading dot.
func (v Value) Field() string { return strings.TrimPrefix(v.Path.String(), ".") }

// String returns the field and its owners, such as "spec.a of kubectl, argocd".
func (v Value) String() string {
	if len(v.Owners) == 0 {
		return v.Field()
	}
	return v.Field() + " of " + strings.Join(v.Owners, ", ")
}

// Paths returns the paths of values and their shells.
func Paths(values []Value) (paths []fieldpath.Path) {
	for _, v := range values {
		paths = append(append(paths, v.Path), v.Shells...)
	}
	return paths
}

// value returns the live value at a place.
func (o *Overlay) value(p place) Value {
	v := Value{Path: p.path, Member: o.isMember(p.path), Empty: manifest.IsEmpty(o.merged(p))}
	if v.Empty {
		v.Shells = shells(p)
	}
	for _, owner := range ownership.Holders(o.entries, p.path) {
		if owner != ownership.BeforeFirstApply { // the writer is unknown
			v.Owners = append(v.Owners, owner)
		}
	}
	return v
}

// shells returns the paths of the objects below a place.
func shells(p place) (paths []fieldpath.Path) {
	for _, name := range p.names() {
		if next := p.field(name); isObject(next.live) {
			paths = append(append(paths, next.path), shells(next)...)
		}
	}
	return paths
}

// Named returns the values that rejections name: the innermost list item or the field on the path of the rejected field, and union members
// next to it or below it. A rejection "not found", such as a mount without its volume, may be a consequence of another rejection, so it
// counts only if no other rejection names a value.
func (o *Overlay) Named(list []Rejection) []Value {
	missing := func(r Rejection) bool { return r.Type == metav1.CauseTypeFieldValueNotFound }
	for _, part := range [][]Rejection{
		slices.DeleteFunc(slices.Clone(list), missing),
		slices.DeleteFunc(slices.Clone(list), func(r Rejection) bool { return !missing(r) }),
	} {
		var found []place
		for _, r := range part {
			found = append(found, o.named(r)...)
		}
		if len(found) > 0 {
			return o.values(found)
		}
	}
	return nil
}

// Near returns all values around the rejected fields that the body lacks: fields of every object on their paths, items of their lists, and
// the values that they duplicate.
func (o *Overlay) Near(list []Rejection) []Value {
	var found []place
	for _, r := range list {
		places := o.places(r.Field)
		for i, p := range slices.Backward(places) {
			found = append(found, p.foreignFields()...)
			if p.isItem() {
				for _, other := range o.items(places[i-1]) {
					if other.foreign() {
						found = append(found, other)
					}
				}
			}
		}
		if r.Type == metav1.CauseTypeFieldValueDuplicate && places != nil {
			found = append(found, o.duplicates(places)...)
		}
	}
	return o.values(found)
}

// values returns the values at places without duplicates and without metadata. A place inside another one is redundant.
func (o *Overlay) values(found []place) []Value {
	var out []Value
	for i, p := range found {
		redundant := func(other place) bool {
			return len(other.path) < len(p.path) && other.path.Equals(p.path[:len(other.path)])
		}
		repeated := func(other place) bool { return other.path.Equals(p.path) }
		if isServers(p) || slices.ContainsFunc(found, redundant) || slices.ContainsFunc(found[:i], repeated) {
			continue
		}
		out = append(out, o.value(p))
	}
	return out
}

// isServers reports whether the manifest may not remove the value at a place: the object itself, its kind, its metadata or its status.
func isServers(p place) bool {
	return len(p.path) == 0 || slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, *p.path[0].FieldName)
}

// externalNames maps the server's internal field names to the names in the API.
var externalNames = map[string]string{
	"spec.conversion.webhookClientConfig":      "spec.conversion.webhook",
	"spec.conversion.conversionReviewVersions": "spec.conversion.webhook",
}

// places returns the places along the path of a rejected field, or nil if the object has none of them.
func (o *Overlay) places(field string) []place {
	if external, ok := externalNames[field]; ok {
		field = external
	}
	places := o.walk(field)
	if len(places) < 2 || isServers(places[1]) {
		return nil
	}
	return places
}

func (o *Overlay) named(r Rejection) []place {
	places := o.places(r.Field)
	if places == nil {
		return nil
	}
	for _, p := range slices.Backward(places) {
		if p.isItem() && p.foreign() {
			return []place{p}
		}
	}
	last := places[len(places)-1]
	if last.foreign() {
		for _, outer := range slices.Backward(places[1:]) { // an object becomes empty with its last value
			if outer.foreign() && manifest.IsEmpty(o.merged(outer)) {
				last = outer
			}
		}
		return o.partOf(last)
	}
	var members []place
	for _, around := range places[max(len(places)-2, 1):] {
		for _, p := range around.foreignFields() {
			if o.isMember(p.path) {
				members = append(members, p)
			}
		}
	}
	return members
}

// partOf returns a named place, or only the fields in it that have no owner if another manager owns the rest.
func (o *Overlay) partOf(p place) []place {
	v := o.value(p)
	if len(p.path) == 1 && !v.Empty {
		return nil // never the whole spec
	}
	if v.Removable() {
		return []place{p}
	}
	var free []place
	for _, field := range p.foreignFields() {
		if o.value(field).Removable() {
			free = append(free, field)
		}
	}
	if free != nil {
		return free
	}
	return []place{p}
}

// containerLists matches the lists of a pod that share a namespace for names.
var containerLists = regexp.MustCompile(`\.(c|initC|ephemeralC)ontainers$`)

// duplicates returns the foreign values that equal the given field of a list item, in the same list or a similar one.
func (o *Overlay) duplicates(places []place) []place {
	last := places[len(places)-1]
	item := -1
	for i, p := range places {
		if p.isItem() {
			item = i
		}
	}
	if item < 0 || item == len(places)-1 {
		return nil
	}
	within := last.path[len(places[item].path):]
	pattern := places[item-1].pattern
	same := func(other string) bool {
		return other == pattern || containerLists.ReplaceAllString(other, "") == containerLists.ReplaceAllString(pattern, "") &&
			containerLists.MatchString(other) && containerLists.MatchString(pattern)
	}
	var found []place
	o.each(o.root(), func(list, other place) {
		if !same(list.pattern) || other.path.Equals(places[item].path) {
			return
		}
		at := other
		for _, step := range within {
			if step.FieldName == nil {
				return
			}
			at = at.field(*step.FieldName)
		}
		switch {
		case !at.foreign() || !sameValue(at.live, last.body):
		case other.foreign():
			found = append(found, other)
		default:
			found = append(found, at)
		}
	})
	return found
}

// foreignFields returns the fields below a place that the body lacks.
func (s place) foreignFields() (fields []place) {
	if len(s.path) == 0 || isList(s.live) {
		return nil
	}
	for _, name := range s.names() {
		if next := s.field(name); next.foreign() {
			fields = append(fields, next)
		}
	}
	return fields
}

func isList(v any) bool {
	_, ok := v.([]any)
	return ok
}
