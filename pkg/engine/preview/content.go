package preview

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// unmarshal parses JSON like objects do: whole numbers become int64.
func unmarshal(data []byte, into *map[string]any) error { return json.Unmarshal(data, into) }
