// Package content describes the parts of a release that its other objects depend on: its Namespaces and CRDs. The API server does not know
// them before the update. From the manifests of a release, and the effects of the update on its CRDs, the package computes what the server
// will serve, accept and add. It sends no request.
package content

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/manifest/customresource"
	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

// Release contains the parts of a release that its other objects depend on.
type Release struct {
	namespaces map[string]bool
	// definitions contains the release's CRD of each kind.
	definitions map[schema.GroupKind]*crd
	// replicas contains the path that the scale subresource writes, or "", of each version that the release's CRDs serve.
	replicas map[schema.GroupVersionKind]string
}

// crd is a CRD of the release.
type crd struct {
	object *unstructured.Unstructured
	effect Effect
}

// Effect is the effect of an update on a CRD.
type Effect struct {
	// Created reports that the update creates or recreates the CRD. Changed reports that it changes the spec of an existing one.
	Created, Changed bool
}

// Of returns the content of a release. The effects on its CRDs are unknown until Settle records them.
func Of(manifests []*manifest.Manifest) *Release {
	r := &Release{
		namespaces: map[string]bool{}, definitions: map[schema.GroupKind]*crd{}, replicas: map[schema.GroupVersionKind]string{},
	}
	for _, m := range manifests {
		switch {
		case m.Tombstone():
		case m.Is("", "Namespace"):
			r.namespaces[m.Object.GetName()] = true
		default:
			kind, ok := m.Defines()
			if !ok {
				continue
			}
			r.definitions[kind] = &crd{object: m.Object}
			for _, v := range definition.Versions(m.Object.Object) {
				if v.Served {
					r.replicas[kind.WithVersion(v.Name)] = v.ReplicasPath()
				}
			}
		}
	}
	return r
}

// Settle records the effect of the update on the release's CRD of a kind.
func (r *Release) Settle(kind schema.GroupKind, effect Effect) {
	r.definitions[kind].effect = effect
}

// HasNamespace reports whether the release contains a namespace.
func (r *Release) HasNamespace(name string) bool { return r.namespaces[name] }

// Replicas returns the path that the scale subresource writes, or "", of a kind that the release's CRDs serve. For other kinds, served is
// false.
func (r *Release) Replicas(gvk schema.GroupVersionKind) (path string, served bool) {
	path, served = r.replicas[gvk]
	return path, served
}

// Violations returns the fields of a manifest that violate the schema of a CRD that the release creates or changes first, and a text about
// each. The server does not know that schema yet. live is the object after the update under the current schema, or nil: other clients may
// have set what the manifest lacks.
func (r *Release) Violations(m *manifest.Manifest, live *unstructured.Unstructured) (fields, texts []string) {
	for _, v := range r.violations(m, live) {
		fields, texts = append(fields, v.Field), append(texts, v.String())
	}
	return fields, texts
}

func (r *Release) violations(m *manifest.Manifest, live *unstructured.Unstructured) []customresource.Violation {
	crd := r.definitions[m.GVK().GroupKind()]
	if crd == nil || m.Tombstone() || !crd.effect.Created && !r.ChangesSchema(m) {
		return nil
	}
	found := customresource.Validate(crd.object, m.Object)
	var missing []customresource.Violation
	switch {
	case crd.effect.Created:
		return found
	case live != nil:
		missing = customresource.Validate(crd.object, inVersion(live, m.GVK()))
	}
	return slices.DeleteFunc(found, func(v customresource.Violation) bool { return v.Missing && !slices.Contains(missing, v) })
}

// ChangesSchema reports whether the release changes the CRD of an object's kind before it applies the object. Then the server's current
// verdict may no longer hold.
func (r *Release) ChangesSchema(m *manifest.Manifest) bool {
	crd := r.definitions[m.GVK().GroupKind()]
	_, defines := m.Defines()
	return crd != nil && !defines && crd.effect.Changed
}

