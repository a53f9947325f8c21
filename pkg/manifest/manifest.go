// Package manifest handles the single manifests of a release. It parses them from a file's bytes, identifies their objects, and derives
// runlevel and component from the file name. It takes bytes and returns values. It reads no files and contacts no cluster. Package inclusion
// decides which clusters include a manifest.
package manifest

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
)

// Manifest is one object of a release. It is read-only, because everything that uses the release shares it.
type Manifest struct {
	// File is the base name of its file.
	File string
	// Document is the position in that file, from 1. The items of an expanded List share their document.
	Document int
	// Runlevel and Component come from the file name, see ParseName.
	Runlevel  int
	Component string
	// Raw is the input of the payload hash: the document as compact JSON with sorted keys. If the file is JSON (with any extension), Raw is
	// the document's bytes in the file, without surrounding space. payload.Load sets Raw to nil, because it would double the memory of a
	// release.
	Raw []byte
	// Content is the SHA-256 of Raw. It changes whenever the manifest changes.
	Content [sha256.Size]byte
	// Object is the decoded document.
	Object *unstructured.Unstructured
}

// ID identifies an object in a cluster. It has no API version, because the object is the same in all versions.
type ID struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns text such as `Deployment.apps openshift-x/y`.
func (id ID) String() string {
	kind := id.Kind
	if id.Group != "" {
		kind += "." + id.Group
	}
	if id.Namespace == "" {
		return kind + " " + id.Name
	}
	return kind + " " + id.Namespace + "/" + id.Name
}

// ID returns the object's identity.
func (m *Manifest) ID() ID {
	gvk := m.GVK()
	return ID{Group: gvk.Group, Kind: gvk.Kind, Namespace: m.Object.GetNamespace(), Name: m.Object.GetName()}
}

// Compare orders manifests by runlevel, component, file and document, like an update does.
func (m *Manifest) Compare(other *Manifest) int {
	return cmp.Or(cmp.Compare(m.Runlevel, other.Runlevel), cmp.Compare(m.Component, other.Component),
		cmp.Compare(m.File, other.File), cmp.Compare(m.Document, other.Document))
}

// GVK returns the object's group, version and kind.
func (m *Manifest) GVK() schema.GroupVersionKind { return m.Object.GroupVersionKind() }

// Is reports whether the object is of a group and kind, in any version.
func (m *Manifest) Is(group, kind string) bool {
	gvk := m.GVK()
	return gvk.Group == group && gvk.Kind == kind
}

// Tombstone reports whether the manifest requests that its object is deleted.
func (m *Manifest) Tombstone() bool {
	return m.Annotation(api.DeleteAnnotation) == "true"
}

// CreateOnly reports whether the object is created if missing and never updated. Like upstream, it ignores case.
func (m *Manifest) CreateOnly() bool {
	return strings.EqualFold(m.Annotation(api.CreateOnlyAnnotation), "true")
}

// Workload reports whether the object is a Deployment, DaemonSet or StatefulSet, whose pods a rollout may wait for.
func (m *Manifest) Workload() bool {
	gvk := m.GVK()
	return gvk.Group == "apps" && (gvk.Kind == "Deployment" || gvk.Kind == "DaemonSet" || gvk.Kind == "StatefulSet")
}

// LeavesOut reports whether the manifest has no value, or null, for a field.
func (m *Manifest) LeavesOut(path ...string) bool {
	value, _, err := unstructured.NestedFieldNoCopy(m.Object.Object, path...)
	return err == nil && value == nil
}

// Annotation returns the value of one annotation. GetAnnotations would copy all of them for each of a thousand manifests.
func (m *Manifest) Annotation(key string) string {
	metadata, _ := m.Object.Object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	value, _ := annotations[key].(string)
	return value
}

// String returns text such as `0000_50_dns_02-deployment.yaml[2] Deployment.apps openshift-dns/dns`.
func (m *Manifest) String() string { return fmt.Sprintf("%s[%d] %s", m.File, m.Document, m.ID()) }

// Texts returns all strings and field names in a value inside an object, sorted by field.
func Texts(value any) iter.Seq[string] {
	return func(yield func(string) bool) { eachText(value, yield) }
}

func eachText(value any, yield func(string) bool) bool {
	switch v := value.(type) {
	case string:
		return yield(v)
	case []any:
		for _, item := range v {
			if !eachText(item, yield) {
				return false
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if !yield(key) || !eachText(v[key], yield) {
				return false
			}
		}
	}
	return true
}

// IsEmpty reports whether a value inside an object is absent, an empty list or an empty map.
func IsEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
