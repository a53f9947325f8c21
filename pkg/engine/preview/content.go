package preview

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/manifest/customresource"
	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

// releaseContent contains the parts of a release that its other objects depend on.
type releaseContent struct {
	namespaces map[string]bool
	// crds contains the verdict on the CRD of each kind. It is complete once all CRDs have been previewed.
	crds map[schema.GroupKind]*Object
	// definitions contains the release's CRD of each kind.
	definitions map[schema.GroupKind]*unstructured.Unstructured
	// replicas contains the path that the scale subresource writes, or "", of each version that the release's CRDs serve.
	replicas map[schema.GroupVersionKind]string
}

func isCRD(m *manifest.Manifest) bool {
	return m.Is("apiextensions.k8s.io", "CustomResourceDefinition")
}

func contentOf(manifests []*manifest.Manifest) releaseContent {
	b := releaseContent{
		namespaces: map[string]bool{}, crds: map[schema.GroupKind]*Object{}, definitions: map[schema.GroupKind]*unstructured.Unstructured{},
		replicas: map[schema.GroupVersionKind]string{},
	}
	for _, m := range manifests {
		switch {
		case m.Tombstone():
		case m.Is("", "Namespace"):
			b.namespaces[m.Object.GetName()] = true
		case isCRD(m):
			kind, _ := m.Defines()
			b.crds[kind], b.definitions[kind] = &Object{}, m.Object
			for v := range definition.Versions(m.Object.Object) {
				if v.Served {
					b.replicas[kind.WithVersion(v.Name)] = v.ReplicasPath()
				}
			}
		}
	}
	return b
}

// settle records the verdict on a CRD.
func (b releaseContent) settle(m *manifest.Manifest, o Object) {
	if kind, ok := m.Defines(); ok && !m.Tombstone() {
		b.crds[kind] = &o
	}
}

// violations returns the violations of a manifest against the schema of a CRD that the release creates or changes first. The server does
// not know that schema yet. live is the object after the update under the current schema, or nil: other clients may have set what the
// manifest lacks.
func (b releaseContent) violations(m *manifest.Manifest, live *unstructured.Unstructured) []customresource.Violation {
	kind := m.GVK().GroupKind()
	crd := b.crds[kind]
	if crd == nil || m.Tombstone() {
		return nil
	}
	createsKind := crd.Verdict == Create || crd.Verdict == Recreate
	if !createsKind && !b.changesSchema(m) {
		return nil
	}
	found := customresource.Validate(b.definitions[kind], m.Object)
	var missing []customresource.Violation
	switch {
	case createsKind:
		return found
	case live != nil:
		missing = customresource.Validate(b.definitions[kind], live)
	}
	return slices.DeleteFunc(found, func(v customresource.Violation) bool { return v.Missing && !slices.Contains(missing, v) })
}

// changesSchema reports whether the release changes the CRD of an object's kind before it applies the object. Then the server's current
// verdict may no longer hold.
func (b releaseContent) changesSchema(m *manifest.Manifest) bool {
	crd := b.crds[m.GVK().GroupKind()]
	if crd == nil || isCRD(m) {
		return false
	}
	for _, f := range crd.Fields {
		if strings.HasPrefix(f.Path, "spec.") {
			return true
		}
	}
	return false
}

// stopsServing reports whether the release changes the CRD of an object's kind so that it does not serve the object's version. Then the
// update waits forever, also if the server accepts the object now. A tombstone may run before the change.
func (b releaseContent) stopsServing(m *manifest.Manifest) bool {
	_, serves := b.replicas[m.GVK()]
	return !serves && !m.Tombstone() && b.changesSchema(m)
}

// inServedVersions returns the manifest of a custom resource in the other versions of its CRD, if the release changes the CRD to serve the
// manifest's version. They differ only in apiVersion, as they do for the server if the CRD has no conversion webhook.
func (b releaseContent) inServedVersions(m *manifest.Manifest) iter.Seq[*manifest.Manifest] {
	return func(yield func(*manifest.Manifest) bool) {
		kind := m.GVK().GroupKind()
		_, serves := b.replicas[m.GVK()]
		if !serves || !b.changesSchema(m) {
			return
		}
		crd := b.definitions[kind].Object
		if strategy, _, _ := unstructured.NestedString(crd, "spec", "conversion", "strategy"); strategy == "Webhook" {
			return
		}
		for v := range definition.Versions(crd) {
			other := *m
			other.Object = inVersion(m.Object, kind.WithVersion(v.Name))
			if v.Name != m.GVK().Version && !yield(&other) {
				return
			}
		}
	}
}

// inVersionOf returns an object in the version of a manifest. It returns nil for nil.
func inVersionOf(m *manifest.Manifest, object *unstructured.Unstructured) *unstructured.Unstructured {
	if object == nil || object.GroupVersionKind() == m.GVK() {
		return object
	}
	return inVersion(object, m.GVK())
}

func inVersion(object *unstructured.Unstructured, gvk schema.GroupVersionKind) *unstructured.Unstructured {
	copied := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	copied.SetGroupVersionKind(gvk)
	return copied
}

// complete returns the result of a dry run with what the server adds once the release has changed the object's CRD: fields of the manifest that
// the server does not know yet, and defaults. It does not modify after.
func (b releaseContent) complete(m *manifest.Manifest, after *unstructured.Unstructured) *unstructured.Unstructured {
	if !b.changesSchema(m) {
		return after
	}
	after = after.DeepCopy()
	for name, value := range m.Object.Object {
		if name != "apiVersion" && name != "kind" && name != "metadata" && name != "status" {
			after.Object[name] = filled(after.Object[name], value)
		}
	}
	customresource.Default(b.definitions[m.GVK().GroupKind()], m.GVK().Version, after)
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

// unmarshal parses JSON like objects do: whole numbers become int64.
func unmarshal(data []byte, into *map[string]any) error { return json.Unmarshal(data, into) }
