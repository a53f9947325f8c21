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
		if path[0].Key == nil {
			return current
		}
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

// Prune removes the fields for which remove returns true from an object, except those that contain an object.
func Prune(object any, remove func(fieldpath.Path) bool) { prune(object, nil, remove) }

func prune(object any, path fieldpath.Path, remove func(fieldpath.Path) bool) {
	fields, _ := object.(map[string]any)
	for name, value := range fields {
		at := append(slices.Clone(path), fieldName(name))
		if isObject(value) {
			prune(value, at, remove)
		} else if remove(at) {
			delete(fields, name)
		}
	}
}

// isAt reports whether a step of a path, a key or a value, leads to the item of a list.
func isAt(item any, step fieldpath.PathElement) bool {
	if step.Value != nil {
		return value.Equals(*step.Value, value.NewValueInterface(item))
	}
	if step.Key == nil {
		return false
	}
	keys := make([]string, 0, len(*step.Key))
	for _, field := range *step.Key {
		keys = append(keys, field.Name)
	}
	found, _ := entries([]any{item}, keys)
	return len(found) == 1 && found[0].key.Equals(step)
}

func fieldName(name string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &name} }
