package preview

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Op says what would happen to a field.
type Op string

const (
	// Added: the field is not there yet.
	Added Op = "added"
	// Modified: the field would have another value.
	Modified Op = "modified"
	// Reordered: a list would have the same entries in another order; old and new list their keys.
	Reordered Op = "reordered"
	// Removed: the field would be gone.
	Removed Op = "removed"
)

// Field is one difference between an object and what it would become.
type Field struct {
	Op Op `json:"op"`
	// Path reads like `spec.template.spec.containers[name="x"].image`: entries of a list are named by their keys where
	// the API says that these identify them (`[="x"]` where the entry itself does), else by their position in the list
	// as it would be, or, for entries that would be removed, in the list as it is.
	Path string `json:"path"`
	// Old and New are the values; nil where there is none, and where Hidden.
	Old any `json:"old,omitempty"`
	New any `json:"new,omitempty"`
	// Hidden: the values are secret and not kept.
	Hidden bool `json:"hidden,omitempty"`
}

// Compare returns the differences between an object and what it would become, in the order of their paths, lists in
// their own order. What the API server keeps about an object (metadata.managedFields, resourceVersion, generation, uid,
// creationTimestamp, selfLink) and its status are left aside, and null is as good as absent. Something that is there on
// one side only is one difference, however much it holds.
//
// Which entries of two lists belong together is read from the managedFields of both objects, where the API server names
// the entries of a list by the keys of its schema; a list of which these say nothing is compared in its order. The values
// of a Secret are hidden, and so is the copy of them that kubectl keeps in an annotation.
func Compare(before, after *unstructured.Unstructured) []Field {
	c := comparer{secret: isSecret(after.GroupVersionKind())}
	trees := fieldTrees(before)
	trees = append(trees, fieldTrees(after)...)
	c.object("", strip(before.Object), strip(after.Object), trees)
	return c.fields
}

func isSecret(gvk schema.GroupVersionKind) bool { return gvk.Group == "" && gvk.Kind == "Secret" }

// strip returns the object without what is not compared; nothing is changed in place.
func strip(object map[string]any) map[string]any {
	object = maps.Clone(object)
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, field := range []string{
			"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid",
		} {
			delete(metadata, field)
		}
		object["metadata"] = metadata
	}
	return object
}

type comparer struct {
	secret bool
	fields []Field
}

func (c *comparer) add(op Op, path string, before, after any) {
	f := Field{Op: op, Path: path, Old: before, New: after}
	if c.hidden(path) {
		f.Old, f.New, f.Hidden = nil, nil, true
	}
	c.fields = append(c.fields, f)
}

// lastApplied is where `kubectl apply` keeps a copy of what it was given.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func (c *comparer) hidden(path string) bool {
	if !c.secret {
		return false
	}
	return strings.HasPrefix(path, "data") || strings.HasPrefix(path, "stringData") ||
		strings.HasPrefix(path, join("metadata.annotations", lastApplied))
}

func (c *comparer) value(path string, before, after any, trees fieldSets) {
	oldMap, wasMap := before.(map[string]any)
	newMap, isMap := after.(map[string]any)
	oldList, wasList := before.([]any)
	newList, isList := after.([]any)
	switch {
	case reflect.DeepEqual(before, after):
	case wasMap && isMap,
		// The maps of a Secret are taken apart to their ends, so that every value in them has a path that tells whether
		// it is hidden.
		c.secret && (wasMap && after == nil || before == nil && isMap):
		c.object(path, oldMap, newMap, trees)
	case before == nil:
		c.add(Added, path, nil, after)
	case after == nil:
		c.add(Removed, path, before, nil)
	case wasList && isList:
		c.list(path, oldList, newList, trees)
	default:
		c.add(Modified, path, before, after)
	}
}

func (c *comparer) object(path string, before, after map[string]any, trees fieldSets) {
	names := make(map[string]bool, len(before)+len(after))
	for name := range before {
		names[name] = true
	}
	for name := range after {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c.value(join(path, name), before[name], after[name], trees.field(name))
	}
}

func (c *comparer) list(path string, before, after []any, trees fieldSets) {
	identify := trees.identify()
	oldItems, unique := itemsOf(before, identify)
	newItems, uniqueToo := itemsOf(after, identify)
	if identify == nil || !unique || !uniqueToo {
		c.positions(path, before, after)
		return
	}
	for _, key := range oldItems.keys {
		if _, stays := newItems.byKey[key]; !stays {
			c.add(Removed, path+key, oldItems.byKey[key], nil)
		}
	}
	for _, key := range newItems.keys {
		c.value(path+key, oldItems.byKey[key], newItems.byKey[key], trees.item(key))
	}
	stayed := slices.DeleteFunc(slices.Clone(oldItems.keys), func(key string) bool { return newItems.byKey[key] == nil })
	remain := slices.DeleteFunc(slices.Clone(newItems.keys), func(key string) bool { return oldItems.byKey[key] == nil })
	if !slices.Equal(stayed, remain) {
		c.add(Reordered, path, stayed, remain)
	}
}

// positions compares lists whose entries nothing identifies. Entries that are the same are matched, as many as can be
// without changing their order, so that one that is inserted does not make all behind it look changed; those between
// them are compared one by one.
func (c *comparer) positions(path string, before, after []any) {
	i, j := 0, 0
	gap := func(toI, toJ int) {
		for ; i < toI && j < toJ; i, j = i+1, j+1 {
			c.value(fmt.Sprintf("%s[%d]", path, j), before[i], after[j], nil)
		}
		for ; i < toI; i++ {
			c.value(fmt.Sprintf("%s[%d]", path, i), before[i], nil, nil)
		}
		for ; j < toJ; j++ {
			c.value(fmt.Sprintf("%s[%d]", path, j), nil, after[j], nil)
		}
	}
	for _, match := range matches(before, after) {
		gap(match[0], match[1])
		i, j = i+1, j+1
	}
	gap(len(before), len(after))
}

