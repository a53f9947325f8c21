package preview

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// brought is what a release brings that other objects of it need.
type brought struct {
	namespaces map[string]bool
	// crds have what becomes of the CRD of a kind; it is known once CRDs are settled.
	crds map[schema.GroupKind]*Object
	// versions are those that the release's CRDs serve.
	versions map[schema.GroupVersionKind]bool
}

func isCRD(m *manifest.Manifest) bool {
	return m.Is("apiextensions.k8s.io", "CustomResourceDefinition")
}

func broughtBy(manifests []*manifest.Manifest) brought {
	b := brought{
		namespaces: map[string]bool{}, crds: map[schema.GroupKind]*Object{}, versions: map[schema.GroupVersionKind]bool{},
	}
	for _, m := range manifests {
		switch {
		case m.Tombstone():
		case m.Is("", "Namespace"):
			b.namespaces[m.Object.GetName()] = true
		case isCRD(m):
			kind := definedKind(m)
			b.crds[kind] = &Object{}
			list, _, _ := unstructured.NestedFieldNoCopy(m.Object.Object, "spec", "versions")
			versions, _ := list.([]any)
			for _, v := range versions {
				entry, _ := v.(map[string]any)
				name, _ := entry["name"].(string)
				if served, _ := entry["served"].(bool); served {
					b.versions[kind.WithVersion(name)] = true
				}
			}
		}
	}
	return b
}

// definedKind is the kind that a CRD defines.
func definedKind(crd *manifest.Manifest) schema.GroupKind {
	group, _, _ := unstructured.NestedString(crd.Object.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}

// settle notes what becomes of a CRD.
func (b brought) settle(m *manifest.Manifest, o Object) {
	if isCRD(m) && !m.Tombstone() {
		b.crds[definedKind(m)] = &o
	}
}

// changesSchema reports whether the release changes the CRD of an object's kind before it comes to the object, so that
// what the server says of it now need not hold then.
func (b brought) changesSchema(m *manifest.Manifest) bool {
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

// unmarshal reads JSON as objects hold it: whole numbers are int64.
func unmarshal(data []byte, into *map[string]any) error { return json.Unmarshal(data, into) }
