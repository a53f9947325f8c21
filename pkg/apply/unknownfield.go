package apply

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxDropped bounds how many unknown fields are left out of one object before its manifest counts as broken.
const maxDropped = 32

var undeclared = regexp.MustCompile(`(\.[^\s:]+|\S*\]\S*): field not declared in schema`)

// unknownFields returns the paths that a refused apply names as missing from the schema, in the notation of
// structured-merge-diff: `.spec.containers[name="x"].image`.
func unknownFields(err error) []string {
	if err == nil || apierrors.ReasonForError(err) == "" && !strings.Contains(err.Error(), "not declared in schema") {
		return nil
	}
	var paths []string
	for _, match := range undeclared.FindAllStringSubmatch(err.Error(), -1) {
		if !slices.Contains(paths, match[1]) {
			paths = append(paths, match[1])
		}
	}
	return paths
}

// dropFields removes the paths from body, copying what it changes, and returns those it found.
func dropFields(body map[string]any, paths []string) []string {
	var removed []string
	for _, path := range paths {
		if steps := splitPath(path); len(steps) > 0 && dropField(body, steps) {
			removed = append(removed, path)
		}
	}
	return removed
}

func dropField(object map[string]any, steps []string) bool {
	value, ok := object[steps[0]]
	if !ok {
		return false
	}
	if len(steps) == 1 {
		delete(object, steps[0])
		return true
	}
	copied, ok := dropIn(value, steps[1:])
	if ok {
		object[steps[0]] = copied
	}
	return ok
}

// dropIn returns a copy of value without the field at steps; the manifest that value came from is shared.
func dropIn(value any, steps []string) (any, bool) {
	switch v := value.(type) {
	case map[string]any:
		clone := make(map[string]any, len(v))
		for key, item := range v {
			clone[key] = item
		}
		return clone, dropField(clone, steps)
	case []any:
		if !strings.HasPrefix(steps[0], "[") || len(steps) == 1 {
			return value, false
		}
		for i, item := range v {
			if !selects(steps[0], i, item) {
				continue
			}
			copied, ok := dropIn(item, steps[1:])
			clone := slices.Clone(v)
			clone[i] = copied
			return clone, ok
		}
	}
	return value, false
}

// selects reports whether a list step, `[3]` or `[name="x",port=1]`, names this item.
func selects(step string, index int, item any) bool {
	inner := strings.Trim(step, "[]")
	if n, err := strconv.Atoi(inner); err == nil {
		return n == index
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for _, pair := range strings.Split(inner, ",") {
		key, want, ok := strings.Cut(pair, "=")
		if !ok {
			return false
		}
		if text, isText := fields[key].(string); isText && strconv.Quote(text) != want {
			return false
		}
	}
	return true
}

// splitPath cuts `.a.b[name="x.y"].c` into `a`, `b`, `[name="x.y"]`, `c`.
func splitPath(path string) []string {
	var steps []string
	for path != "" {
		end := 0
		switch path[0] {
		case '.':
			path = path[1:]
			if end = strings.IndexAny(path, ".["); end < 0 {
				end = len(path)
			}
		case '[':
			quoted := false
			for end < len(path) && (quoted || path[end] != ']') {
				if path[end] == '"' {
					quoted = !quoted
				}
				end++
			}
			if end = end + 1; end > len(path) {
				return nil
			}
		default:
			return nil
		}
		steps = append(steps, path[:end])
		path = path[end:]
	}
	return steps
}