// maxMatched bounds the table that matching takes; longer lists are compared from both ends only.
const maxMatched = 1 << 20

// matches returns the positions of entries that are the same in both lists: a longest common subsequence.
func matches(before, after []any) [][2]int {
	var first, last [][2]int
	from, toI, toJ := 0, len(before), len(after)
	for ; from < min(toI, toJ) && reflect.DeepEqual(before[from], after[from]); from++ {
		first = append(first, [2]int{from, from})
	}
	for ; from < min(toI, toJ) && reflect.DeepEqual(before[toI-1], after[toJ-1]); toI, toJ = toI-1, toJ-1 {
		last = append(last, [2]int{toI - 1, toJ - 1})
	}
	slices.Reverse(last)
	n, m := toI-from, toJ-from
	if n*m == 0 || n*m > maxMatched {
		return append(first, last...)
	}
	// length[i][j] is how many match from there on.
	length := make([][]int32, n+1)
	for i := range length {
		length[i] = make([]int32, m+1)
	}
	same := func(i, j int) bool { return reflect.DeepEqual(before[from+i], after[from+j]) }
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if same(i, j) {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < n && j < m; {
		switch {
		case same(i, j):
			first = append(first, [2]int{from + i, from + j})
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
	return append(first, last...)
}

// items are the entries of a list by what identifies them.
type items struct {
	keys  []string
	byKey map[string]any
}

// itemsOf reports also whether every entry is identified, and by something that no other has.
func itemsOf(list []any, identify func(any) string) (items, bool) {
	out := items{byKey: make(map[string]any, len(list))}
	if identify == nil {
		return out, false
	}
	for _, item := range list {
		key := identify(item)
		if _, twice := out.byKey[key]; twice || key == "" || item == nil {
			return items{}, false
		}
		out.keys = append(out.keys, key)
		out.byKey[key] = item
	}
	return out, true
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_$-]+$`)

// join appends the name of a field to a path.
func join(path, name string) string {
	switch {
	case !plainName.MatchString(name):
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// fieldSets are the sets of fields that the writers of an object own, below one path (Kubernetes' FieldsV1: "f:" begins
// the name of a field, "k:" the keys of a list's entry, "v:" an entry that is a plain value). What they are read for is
// the entries of lists.
type fieldSets []map[string]any

// fieldTrees returns the sets of an object's managedFields that are of its own API version. One that cannot be read
// tells nothing.
func fieldTrees(object *unstructured.Unstructured) fieldSets {
	var trees fieldSets
	for _, entry := range managedFields(object) {
		var tree map[string]any
		if entry.APIVersion != object.GetAPIVersion() || entry.FieldsV1 == nil {
			continue
		}
		if json.NewDecoder(entry.FieldsV1.GetRawReader()).Decode(&tree) == nil && len(tree) > 0 {
			trees = append(trees, tree)
		}
	}
	return trees
}

func managedFields(object *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	if object == nil {
		return nil
	}
	return object.GetManagedFields()
}

// field returns the sets below a field.
func (s fieldSets) field(name string) fieldSets {
	return s.below(func(key string) bool { return key == "f:"+name })
}

// item returns the sets below an entry of a list, given what identify says of it.
func (s fieldSets) item(key string) fieldSets {
	return s.below(func(step string) bool {
		keys, ok := strings.CutPrefix(step, "k:")
		if !ok {
			return false
		}
		var values map[string]any
		return json.Unmarshal([]byte(keys), &values) == nil && keyText(values, slices.Sorted(maps.Keys(values))) == key
	})
}

func (s fieldSets) below(matches func(step string) bool) fieldSets {
	var out fieldSets
	for _, tree := range s {
		for step, child := range tree {
			if below, ok := child.(map[string]any); ok && len(below) > 0 && matches(step) {
				out = append(out, below)
			}
		}
	}
	return out
}

// identify returns what tells the entries of a list apart, as it stands in a path; nil for a list whose entries have no
// identity but their position, or of which the sets say nothing.
func (s fieldSets) identify() func(item any) string {
	for _, tree := range s {
		for step := range tree {
			if keys, ok := strings.CutPrefix(step, "k:"); ok {
				var values map[string]any
				if json.Unmarshal([]byte(keys), &values) != nil {
					continue
				}
				names := slices.Sorted(maps.Keys(values))
				return func(item any) string {
					fields, _ := item.(map[string]any)
					return keyText(fields, names)
				}
			}
			if strings.HasPrefix(step, "v:") {
				return func(item any) string { return "[=" + text(item) + "]" }
			}
		}
	}
	return nil
}

// keyText reads like `[port=80,protocol="TCP"]`; it is empty if none of the keys is there.
func keyText(fields map[string]any, names []string) string {
	parts := make([]string, 0, len(names))
	for _, name := range names {
		if value, ok := fields[name]; ok {
			parts = append(parts, name+"="+text(value))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// text words a value for people: JSON, but nothing in it can bend a terminal.
func text(value any) string {
	if s, ok := value.(string); ok {
		return strconv.Quote(s)
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return strconv.Quote(fmt.Sprint(value))
	}
	return printable(strings.TrimSuffix(out.String(), "\n"))
}
