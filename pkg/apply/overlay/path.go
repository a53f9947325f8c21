package overlay

import (
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Without returns a copy of an object without the value at a path and without parents that become empty.
func Without(current any, path fieldpath.Path) any {
	switch v := current.(type) {
	case map[string]any:
		step := path[0].FieldName
		if step == nil || v[*step] == nil {
			return current
		}
		v = maps.Clone(v)
		if len(path) > 1 {
			v[*step] = Without(v[*step], path[1:])
		}
		if len(path) == 1 || manifest.IsEmpty(v[*step]) {
			delete(v, *step)
		}
		return v
	case []any:
		v = slices.Clone(v)
		for i := len(v) - 1; i >= 0; i-- {
			if !isAt(v[i], path[0]) {
				continue
			}
			if len(path) == 1 {
				v = slices.Delete(v, i, i+1)
			} else {
				v[i] = Without(v[i], path[1:])
			}
		}
		return v
	}
	return current
}

// Has reports whether a value has a field at path.
func Has(current any, path fieldpath.Path) bool {
	if len(path) == 0 {
		return true
	}
	switch v := current.(type) {
	case map[string]any:
		if step := path[0].FieldName; step != nil {
			next, ok := v[*step]
			return ok && Has(next, path[1:])
		}
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return isAt(item, path[0]) && Has(item, path[1:]) })
	}
	return false
}

// isAt reports whether a step of a path, a key or a value, leads to the item of a list.
func isAt(item any, step fieldpath.PathElement) bool {
	found, ok := stepTo(item, keysOf(step), nil)
	return ok && found.Equals(step)
}

// keysOf returns the names of the fields in a step to an item of a list. They are empty for a set.
func keysOf(step fieldpath.PathElement) []string {
	keys := []string{}
	if step.Key != nil {
		for _, field := range *step.Key {
			keys = append(keys, field.Name)
		}
	}
	return keys
}

// stepTo returns the step to an item of a list with keys or, without keys, of a set. ok is false if such a list cannot have the item.
func stepTo(item any, keys []string, defaults map[string]any) (step fieldpath.PathElement, ok bool) {
	fields, isMap := item.(map[string]any)
	if len(keys) == 0 {
		member := value.NewValueInterface(item)
		return fieldpath.PathElement{Value: &member}, item != nil && !isMap && !isList(item)
	}
	var key value.FieldList
	for _, name := range keys {
		v, ok := fields[name]
		if !ok {
			v, ok = defaults[name]
		}
		if !ok && name == "protocol" { // the only key of a built-in kind that has a default
			v, ok = "TCP", true
		}
		if ok {
			key = append(key, value.Field{Name: name, Value: value.NewValueInterface(v)})
		}
	}
	key.Sort()
	return fieldpath.PathElement{Key: &key}, isMap && len(key) > 0
}

func fieldName(name string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &name} }
