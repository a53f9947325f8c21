package inspect

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/difference"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// DefinitionChange is what becomes of an API that a CRD brings.
type DefinitionChange struct {
	// Name is that of the CRD, such as clusterversions.config.openshift.io.
	Name      string `json:"name"`
	Component string `json:"component"`
	// Variants are those that change in the same way, where the CRD comes in variants.
	Variants []string `json:"variants,omitempty"`
	Change   Change   `json:"change"`
	// VersionsAdded are served now, VersionsRemoved are served no more.
	VersionsAdded   []string `json:"versionsAdded,omitempty"`
	VersionsRemoved []string `json:"versionsRemoved,omitempty"`
	// VersionsDeprecated are those that are deprecated now.
	VersionsDeprecated []string `json:"versionsDeprecated,omitempty"`
	// Storage are the storage versions of both, if they are not the same.
	Storage []string `json:"storage,omitempty"`
	// Scope is that of both, if it is not the same.
	Scope []string `json:"scope,omitempty"`
	// Schema are the changes of what objects may hold.
	Schema []SchemaChange `json:"schema,omitempty"`
	// Breaking: objects or clients that were right before may not be so any more.
	Breaking bool `json:"breaking"`
}

// SchemaChange is one change of a CRD's schema.
type SchemaChange struct {
	Version string `json:"version"`
	// Path reads like spec.items[].name; entries of maps are [*].
	Path string `json:"path"`
	// What became of the field: added, removed, tightened, loosened or changed.
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
	// Breaking: an object that was valid may not be so any more, or loses something.
	Breaking bool `json:"breaking"`
}

// compareDefinition tells what a changed CRD means for its API.
func (c *Comparison) compareDefinition(object ObjectChange, a, b *manifest.Manifest) {
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
		// A variant that is gone while others stay takes no API away from a cluster that has one of them.
		d.Breaking = object.Change == Deleted || object.Change == Orphaned
	default:
		d.compare(a, b)
		if len(d.VersionsAdded)+len(d.VersionsRemoved)+len(d.VersionsDeprecated)+len(d.Storage)+len(d.Scope)+len(d.Schema) == 0 {
			return
		}
	}
	c.addDefinition(d)
}

// addDefinition adds a change, or a variant to one that is the same otherwise.
func (c *Comparison) addDefinition(d DefinitionChange) {
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
		if x == nil || y == nil {
			continue
		}
		if y["deprecated"] == true && x["deprecated"] != true {
			d.VersionsDeprecated = append(d.VersionsDeprecated, name)
		}
		s := schemaComparer{version: name}
		s.compare("", schemaOf(x), schemaOf(y), 0)
		d.Schema = append(d.Schema, s.changes...)
	}
	d.Breaking = len(d.VersionsRemoved)+len(d.Scope) > 0 ||
		slices.ContainsFunc(d.Schema, func(s SchemaChange) bool { return s.Breaking })
}

func versionsOf(m *manifest.Manifest) map[string]map[string]any {
	out := map[string]map[string]any{}
	spec, _ := m.Object.Object["spec"].(map[string]any)
	list, _ := spec["versions"].([]any)
	for _, entry := range list {
		if fields, ok := entry.(map[string]any); ok {
			name, _ := fields["name"].(string)
			out[name] = fields
		}
	}
	return out
}

func servedVersions(m *manifest.Manifest) sets.Set[string] {
	out := sets.New[string]()
	for name, fields := range versionsOf(m) {
		if fields["served"] == true {
			out.Insert(name)
		}
	}
	return out
}

func storageVersion(m *manifest.Manifest) string {
	for name, fields := range versionsOf(m) {
		if fields["storage"] == true {
			return name
		}
	}
	return ""
}

func schemaOf(version map[string]any) map[string]any {
	schema, _ := version["schema"].(map[string]any)
	root, _ := schema["openAPIV3Schema"].(map[string]any)
	return root
}

// schemaComparer gathers what is different between two schemas.
type schemaComparer struct {
	version string
	changes []SchemaChange
}

