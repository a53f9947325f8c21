package payload

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// unique ensures that each object has only one manifest. Several files may contain the same object only if the filter keeps one of them.
// ImageStreams are an exception: the original applies one file after the other and so merges their tags.
func unique(included []*manifest.Manifest) (out []*manifest.Manifest, warnings []string, errs []error) {
	positions := make(map[manifest.ID]int, len(included))
	for _, m := range included {
		id := m.ID()
		at, duplicate := positions[id]
		if !duplicate {
			positions[id] = len(out)
			out = append(out, m)
			continue
		}
		first := out[at]
		if !m.Is("image.openshift.io", "ImageStream") || m.Tombstone() != first.Tombstone() {
			errs = append(errs, fmt.Errorf("%s is in two files, %s and %s: give each its own feature set, gate or profile", id, first.File, m.File))
			continue
		}
		merged, err := mergeTags(first, m)
		if err != nil {
			errs = append(errs, fmt.Errorf("merging %s from %s and %s: %w", id, first.File, m.File, err))
			continue
		}
		out[at] = merged
		warnings = append(warnings, fmt.Sprintf("%s is in two files: the tags of %s were merged into %s", id, m.File, first.File))
	}
	return out, warnings, errs
}

// mergeTags returns the first manifest with the second one's tags added. A tag of the second one replaces a tag with the same name.
func mergeTags(first, second *manifest.Manifest) (*manifest.Manifest, error) {
	base, err := tags(first)
	if err != nil {
		return nil, err
	}
	added, err := tags(second)
	if err != nil {
		return nil, err
	}
	positions := make(map[string]int, len(base)+len(added))
	for i, tag := range base {
		positions[tag["name"].(string)] = i
	}
	for _, tag := range added {
		name := tag["name"].(string)
		if i, ok := positions[name]; ok {
			base[i] = tag
			continue
		}
		positions[name] = len(base)
		base = append(base, tag)
	}
	merged := *first
	merged.Object = first.Object.DeepCopy()
	list := make([]any, len(base))
	for i, tag := range base {
		list[i] = tag
	}
	if err := unstructured.SetNestedSlice(merged.Object.Object, list, "spec", "tags"); err != nil {
		return nil, fmt.Errorf("%s: spec: %w", first.File, err)
	}
	raw, err := json.Marshal(merged.Object.Object)
	merged.Content = sha256.Sum256(raw)
	return &merged, err
}

// tags returns a stream's tags. Each is a map with a name.
func tags(m *manifest.Manifest) ([]map[string]any, error) {
	list, _, err := unstructured.NestedSlice(m.Object.Object, "spec", "tags")
	if err != nil {
		return nil, fmt.Errorf("%s: spec.tags must be a list", m.File)
	}
	out := make([]map[string]any, len(list))
	for i, entry := range list {
		tag, ok := entry.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: spec.tags[%d] must be an object", m.File, i)
		}
		if name, ok := tag["name"].(string); !ok || name == "" {
			return nil, fmt.Errorf("%s: spec.tags[%d].name: missing", m.File, i)
		}
		out[i] = tag
	}
	return out, nil
}

// slim returns a manifest reduced to the parts that reports need.
func slim(m *manifest.Manifest) *manifest.Manifest {
	out := *m
	out.Object = &unstructured.Unstructured{Object: map[string]any{}}
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		if v, ok := m.Object.Object[key]; ok {
			out.Object.Object[key] = v
		}
	}
	return &out
}
