// Package schema compares two schemas of one version of a CustomResourceDefinition. It takes schemas in OpenAPI v3 and returns the changes
// by field: stricter rules, more tolerant rules, and changes that break existing objects or clients.
package schema

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/internal/difference"
	"github.com/cluster-version/cvo/internal/sorted"
)

// Change is a change to a CRD's schema.
type Change struct {
	Version string `json:"version"`
	// Path is the path of the field, such as spec.items[].name. Map entries are [*].
	Path string `json:"path"`
	// What is the kind of change: added, removed, tightened, loosened or changed.
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
	// Breaking is set if a valid object may become invalid or lose data.
	Breaking bool `json:"breaking"`
}

// Compare returns the changes between two schemas of a version, sorted by path. It ignores descriptions and examples.
func Compare(version string, before, after map[string]any) []Change {
	s := comparer{version: version}
	s.compare("", before, after, 0)
	sorted.By(s.changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return s.changes
}

// comparer collects the differences between two schemas.
type comparer struct {
	version string
	changes []Change
}

func (s *comparer) add(path, what string, breaking bool, format string, args ...any) {
	s.changes = append(s.changes, Change{
		Version: s.version, Path: cmp.Or(path, "."), What: what, Breaking: breaking, Detail: fmt.Sprintf(format, args...),
	})
}

// maxDepth exceeds the nesting that manifest parsing allows.
const maxDepth = 128

// compare compares two schemas of a field. It ignores descriptions and examples.
func (s *comparer) compare(path string, before, after map[string]any, depth int) {
	if depth > maxDepth || reflect.DeepEqual(before, after) {
		return
	}
	if x, y := typeOf(before), typeOf(after); x != y {
		s.add(path, "changed", true, "type %s → %s", x, y)
		return
	}
	s.requires(path, before, after)
	s.values(path, before, after)
	s.limits(path, before, after)
	s.rules(path, before, after)
	s.marks(path, before, after)
	old, now := child(before, "properties"), child(after, "properties")
	for _, name := range sets.List(sets.KeySet(old).Union(sets.KeySet(now))) {
		below := difference.Join(path, name)
		x, was := old[name].(map[string]any)
		y, is := now[name].(map[string]any)
		switch {
		case !was && is:
			s.add(below, "added", false, "%s", typeOf(y))
		case was && !is:
			s.add(below, "removed", true, "%s", typeOf(x))
		case was && is:
			s.compare(below, x, y, depth+1)
		}
	}
	for key, step := range map[string]string{"items": "[]", "additionalProperties": "[*]"} {
		if x, y := child(before, key), child(after, key); x != nil && y != nil {
			s.compare(path+step, x, y, depth+1)
		}
	}
}

func child(schema map[string]any, key string) map[string]any {
	fields, _ := schema[key].(map[string]any)
	return fields
}

func typeOf(schema map[string]any) string {
	switch t, _ := schema["type"].(string); {
	case t != "":
		return t
	case schema["x-kubernetes-int-or-string"] == true:
		return "integer or string"
	case schema["x-kubernetes-preserve-unknown-fields"] == true:
		return "anything"
	}
	return "unknown"
}

func (s *comparer) requires(path string, before, after map[string]any) {
	old, now := required(before), required(after)
	for _, name := range sets.List(now.Difference(old)) {
		// A new required field also breaks objects, unless it has a default.
		field, _ := child(after, "properties")[name].(map[string]any)
		s.add(difference.Join(path, name), "tightened", field["default"] == nil, "is required")
	}
	for _, name := range sets.List(old.Difference(now)) {
		if _, stays := child(after, "properties")[name]; stays {
			s.add(difference.Join(path, name), "loosened", false, "is no longer required")
		}
	}
}

func required(schema map[string]any) sets.Set[string] {
	names, _, _ := unstructured.NestedStringSlice(schema, "required") // none unless it is a list of names
	return sets.New(names...)
}

func (s *comparer) values(path string, before, after map[string]any) {
	old, hadEnum := before["enum"].([]any)
	now, hasEnum := after["enum"].([]any)
	gone, more := without(old, now), without(now, old)
	switch {
	case hadEnum && !hasEnum:
		s.add(path, "loosened", false, "any value, not only %s", difference.Text(old))
	case !hadEnum && hasEnum:
		s.add(path, "tightened", true, "only %s", difference.Text(now))
	default:
		if len(gone) > 0 {
			s.add(path, "tightened", true, "removed values: %s", difference.Text(gone))
		}
		if len(more) > 0 {
			s.add(path, "loosened", false, "new values: %s", difference.Text(more))
		}
	}
	if x, y := before["default"], after["default"]; !reflect.DeepEqual(x, y) {
		s.add(path, "changed", false, "default %s → %s", orNone(x), orNone(y))
	}
}

func orNone(v any) string {
	if v == nil {
		return "none"
	}
	return difference.Text(v)
}

// limits compares the limits for values.
func (s *comparer) limits(path string, before, after map[string]any) {
	for _, limit := range []struct {
		key   string
		upper bool
	}{
		{"maximum", true},
		{"maxLength", true},
		{"maxItems", true},
		{"maxProperties", true},
		{"minimum", false},
		{"minLength", false},
		{"minItems", false},
		{"minProperties", false},
	} {
		x, had := number(before[limit.key])
		y, has := number(after[limit.key])
		if had == has && x == y {
			continue
		}
		tighter := has && (!had || (limit.upper && y < x) || (!limit.upper && y > x))
		s.add(path, tightness(tighter), tighter, "%s %s → %s", limit.key, orNone(before[limit.key]), orNone(after[limit.key]))
	}
	for _, key := range []string{"pattern", "format", "multipleOf"} {
		if x, y := before[key], after[key]; !reflect.DeepEqual(x, y) {
			s.add(path, tightness(y != nil), y != nil, "%s %s → %s", key, orNone(x), orNone(y))
		}
	}
}

func tightness(tighter bool) string {
	if tighter {
		return "tightened"
	}
	return "loosened"
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// rules compares validation rules (x-kubernetes-validations).
func (s *comparer) rules(path string, before, after map[string]any) {
	rules := func(schema map[string]any) sets.Set[string] {
		out := sets.New[string]()
		list, _ := schema["x-kubernetes-validations"].([]any)
		for _, entry := range list {
			fields, _ := entry.(map[string]any)
			if rule, ok := fields["rule"].(string); ok {
				out.Insert(rule)
			}
		}
		return out
	}
	old, now := rules(before), rules(after)
	for _, rule := range sets.List(now.Difference(old)) {
		s.add(path, "tightened", true, "rule %s", difference.Text(rule))
	}
	for _, rule := range sets.List(old.Difference(now)) {
		s.add(path, "loosened", false, "rule removed: %s", difference.Text(rule))
	}
}

// marks compares the fields that determine how a value is stored and merged.
func (s *comparer) marks(path string, before, after map[string]any) {
	for _, mark := range []string{
		"nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
		"x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
	} {
		x, y := before[mark], after[mark]
		if reflect.DeepEqual(x, y) {
			continue
		}
		// Setting one of these two fields allows more values, so it is compatible. Removing it is not.
		lets := mark == "nullable" || mark == "x-kubernetes-preserve-unknown-fields"
		breaking := !lets || y != true
		s.add(path, "changed", breaking, "%s %s → %s", strings.TrimPrefix(mark, "x-kubernetes-"), orNone(x), orNone(y))
	}
}

// without returns the values in list that are not in other.
func without(list, other []any) []any {
	return slices.DeleteFunc(slices.Clone(list), func(v any) bool {
		return slices.ContainsFunc(other, func(w any) bool { return reflect.DeepEqual(v, w) })
	})
}