// StopsServing reports whether the release changes the CRD of an object's kind so that it does not serve the object's version. Then the
// update waits forever, also if the server accepts the object now. A tombstone may run before the change.
func (r *Release) StopsServing(m *manifest.Manifest) bool {
	_, serves := r.replicas[m.GVK()]
	return !serves && !m.Tombstone() && r.ChangesSchema(m)
}

// InServedVersions returns the manifest of a custom resource in the other versions of its CRD, if the release changes the CRD to serve the
// manifest's version. It returns none if a webhook converts between the versions.
func (r *Release) InServedVersions(m *manifest.Manifest) []*manifest.Manifest {
	if _, serves := r.replicas[m.GVK()]; !serves || !r.ChangesSchema(m) {
		return nil
	}
	return r.inOtherVersions(m)
}

// InVersionsOf returns the manifest of a custom resource in the other versions that managers of the live object have used. It returns none if
// the fields of these versions are unknown, or a webhook converts them.
func (r *Release) InVersionsOf(m *manifest.Manifest, managers []metav1.ManagedFieldsEntry) []*manifest.Manifest {
	return slices.DeleteFunc(r.inOtherVersions(m), func(other *manifest.Manifest) bool {
		version := other.GVK().GroupVersion().String()
		return !slices.ContainsFunc(managers, func(e metav1.ManagedFieldsEntry) bool { return e.APIVersion == version })
	})
}

// inOtherVersions returns the manifest in the other versions of the release's CRD. They differ only in apiVersion, as they do for the server
// without a conversion webhook. With one, it returns none.
func (r *Release) inOtherVersions(m *manifest.Manifest) []*manifest.Manifest {
	crd := r.definitions[m.GVK().GroupKind()]
	if crd == nil {
		return nil
	}
	if strategy, _, _ := unstructured.NestedString(crd.object.Object, "spec", "conversion", "strategy"); strategy == "Webhook" {
		return nil
	}
	var others []*manifest.Manifest
	for _, v := range definition.Versions(crd.object.Object) {
		if v.Name != m.GVK().Version {
			other := *m
			other.Object = inVersion(m.Object, m.GVK().GroupKind().WithVersion(v.Name))
			others = append(others, &other)
		}
	}
	return others
}

// WithDefaults returns a copy of a live custom resource in another version, with the defaults of that version, which the server adds whenever it
// reads the object in that version.
func (r *Release) WithDefaults(object *unstructured.Unstructured, version string) *unstructured.Unstructured {
	object = object.DeepCopy()
	kind := object.GroupVersionKind().GroupKind()
	object.SetGroupVersionKind(kind.WithVersion(version))
	customresource.Default(r.definitions[kind].object, version, object)
	return object
}

func inVersion(object *unstructured.Unstructured, gvk schema.GroupVersionKind) *unstructured.Unstructured {
	copied := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	copied.SetGroupVersionKind(gvk)
	return copied
}

// Complete returns the result of a dry run with what the server adds once the release has changed the object's CRD: fields of the manifest that
// the server does not know yet, and defaults. It does not modify after.
func (r *Release) Complete(m *manifest.Manifest, after *unstructured.Unstructured) *unstructured.Unstructured {
	if !r.ChangesSchema(m) {
		return after
	}
	after = after.DeepCopy()
	for name, value := range m.Object.Object {
		if name != "apiVersion" && name != "kind" && name != "metadata" && name != "status" {
			after.Object[name] = filled(after.Object[name], value)
		}
	}
	customresource.Default(r.definitions[m.GVK().GroupKind()].object, m.GVK().Version, after)
	return after
}

// filled returns a value with the fields that only the manifest's value has.
func filled(value, manifest any) any {
	if value == nil {
		return runtime.DeepCopyJSONValue(manifest)
	}
	switch value := value.(type) {
	case map[string]any:
		fields, _ := manifest.(map[string]any)
		for name := range fields {
			value[name] = filled(value[name], fields[name])
		}
	case []any:
		items, _ := manifest.([]any)
		for i := range items {
			if len(items) == len(value) { // otherwise, other clients own some of the items
				value[i] = filled(value[i], items[i])
			}
		}
	}
	return value
}
