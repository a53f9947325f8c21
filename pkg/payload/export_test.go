package payload

import (
	"io/fs"

	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// ReadManifests reads the manifests of one folder as Load does, but does not filter them.
func ReadManifests(fsys fs.FS, dir, image, profile string, references map[string]string) ([]*manifest.Manifest, error) {
	names, err := manifestFiles(fsys, dir)
	if err != nil {
		return nil, err
	}
	var out []*manifest.Manifest
	t := newTemplater(image, profile, references, Options{TemplateErrors: true})
	for _, name := range names {
		r := t.readFile(fsys, name)
		if r.err != nil {
			return nil, r.err
		}
		out = append(out, r.manifests...)
	}
	return out, nil
}

// HashOf returns the payload hash of the manifests that a filter keeps.
func HashOf(manifests []*manifest.Manifest, filter inclusion.Filter) string {
	h := newHash()
	for _, m := range manifests {
		if _, excluded := filter.Unconditional().Exclude(m); !excluded {
			h.add(m)
		}
	}
	return h.String()
}
