// Package difference compares two objects field by field. It takes decoded JSON and returns Fields in a stable order.
// Callers select the objects, filter the result and decide who may see it.
package difference

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cluster-version/cvo/internal/printable"
)

// Op is the kind of a change.
type Op string

const (
	// Added means that the old object lacks the field.
	Added Op = "added"
	// Modified means that the field has another value.
	Modified Op = "modified"
	// Reordered means that the list has the same entries in another order. Old and New list the common keys.
	Reordered Op = "reordered"
	// Removed means that the new object lacks the field.
	Removed Op = "removed"
)

// Field is one difference between an old and a new object.
type Field struct {
	Op Op `json:"op"`
	// Path is a path such as `spec.template.spec.containers[name="x"].image`. It identifies list entries by their keys where the API
	// defines keys, or by `[="x"]` where the entry itself is the key. It identifies other entries by their position in the new list, and
	// removed entries by their position in the old list.
	Path string `json:"path"`
	// Old and New are the values; nil if the object lacks the field, or if Hidden is set.
	Old any `json:"old,omitempty"`
	New any `json:"new,omitempty"`
	// Hidden means that the values are secret and not stored.
	Hidden bool `json:"hidden,omitempty"`
}

// Options configure a comparison.
type Options struct {
	// Keys match the entries of two lists. If nil, lists are compared by position.
	Keys Keys
	// Secret hides the values in data and stringData, and kubectl's copy of them in an annotation.
	Secret bool
}

// Keys match list entries of an object below one path.
type Keys interface {
	// Field returns the keys below a field; nil if none are known.
	Field(name string) Keys
	// Item returns the keys below a list entry; key is the result of Identify.
	Item(key string) Keys
	// Identify returns a function that returns an entry's key, in the form used in paths. It returns nil for lists whose entries are
	// identified only by position.
	Identify(before, after []any) func(item any) string
}

func field(keys Keys, name string) Keys {
	if keys == nil {
		return nil
	}
	return keys.Field(name)
}

func item(keys Keys, key string) Keys {
	if keys == nil {
		return nil
	}
	return keys.Item(key)
}

func identifyBy(keys Keys, before, after []any) func(item any) string {
	if keys == nil {
		return nil
	}
	return keys.Identify(before, after)
}

// Objects returns the differences between two objects, sorted by path, with lists in their own order. Null counts as absent. A value that
// only one object has is a single difference, even if it is large.
func Objects(before, after map[string]any, o Options) []Field {
	c := comparer{secret: o.Secret}
	c.object("", before, after, o.Keys)
	return c.fields
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

// lastApplied is the annotation with a copy of the object that `kubectl apply` received.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func (c *comparer) hidden(path string) bool {
	if !c.secret {
		return false
	}
	return strings.HasPrefix(path, "data") || strings.HasPrefix(path, "stringData") ||
		strings.HasPrefix(path, Join("metadata.annotations", lastApplied))
}

func (c *comparer) value(path string, before, after any, keys Keys) {
	oldMap, wasMap := before.(map[string]any)
	newMap, isMap := after.(map[string]any)
	oldList, wasList := before.([]any)
	newList, isList := after.([]any)
	switch {
	case reflect.DeepEqual(before, after):
	case wasMap && isMap,
		// The maps of a Secret are compared down to single values, because the path of each value decides whether it is
		// hidden.
		c.secret && (wasMap && after == nil || before == nil && isMap):
		c.object(path, oldMap, newMap, keys)
	case before == nil:
		c.add(Added, path, nil, after)
	case after == nil:
		c.add(Removed, path, before, nil)
	case wasList && isList:
		c.list(path, oldList, newList, keys)
	default:
		c.add(Modified, path, before, after)
	}
}

func (c *comparer) object(path string, before, after map[string]any, keys Keys) {
	names := make(map[string]bool, len(before)+len(after))
	for name := range before {
		names[name] = true
	}
	for name := range after {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c.value(Join(path, name), before[name], after[name], field(keys, name))
	}
}

func (c *comparer) list(path string, before, after []any, keys Keys) {
	identify := identifyBy(keys, before, after)
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
		c.value(path+key, oldItems.byKey[key], newItems.byKey[key], item(keys, key))
	}
	stayed := slices.DeleteFunc(slices.Clone(oldItems.keys), func(key string) bool { return newItems.byKey[key] == nil })
	remain := slices.DeleteFunc(slices.Clone(newItems.keys), func(key string) bool { return oldItems.byKey[key] == nil })
	if !slices.Equal(stayed, remain) {
		c.add(Reordered, path, stayed, remain)
	}
}

// positions compares lists whose entries have no key. It matches as many equal entries as possible without changing
// their order, so that an inserted entry does not change all entries after it. The entries between matches are compared
// one by one.
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

// maxMatched limits the size of the matching table. Longer lists are matched only at both ends.
const maxMatched = 1 << 20

// matches returns the positions of entries that are equal in both lists: a longest common subsequence.
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
	// length[i][j] is the number of matches from positions i and j onward.
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

// items are the entries of a list by key.
type items struct {
	keys  []string
	byKey map[string]any
}

// itemsOf returns the entries by key. It also reports whether each entry has a key and all keys are distinct.
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

// Join appends the name of a field to a path.
func Join(path, name string) string {
	switch {
	case !plainName.MatchString(name):
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// KeyText returns the key of a list entry from the named fields, such as `[port=80,protocol="TCP"]`. It is empty if the entry has none of
// them.
func KeyText(fields map[string]any, names []string) string {
	parts := make([]string, 0, len(names))
	for _, name := range names {
		if value, ok := fields[name]; ok {
			parts = append(parts, name+"="+Text(value))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// Text formats a value for people: JSON without control characters.
func Text(value any) string {
	if s, ok := value.(string); ok {
		return strconv.Quote(s)
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return strconv.Quote(fmt.Sprint(value))
	}
	return printable.Text(strings.TrimSuffix(out.String(), "\n"))
}
