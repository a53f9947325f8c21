package preview

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/internal/difference"
)

// compare returns the differences between an object and its future form. They are sorted by path; entries of lists keep their order. It
// ignores the status and the API server's bookkeeping: metadata.managedFields, resourceVersion, generation, uid, creationTimestamp,
// selfLink, and the annotation in which it counts the versions of a DaemonSet's template. It treats null as absent. A value that exists on only one side is one difference, regardless of its size.
//
// The managedFields of both objects show which entries of two lists correspond, because the API server identifies entries by the keys of
// its schema there. A list without managedFields is compared by position. The values of a Secret are hidden, including the copy that
// kubectl keeps in an annotation.
func compare(before, after *unstructured.Unstructured) []difference.Field {
	trees := fieldTrees(before)
	trees = append(trees, fieldTrees(after)...)
	return difference.Objects(strip(before.Object), strip(after.Object), difference.Options{
		Keys: trees, Secret: isSecret(after.GroupVersionKind()),
	})
}

func isSecret(gvk schema.GroupVersionKind) bool { return gvk.Group == "" && gvk.Kind == "Secret" }

// strip returns a copy of the object without its ignored parts.
func strip(object map[string]any) map[string]any {
	object = maps.Clone(object)
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, field := range []string{
			"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid",
		} {
			delete(metadata, field)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			annotations = maps.Clone(annotations)
			delete(annotations, appsv1.DeprecatedTemplateGeneration)
			metadata["annotations"] = annotations
		}
		object["metadata"] = metadata
	}
	return object
}

// fieldSets contains the sets of fields that writers own, below one path of an object. They identify the entries of lists. In Kubernetes'
// FieldsV1, "f:" starts the name of a field, "k:" the keys of a list entry, and "v:" an entry that is a plain value.
type fieldSets []map[string]any

// fieldTrees returns the sets in an object's managedFields for its own API version. It ignores unreadable ones.
func fieldTrees(object *unstructured.Unstructured) fieldSets {
	var trees fieldSets
	for _, entry := range managedFields(object) {
		var tree map[string]any
		if entry.APIVersion != object.GetAPIVersion() || entry.FieldsV1 == nil {
			continue
		}
		if json.NewDecoder(entry.FieldsV1.GetRawReader()).Decode(&tree) == nil && len(tree) > 0 {
			trees = append(trees, tree)
		}
	}
	return trees
}

func managedFields(object *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	if object == nil {
		return nil
	}
	return object.GetManagedFields()
}

// Field returns the sets below a field.
func (s fieldSets) Field(name string) difference.Keys {
	return s.below(func(key string) bool { return key == "f:"+name })
}

// Item returns the sets below a list entry, given the key from identify.
func (s fieldSets) Item(key string) difference.Keys {
	return s.below(func(step string) bool {
		keys, ok := strings.CutPrefix(step, "k:")
		if !ok {
			return false
		}
		var values map[string]any
		return json.Unmarshal([]byte(keys), &values) == nil && difference.KeyText(values, slices.Sorted(maps.Keys(values))) == key
	})
}

func (s fieldSets) below(matches func(step string) bool) fieldSets {
	var out fieldSets
	for _, tree := range s {
		for step, child := range tree {
			if below, ok := child.(map[string]any); ok && len(below) > 0 && matches(step) {
				out = append(out, below)
			}
		}
	}
	return out
}

// Identify returns a function that returns a list entry's identity, in the form used in paths. It is nil if the sets do not mention the
// list, or if its entries are identified only by position.
func (s fieldSets) Identify(_, _ []any) func(item any) string {
	for _, tree := range s {
		for step := range tree {
			if keys, ok := strings.CutPrefix(step, "k:"); ok {
				var values map[string]any
				if json.Unmarshal([]byte(keys), &values) != nil {
					continue
				}
				names := slices.Sorted(maps.Keys(values))
				return func(item any) string {
					fields, _ := item.(map[string]any)
					return difference.KeyText(fields, names)
				}
			}
			if strings.HasPrefix(step, "v:") {
				return func(item any) string { return "[=" + difference.Text(item) + "]" }
			}
		}
	}
	return nil
}
