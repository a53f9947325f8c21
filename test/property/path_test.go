package property

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// path leads to a value in an object. It consists of field names and, in brackets, list items. Items are identified by their keys
// ([name=main]) or by their value ([=a]).
type path []string

// parsePath parses the notation of the catalogue: names separated by dots, items in brackets, names that contain dots in braces.
func parsePath(text string) path {
	var p path
	for text != "" {
		switch text[0] {
		case '.':
			text = text[1:]
			continue
		case '[':
			end := strings.IndexByte(text, ']')
			p, text = append(p, text[:end+1]), text[end+1:]
		case '{':
			end := strings.IndexByte(text, '}')
			p, text = append(p, text[1:end]), text[end+1:]
		default:
			end := strings.IndexAny(text, ".[{")
			if end < 0 {
				end = len(text)
			}
			p, text = append(p, text[:end]), text[end:]
		}
	}
	return p
}

// String returns a readable text that differs for different paths.
func (p path) String() string {
	var b strings.Builder
	for i, step := range p {
		switch {
		case isItem(step):
			b.WriteString(step)
		case strings.ContainsAny(step, ".[]{}/"):
			b.WriteString("{" + step + "}")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

// pattern returns the path with the same step for all items of a list.
func (p path) pattern() string {
	out := make(path, len(p))
	for i, step := range p {
		out[i] = step
		if isItem(step) {
			out[i] = "[]"
		}
	}
	return out.String()
}

func (p path) join(step string) path { return append(slices.Clip(p), step) }

// within reports whether p equals outer or is below it.
func (p path) within(outer path) bool {
	return len(p) >= len(outer) && slices.Equal(p[:len(outer)], outer)
}

func isItem(step string) bool { return strings.HasPrefix(step, "[") }

// itemKeys returns the keys and values of a step that selects an item in a list of maps.
func itemKeys(step string) map[string]any {
	keys := map[string]any{}
	for pair := range strings.SplitSeq(strings.Trim(step, "[]"), ",") {
		key, text, _ := strings.Cut(pair, "=")
		var value any = text
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			value = n
		}
		keys[key] = value
	}
	return keys
}

// defaultKeys are keys that an item may omit.
var defaultKeys = map[string]any{"protocol": "TCP"}

// itemStep returns the step that selects an item of a list.
func itemStep(item any, keys []string) string {
	if keys == nil {
		return fmt.Sprintf("[=%v]", item)
	}
	fields, _ := item.(map[string]any)
	parts := make([]string, len(keys))
	for i, key := range keys {
		value, ok := fields[key]
		if !ok {
			value = defaultKeys[key]
		}
		parts[i] = fmt.Sprintf("%s=%v", key, value)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// leaf is a value that has one owner as a whole.
type leaf struct {
	at    path
	value any
}

// flatten splits an object into its leaves by path. Null has no leaf. An empty list is a leaf if lists are atomic.
func flatten(s shape, object map[string]any) map[string]leaf {
	out := map[string]leaf{}
	flattenInto(s, out, nil, object)
	return out
}

func flattenInto(s shape, out map[string]leaf, at path, value any) {
	pattern := at.pattern()
	switch v := value.(type) {
	case nil:
		return
	case map[string]any:
		if len(at) == 0 || len(v) > 0 && !s.atomicMaps[pattern] {
			for key, field := range v {
				flattenInto(s, out, at.join(key), field)
			}
			return
		}
	case []any:
		if keys, ok := s.lists[pattern]; ok {
			for _, item := range v {
				step := at.join(itemStep(item, keys))
				if keys == nil {
					out[step.String()] = leaf{step, item}
				} else {
					flattenInto(s, out, step, item)
				}
			}
			return
		}
	}
	out[at.String()] = leaf{at, value}
}

// unflatten combines leaves into an object. List items are in the order of their paths.
func unflatten(leaves map[string]leaf) map[string]any {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(leaves)) {
		setAt(object, leaves[name].at, leaves[name].value)
	}
	return object
}

// setAt sets a value and creates the maps and items on the way to it.
func setAt(object map[string]any, at path, value any) { putAt(object, at, clone(value)) }

func putAt(node any, at path, value any) any {
	if len(at) == 0 {
		return value
	}
	step, rest := at[0], at[1:]
	if !isItem(step) {
		fields, ok := node.(map[string]any)
		if !ok {
			fields = map[string]any{}
		}
		fields[step] = putAt(fields[step], rest, value)
		return fields
	}
	list, _ := node.([]any)
	if strings.HasPrefix(step, "[=") {
		if i := indexOf(list, step); i < 0 {
			list = append(list, value)
		}
		return list
	}
	i := indexOf(list, step)
	if i < 0 {
		list = append(list, itemKeys(step))
		i = len(list) - 1
	}
	list[i] = putAt(list[i], rest, value)
	return list
}

// getAt returns the value at a path.
func getAt(node any, at path) (any, bool) {
	for _, step := range at {
		if isItem(step) {
			list, _ := node.([]any)
			i := indexOf(list, step)
			if i < 0 {
				return nil, false
			}
			node = list[i]
			continue
		}
		fields, _ := node.(map[string]any)
		next, ok := fields[step]
		if !ok {
			return nil, false
		}
		node = next
	}
	return node, true
}

// removeAt removes a value and the maps and lists that become empty.
func removeAt(object map[string]any, at path) { cutAt(object, at) }

func cutAt(node any, at path) (rest any, empty bool) {
	step := at[0]
	if isItem(step) {
		list, _ := node.([]any)
		i := indexOf(list, step)
		if i < 0 {
			return node, false
		}
		if len(at) > 1 {
			list[i], _ = cutAt(list[i], at[1:]) // the item keeps its keys
			return list, false
		}
		list = slices.Delete(list, i, i+1)
		return list, len(list) == 0
	}
	fields, _ := node.(map[string]any)
	child, ok := fields[step]
	if !ok {
		return node, false
	}
	if len(at) == 1 {
		delete(fields, step)
		return fields, len(fields) == 0
	}
	if child, empty = cutAt(child, at[1:]); empty {
		delete(fields, step)
	} else {
		fields[step] = child
	}
	return fields, len(fields) == 0
}

func indexOf(list []any, step string) int {
	return slices.IndexFunc(list, func(item any) bool {
		if strings.HasPrefix(step, "[=") {
			return itemStep(item, nil) == step
		}
		fields, ok := item.(map[string]any)
		if !ok {
			return false
		}
		for key, want := range itemKeys(step) {
			value, ok := fields[key]
			if !ok {
				value = defaultKeys[key]
			}
			if fmt.Sprint(value) != fmt.Sprint(want) {
				return false
			}
		}
		return true
	})
}

// clone returns a deep copy of a JSON value.
func clone[T any](value T) T {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var out T
	if err := decode(data, &out); err != nil {
		panic(err)
	}
	return out
}

func decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return err
	}
	switch v := into.(type) {
	case *any:
		*v = integers(*v)
	case *map[string]any:
		integers(*v)
	}
	return nil
}

// integers converts whole numbers to int64, as in API objects.
func integers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			v[key] = integers(field)
		}
	case []any:
		for i, item := range v {
			v[i] = integers(item)
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return value
}

// same reports whether two JSON values are equal.
func same(a, b any) bool { return text(a) == text(b) }

// text returns a value as compact JSON with sorted keys.
func text(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}
