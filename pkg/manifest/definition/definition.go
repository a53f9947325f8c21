// Package definition reads the versions of a CustomResourceDefinition without its Go types, because a definition in a manifest may be
// incomplete.
package definition

// Version is an entry in spec.versions of a CustomResourceDefinition.
type Version struct {
	Name            string
	Served, Storage bool
	// Fields is the whole entry.
	Fields map[string]any
}

// Versions returns the versions of a CustomResourceDefinition in their order. It skips entries that are not objects.
func Versions(crd map[string]any) (all []Version) {
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
