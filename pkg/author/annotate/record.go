package annotate

import (
	"encoding/json"
	"slices"

	"github.com/cluster-version/cvo/pkg/api"
)

// Record lists the annotated manifests of a release. A release carries it in its file image-references.
type Record struct {
	Profile string `json:"profile"`
	// Manifests are texts such as "web/web.yaml: Namespace web", with the component and the author's file.
	Manifests []string `json:"manifests"`
}

// Annotation returns the record as the value of api.AnnotatedManifestsAnnotation.
func (r Record) Annotation() (string, error) {
	r.Manifests = slices.Sorted(slices.Values(r.Manifests))
	data, err := json.Marshal(r)
	return string(data), err
}

// ParseRecord returns the record in annotations of image-references. It is empty if there is none, or if it cannot be read.
func ParseRecord(annotations map[string]string) Record {
	var r Record
	if json.Unmarshal([]byte(annotations[api.AnnotatedManifestsAnnotation]), &r) != nil {
		return Record{}
	}
	return r
}
