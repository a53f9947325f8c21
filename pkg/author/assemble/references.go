package assemble

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	imagev1 "github.com/openshift/api/image/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/payload"
)

// references renders the file image-references: an ImageStream of the component images, sorted by name.
func references(opts Options, created time.Time, images []imagev1.TagReference) ([]byte, error) {
	stream := imagev1.ImageStream{
		TypeMeta:   metav1.TypeMeta{APIVersion: "image.openshift.io/v1", Kind: "ImageStream"},
		ObjectMeta: metav1.ObjectMeta{Name: opts.Version, CreationTimestamp: metav1.NewTime(created), Annotations: maps.Clone(opts.Annotations)},
	}
	for key, values := range map[string]map[string]string{
		api.ComponentVersionsLabel: opts.ComponentVersions, api.ComponentDisplayNamesLabel: opts.ComponentDisplayNames,
	} {
		if len(values) > 0 {
			metav1.SetMetaDataAnnotation(&stream.ObjectMeta, key, input.FormatPairs(values))
		}
	}
	stream.Spec.Tags = slices.SortedFunc(slices.Values(images), func(a, b imagev1.TagReference) int {
		return strings.Compare(a.Name, b.Name)
	})
	return indented(input.ReferencesFile, stream)
}

// releaseMetadata is release-metadata for writing. payload.Metadata is for reading.
type releaseMetadata struct {
	Kind     string         `json:"kind"`
	Version  string         `json:"version"`
	Previous []string       `json:"previous"`
	Next     []string       `json:"next,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

func metadata(opts Options) ([]byte, error) {
	return indented(metadataFile, releaseMetadata{
		Kind: payload.MetadataKind, Version: opts.Version,
		// The list is empty instead of null, because clients distinguish the two.
		Previous: append([]string{}, distinct(opts.Previous)...),
		Next:     distinct(opts.Next),
		Metadata: opts.Metadata,
	})
}

func distinct(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// indented renders JSON in the format of release files: with two spaces and no final newline.
func indented(name string, value any) ([]byte, error) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	return data, nil
}
