// Package definition reads the versions of a CustomResourceDefinition without its Go types, because a definition in a manifest may be
// incomplete.
package definition

import "iter"

// Version is an entry in spec.versions of a CustomResourceDefinition.
type Version struct {
	Name            string
	Served, Storage bool
	// Fields is the whole entry.
	Fields map[string]any
}

// All returns the versions of a CustomResourceDefinition in their order. It skips entries that are not objects.
// Inlined into all callers, it would need 4 kB of the binary.
//
//go:noinline
func All(crd map[string]any) (all []Version) {
	spec, _ := crd["spec"].(map[string]any)
	entries, _ := spec["versions"].([]any)
	for _, entry := range entries {
		if fields, ok := entry.(map[string]any); ok {
			name, _ := fields["name"].(string)
			all = append(all, Version{name, fields["served"] == true, fields["storage"] == true, fields})
		}
	}
	return all
}

// Versions is All as an iterator. A loop over it needs a larger binary.
func Versions(crd map[string]any) iter.Seq[Version] {
	return func(yield func(Version) bool) {
		for _, v := range All(crd) {
			if !yield(v) {
				return
			}
		}
	}
}

// ReplicasPath returns the path of the field that the version's scale subresource writes, such as ".spec.replicas"; empty if it has none.
func (v Version) ReplicasPath() string {
	subresources, _ := v.Fields["subresources"].(map[string]any)
	scale, _ := subresources["scale"].(map[string]any)
	path, _ := scale["specReplicasPath"].(string)
	return path
}

// Schema returns the version's schema; nil if it has none.
func (v Version) Schema() map[string]any {
	schema, _ := v.Fields["schema"].(map[string]any)
	root, _ := schema["openAPIV3Schema"].(map[string]any)
	return root
}
