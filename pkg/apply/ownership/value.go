package ownership

import (
	"encoding/json"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Loosens reports whether the object's value at a path of Loosened loosens a pod's security according to the baseline and restricted Pod
// Security Standards. A missing or default value loosens nothing. It returns true for values that it cannot judge.
func Loosens(object map[string]any, path string) bool {
	found, ok := valueAt(object, path)
	if !ok {
		return false
	}
	switch field := path[strings.LastIndexByte(path, '.')+1:]; field {
	case "hostPID", "hostIPC", "hostNetwork", "privileged", "allowPrivilegeEscalation", "hostProcess", "hostUsers":
		// true is the default of hostUsers, but a release leaves this choice to the cluster's defaults for new pods.
		return found != false
	case "runAsNonRoot":
		return found == false
	case "runAsUser":
		return zero(found)
	case "hostPort":
		return !zero(found)
	case "procMount":
		return found != "Default"
	case "seccompProfile", "appArmorProfile":
		profile, _ := found.(map[string]any)
		return profile == nil || profile["type"] == "Unconfined"
	case "add", "sysctls":
		list, isList := found.([]any)
		return !isList || len(list) > 0
	}
	return found != nil
}

func zero(number any) bool {
	switch n := number.(type) {
	case int64:
		return n == 0
	case float64:
		return n == 0
	case json.Number:
		return n == "0"
	}
	return false
}

// valueAt returns the value at a path in the notation of fieldpath: `.spec.containers[name="x"].image`, with or without the leading dot. It
// does not find field names that contain dots, but pod specs have none.
func valueAt(current any, path string) (any, bool) {
	for path = "." + strings.TrimPrefix(path, "."); path != ""; {
		switch path[0] {
		case '.':
			end := strings.IndexAny(path[1:], ".[") + 1
			if end == 0 {
				end = len(path)
			}
			object, _ := current.(map[string]any)
			next, ok := object[path[1:end]]
			if !ok {
				return nil, false
			}
			current, path = next, path[end:]
		case '[':
			end := closing(path)
			list, _ := current.([]any)
			i := slices.IndexFunc(list, func(item any) bool { return end > 0 && isItem(item, path[:end]) })
			if i < 0 {
				return nil, false
			}
			current, path = list[i], path[end:]
		default:
			return nil, false
		}
	}
	return current, true
}

// closing returns the end of the list step at the start of path, or 0 if there is none. Brackets within quotes do not count.
func closing(path string) int {
	quoted := false
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && c == ']':
			return i + 1
		}
	}
	return 0
}

// isItem reports whether the step selects the item by its keys. If the item lacks a key, such as the protocol of a port, the step contains
// the key's default value.
func isItem(item any, step string) bool {
	object, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for _, keys := range itemKeys() {
		var key value.FieldList
		for _, name := range keys {
			v, ok := object[name]
			if !ok && name == "protocol" {
				v, ok = "TCP", true
			}
			if !ok {
				break
			}
			key = append(key, value.Field{Name: name, Value: value.NewValueInterface(v)})
		}
		if len(key) == len(keys) && (fieldpath.PathElement{Key: &key}).String() == step {
			return true
		}
	}
	return false
}

// itemKeys returns the keys of the lists in a pod spec, sorted by name as in paths.
func itemKeys() [][]string { return [][]string{{"name"}, {"containerPort", "protocol"}} }
