// Package manifest holds one manifest of a release: parsing it from a file's bytes, its identity, the runlevel and
// component that its file name gives it, and the rules that decide whether a cluster includes it. It takes bytes and
// cluster settings and returns values; it reads no files and talks to no cluster.
package manifest

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
)

// Manifest is one object of a release. Treat it as read-only: it is shared by everything that works on a release.
type Manifest struct {
	// File is the base name of the file it came from.
	File string
	// Document is its position in that file, from 1; items of an expanded List share their document.
	Document int
	// Runlevel and Component come from the file name, see ParseName.
	Runlevel  int
	Component string
	// Raw is what the payload hash is computed over: the document as compact JSON with sorted keys, or, if the file is
	// written as JSON (whatever its extension), the document's bytes as they stand in it, without surrounding space.
	// Loading a payload drops it: with the object it would double what an operator holds of a release.
	Raw []byte
	// Content is the SHA-256 of Raw. It changes when the manifest does.
	Content [sha256.Size]byte
	// Object is the decoded document.
	Object *unstructured.Unstructured
}

// ID identifies an object in a cluster; the API version is left out, because an object is the same in all of them.
type ID struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String reads like `Deployment.apps openshift-x/y`.
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

// GVK returns the object's group, version and kind.
func (m *Manifest) GVK() schema.GroupVersionKind { return m.Object.GroupVersionKind() }

// Is reports whether the object is of that group and kind, whatever its version.
func (m *Manifest) Is(group, kind string) bool {
	gvk := m.GVK()
	return gvk.Group == group && gvk.Kind == kind
}

// Tombstone reports whether the manifest asks for the object's deletion.
func (m *Manifest) Tombstone() bool {
	return m.annotation(api.DeleteAnnotation) == "true"
}

// CreateOnly reports whether the object is created if missing and never changed after. Upstream compares without case.
func (m *Manifest) CreateOnly() bool {
	return strings.EqualFold(m.annotation(api.CreateOnlyAnnotation), "true")
}

// annotation reads one annotation; GetAnnotations copies all of them, and a pass asks a thousand manifests.
func (m *Manifest) annotation(key string) string {
	metadata, _ := m.Object.Object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	value, _ := annotations[key].(string)
	return value
}

// String reads like `0000_50_dns_02-deployment.yaml[2] Deployment.apps openshift-dns/dns`.
func (m *Manifest) String() string { return fmt.Sprintf("%s[%d] %s", m.File, m.Document, m.ID()) }
