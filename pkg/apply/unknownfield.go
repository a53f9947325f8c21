package apply

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxDropped bounds how many unknown fields are left out of one object before its manifest counts as broken.
const maxDropped = 32

// typeError begins what the server says of an apply that does not fit its schema. It comes with code 500 and without a
// reason; the object's name and kind follow, then one or more lines of structured-merge-diff.
const typeError = "failed to create typed patch object ("

func isTypeError(err error) bool { return err != nil && strings.Contains(err.Error(), typeError) }

// unknownFields returns the paths that a refused apply names as missing from the schema, in the notation of
// structured-merge-diff: `.spec.containers[name="x"].image`. Of each map the server names only one.
func unknownFields(err error) []string {
	if err == nil {
		return nil
	}
	var paths []string
	for _, line := range typeErrors(err) {
		path, ok := strings.CutSuffix(line, ": field not declared in schema")
		if ok && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// typeErrors returns the lines of what the server says of an apply that does not fit its schema.
func typeErrors(err error) (lines []string) {
	_, text, _ := strings.Cut(err.Error(), typeError)
	_, text, _ = strings.Cut(text, "): ")
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// withoutRefused returns body without what the error says that server-side apply cannot take, and where that was; nothing
// if the error is about something else, or the body does not have what it is about.
func withoutRefused(body map[string]any, err error) (without map[string]any, removed []string) {
	without, removed = dropFields(body, unknownFields(err))
	without, repeated := dropRepeated(without, err)
	return without, append(removed, repeated...)
}

// unknownFieldWarnings collects the paths that the server names in warnings on objects sent without server-side apply.
type unknownFieldWarnings struct{ paths []string }

var unknownFieldWarning = regexp.MustCompile(`^unknown field ("(?:[^"\\]|\\.)*")$`)

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *unknownFieldWarnings) HandleWarningHeaderWithContext(_ context.Context, code int, _ string, text string) {
	const persistent = 299 // RFC 7234, section 5.5; the only code that Kubernetes uses
	if match := unknownFieldWarning.FindStringSubmatch(text); code == persistent && match != nil {
		if path, err := strconv.Unquote(match[1]); err == nil {
			w.paths = append(w.paths, "."+path)
		}
	}
}

// dropFields returns body without the paths, and which of them were there. It changes nothing in place: the manifest
// that the values come from is shared.
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

// drop returns a copy of value without the field at path, and whether it was there. Field names stand unquoted in a
// path and may contain dots and brackets, so the value's own keys say where a name ends.
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

// listStep selects an item of a list: `[3]` by position, `[name="x",port=1]` by its keys.
type listStep struct {
	index int // -1 if keys select
	keys  map[string]string
}

// cutListStep reads a step off the start of path. Texts among the keys are quoted as Go does, so they may contain
// anything.
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

// selects reports whether the step names this item. A key that the item leaves out has its default in the step.
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
