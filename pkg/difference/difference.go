// Package difference compares two objects field by field. It takes what decoding JSON gives and returns Fields, in an
// order that does not change; what is compared, what of it is left aside and who may see it is for the caller.
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

// Options say how objects are compared.
type Options struct {
	// Keys tell which entries of two lists belong together; nil compares lists in their order.
	Keys Keys
	// Secret hides the values of data and stringData, and the copy of them that kubectl keeps in an annotation.
	Secret bool
}

// Keys know the lists of an object below one path.
type Keys interface {
	// Field is what is known below a field.
	Field(name string) Keys
	// Item is what is known below an entry of a list, given what Identify says of it.
	Item(key string) Keys
	// Identify returns what tells the entries of two lists apart, as it stands in a path; nil for lists whose entries
	// have no identity but their position.
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

// Objects returns the differences between two objects in the order of their paths, lists in their own order. Null is as
// good as absent. Something that is there on one side only is one difference, however much it holds.
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

// lastApplied is where `kubectl apply` keeps a copy of what it was given.
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
		// The maps of a Secret are taken apart to their ends, so that every value in them has a path that tells whether
		// it is hidden.
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

// KeyText names an entry of a list by some of its fields: `[port=80,protocol="TCP"]`; empty if it has none of them.
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

// Text words a value for people: JSON, but nothing in it can bend a terminal.
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
	return Printable(strings.TrimSuffix(out.String(), "\n"))
}