func (s *schemaComparer) add(path, what string, breaking bool, format string, args ...any) {
	s.changes = append(s.changes, SchemaChange{
		Version: s.version, Path: cmp.Or(path, "."), What: what, Breaking: breaking, Detail: fmt.Sprintf(format, args...),
	})
}

// maxSchemaDepth is deeper than parsing lets a manifest nest.
const maxSchemaDepth = 128

// compare compares two schemas of one field. Descriptions and examples are left aside.
func (s *schemaComparer) compare(path string, before, after map[string]any, depth int) {
	if depth > maxSchemaDepth || reflect.DeepEqual(before, after) {
		return
	}
	if x, y := typeOf(before), typeOf(after); x != y {
		s.add(path, "changed", true, "type %s → %s", x, y)
		return
	}
	s.required(path, before, after)
	s.values(path, before, after)
	s.limits(path, before, after)
	s.rules(path, before, after)
	s.marks(path, before, after)
	old, now := child(before, "properties"), child(after, "properties")
	for _, name := range unionKeys(old, now) {
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
	if depth == 0 {
		slices.SortStableFunc(s.changes, func(a, b SchemaChange) int { return strings.Compare(a.Path, b.Path) })
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

func (s *schemaComparer) required(path string, before, after map[string]any) {
	old, now := texts(before["required"]), texts(after["required"])
	for _, name := range sets.List(now.Difference(old)) {
		// A field that is new and required is as much a demand as one that was there, unless the server fills it in.
		field, _ := child(after, "properties")[name].(map[string]any)
		s.add(difference.Join(path, name), "tightened", field["default"] == nil, "is required")
	}
	for _, name := range sets.List(old.Difference(now)) {
		if _, stays := child(after, "properties")[name]; stays {
			s.add(difference.Join(path, name), "loosened", false, "is not required any more")
		}
	}
}

func (s *schemaComparer) values(path string, before, after map[string]any) {
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
			s.add(path, "tightened", true, "values that are gone: %s", difference.Text(gone))
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

// limits compares numbers that bound values.
func (s *schemaComparer) limits(path string, before, after map[string]any) {
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

// rules compares validation by expression (x-kubernetes-validations).
func (s *schemaComparer) rules(path string, before, after map[string]any) {
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
		s.add(path, "loosened", false, "no more rule %s", difference.Text(rule))
	}
}

// marks compares what says how a field is stored and merged.
func (s *schemaComparer) marks(path string, before, after map[string]any) {
	for _, mark := range []string{
		"nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
		"x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
	} {
		x, y := before[mark], after[mark]
		if reflect.DeepEqual(x, y) {
			continue
		}
		// What lets more through breaks nothing when it comes, and does when it goes.
		lets := mark == "nullable" || mark == "x-kubernetes-preserve-unknown-fields"
		breaking := !lets || y != true
		s.add(path, "changed", breaking, "%s %s → %s", strings.TrimPrefix(mark, "x-kubernetes-"), orNone(x), orNone(y))
	}
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

// without are the values of a list that another one does not have.
func without(list, other []any) []any {
	return slices.DeleteFunc(slices.Clone(list), func(v any) bool {
		return slices.ContainsFunc(other, func(w any) bool { return reflect.DeepEqual(v, w) })
	})
}

// GateChange is a feature gate that is not the same in both releases, by what became of it.
type GateChange struct {
	Name string `json:"name"`
	// Change is added or removed if only one of the releases knows the gate.
	Change Change `json:"change"`
	// Clusters lead from profile/feature set to `enabled`, `disabled` or `unknown` in both, where that is not the same.
	Clusters map[string][2]string `json:"clusters"`
}

// compareGates compares what the FeatureGates of both releases say.
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

// gates lead from the name of a gate to what it is in each cluster, for the release's own major version.
func (s *side) gates() map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, m := range s.manifests {
		enabled, disabled := m.FeatureGates()
		if len(enabled)+len(disabled) == 0 || !m.ForMajor(s.major()) {
			continue
		}
		for _, cluster := range m.FeatureGateClusters() {
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
