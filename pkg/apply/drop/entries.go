package drop

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cluster-version/cvo/pkg/apply/failure"
)

// dropRepeated returns body without the list entries that a later entry with the same key replaces, in the lists that the error names. It
// also returns the dropped entries. An update accepts such lists. Where it matters, as in the environment of a container, the last entry
// wins. dropRepeated does not modify body.
func dropRepeated(body map[string]any, err error) (without map[string]any, removed []string) {
	without = body
	for _, line := range failure.Mismatches(err) {
		path, key, ok := failure.RepeatedEntry(line)
		if !ok {
			continue
		}
		is, ok := entrySelector(key)
		if !ok {
			continue
		}
		next, n := keepLast(without, path, is)
		if n == 0 {
			continue
		}
		without, _ = next.(map[string]any)
		removed = append(removed, path+key)
	}
	return without, removed
}

// entrySelector parses a key as the server writes it: `[name="x",port=1]` for objects, `[="x"]` for the members of a set.
func entrySelector(key string) (is func(item any) bool, ok bool) {
	if member, ok := strings.CutPrefix(key, "[="); ok {
		member, ok = strings.CutSuffix(member, "]")
		return func(item any) bool {
			if text, isText := item.(string); isText {
				return strconv.Quote(text) == member
			}
			return fmt.Sprint(item) == member
		}, ok
	}
	step, rest, ok := cutListStep(key)
	return func(item any) bool { return step.selects(-1, item) }, ok && rest == "" && step.index < 0
}

// keepLast returns a copy of value in which the list at path keeps only the last of the entries for which is returns true, and the number
// of dropped entries. Like drop, it uses the value's own keys to find the end of a name.
func keepLast(current any, path string, is func(any) bool) (any, int) {
	switch v := current.(type) {
	case map[string]any:
		path, ok := strings.CutPrefix(path, ".")
		if !ok {
			return current, 0
		}
		for key, item := range v {
			rest, ok := strings.CutPrefix(path, key)
			if !ok {
				continue
			}
			if next, n := keepLast(item, rest, is); n > 0 {
				clone := maps.Clone(v)
				clone[key] = next
				return clone, n
			}
		}
	case []any:
		if path == "" {
			return withoutAllButLast(v, is)
		}
		outer, rest, ok := cutListStep(path)
		if !ok {
			return current, 0
		}
		for i, item := range v {
			if !outer.selects(i, item) {
				continue
			}
			if next, n := keepLast(item, rest, is); n > 0 {
				clone := slices.Clone(v)
				clone[i] = next
				return clone, n
			}
		}
	}
	return current, 0
}

func withoutAllButLast(list []any, is func(any) bool) ([]any, int) {
	last := -1
	for i, item := range list {
		if is(item) {
			last = i
		}
	}
	kept := make([]any, 0, len(list))
	for i, item := range list {
		if i >= last || !is(item) {
			kept = append(kept, item)
		}
	}
	return kept, len(list) - len(kept)
}
