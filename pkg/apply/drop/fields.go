// Package drop omits parts of a body that server-side apply does not accept but that an update would accept or silently drop: fields that
// the server's schema does not have, and list entries that a later entry with the same key replaces. It takes a body and the server's
// error, and returns a copy of the body and the dropped paths.
package drop

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cluster-version/cvo/pkg/apply/failure"
)

// Max is the maximum number of unknown fields that are omitted from one object. A manifest with more is an error.
const Max = 32

// unknownFields returns the paths in the error of a rejected apply that the schema does not have, in the notation of structured-merge-diff:
// `.spec.containers[name="x"].image`. For each map, the server names only one path.
func unknownFields(err error) []string {
	var paths []string
	for _, line := range failure.Mismatches(err) {
		path, ok := failure.UndeclaredField(line)
		if ok && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Refused returns body without the parts that server-side apply cannot accept according to the error, and their paths. It returns no paths
// if the error has another cause or body does not contain those parts.
func Refused(body map[string]any, err error) (without map[string]any, removed []string) {
	without, removed = dropFields(body, unknownFields(err))
	without, repeated := dropRepeated(without, err)
	return without, append(removed, repeated...)
}

// Has reports whether an object has a field at a path in the notation of structured-merge-diff.
func Has(object map[string]any, path string) bool {
	_, ok := dropFromMap(object, path)
	return ok
}

// dropFields returns body without the paths, and the paths that existed. It does not modify body, because body shares values with the
// manifest.
func dropFields(body map[string]any, paths []string) (without map[string]any, removed []string) {
	without = body
	for _, path := range paths {
		if next, ok := dropFromMap(without, path); ok {
			without = next
			removed = append(removed, path)
		}
	}
	return without, removed
}

// drop returns a copy of value without the field at path, and whether the field existed. Field names in a path are unquoted and may contain
// dots and brackets, so drop uses the value's own keys to find the end of a name.
func drop(value any, path string) (any, bool) {
	switch v := value.(type) {
	case map[string]any:
		return dropFromMap(v, path)
	case []any:
		step, rest, ok := cutListStep(path)
		if !ok {
			return value, false
		}
		for i, item := range v {
			if !step.selects(i, item) {
				continue
			}
			if without, ok := drop(item, rest); ok {
				clone := slices.Clone(v)
				clone[i] = without
				return clone, true
			}
		}
	}
	return value, false
}

func dropFromMap(object map[string]any, path string) (map[string]any, bool) {
	path, ok := strings.CutPrefix(path, ".")
	if !ok {
		return object, false
	}
	if _, ok := object[path]; ok {
		clone := maps.Clone(object)
		delete(clone, path)
		return clone, true
	}
	for key, value := range object {
		rest, ok := strings.CutPrefix(path, key)
		if !ok {
			continue
		}
		if without, ok := drop(value, rest); ok {
			clone := maps.Clone(object)
			clone[key] = without
			return clone, true
		}
	}
	return object, false
}

// listStep selects an item of a list: `[3]` by position, `[name="x",port=1]` by keys.
type listStep struct {
	index int // -1 to select by keys
	keys  map[string]string
}

// cutListStep cuts a list step from the start of path. Strings in keys are quoted as in Go, so they may contain any characters.
func cutListStep(path string) (step listStep, rest string, ok bool) {
	path, ok = strings.CutPrefix(path, "[")
	if !ok {
		return listStep{}, "", false
	}
	if number, rest, ok := strings.Cut(path, "]"); ok {
		if n, err := strconv.Atoi(number); err == nil && n >= 0 {
			return listStep{index: n}, rest, true
		}
	}
	step = listStep{index: -1, keys: map[string]string{}}
	for {
		key, value, ok := strings.Cut(path, "=")
		if !ok || key == "" {
			return listStep{}, "", false
		}
		text, err := strconv.QuotedPrefix(value)
		if err != nil {
			text = value[:max(0, strings.IndexAny(value, ",]"))]
		}
		step.keys[key] = text
		switch path = value[len(text):]; {
		case strings.HasPrefix(path, "]"):
			return step, path[1:], true
		case strings.HasPrefix(path, ","):
			path = path[1:]
		default:
			return listStep{}, "", false
		}
	}
}

// selects reports whether the step selects an item. If the item lacks a key, the step contains the key's default value.
func (s listStep) selects(index int, item any) bool {
	if s.index >= 0 {
		return s.index == index
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for key, want := range s.keys {
		value, ok := fields[key]
		if !ok {
			continue
		}
		got := fmt.Sprint(value)
		if text, isText := value.(string); isText {
			got = strconv.Quote(text)
		}
		if got != want {
			return false
		}
	}
	return true
}
