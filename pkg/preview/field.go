package preview

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/difference"
)

// Compare returns the differences between an object and what it would become, in the order of their paths, lists in
// their own order. What the API server keeps about an object (metadata.managedFields, resourceVersion, generation, uid,
// creationTimestamp, selfLink) and its status are left aside, and null is as good as absent. Something that is there on
// one side only is one difference, however much it holds.
//
// Which entries of two lists belong together is read from the managedFields of both objects, where the API server names
// the entries of a list by the keys of its schema; a list of which these say nothing is compared in its order. The values
// of a Secret are hidden, and so is the copy of them that kubectl keeps in an annotation.
func Compare(before, after *unstructured.Unstructured) []difference.Field {
	trees := fieldTrees(before)
	trees = append(trees, fieldTrees(after)...)
	return difference.Objects(strip(before.Object), strip(after.Object), difference.Options{
		Keys: trees, Secret: isSecret(after.GroupVersionKind()),
	})
}

func isSecret(gvk schema.GroupVersionKind) bool { return gvk.Group == "" && gvk.Kind == "Secret" }

// strip returns the object without what is not compared; nothing is changed in place.
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
		object["metadata"] = metadata
	}
	return object
}

// fieldSets are the sets of fields that the writers of an object own, below one path (Kubernetes' FieldsV1: "f:" begins
// the name of a field, "k:" the keys of a list's entry, "v:" an entry that is a plain value). What they are read for is
// the entries of lists.
type fieldSets []map[string]any

// fieldTrees returns the sets of an object's managedFields that are of its own API version. One that cannot be read
// tells nothing.
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

// Item returns the sets below an entry of a list, given what identify says of it.
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

// Identify returns what tells the entries of a list apart, as it stands in a path; nil for a list whose entries have no
// identity but their position, or of which the sets say nothing.
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
