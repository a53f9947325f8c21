package assemble

import (
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// metadataFile is the name of the file with the release metadata.
const metadataFile = "release-metadata"

// build adds a layer with the release's files on top of each base.
func (r *Result) build(opts Options) error {
	var err error
	if r.Layer, err = layer.New(r.Created, layer.Folder(payload.ReleaseDir, 0o777, r.releaseFiles())); err != nil {
		return err
	}
	if !opts.based() {
		if err := r.addOperator(&opts); err != nil {
			return err
		}
	}
	if len(opts.Platforms) > 0 {
		return r.buildIndex(opts.Platforms)
	}
	if r.Image, err = r.buildOn(opts.Base, opts.BaseDigest); err != nil {
		return err
	}
	digest, err := r.Image.Digest()
	r.Digest = release.Digest(digest.String())
	return err
}

// buildIndex builds an index with the release images of all platforms, in the order of their bases.
func (r *Result) buildIndex(platforms []Platform) error {
	index := mutate.IndexMediaType(empty.Index, types.DockerManifestList)
	for i, p := range platforms {
		img, err := r.buildOn(p.Base, p.BaseDigest)
		if err != nil {
			return fmt.Errorf("for %s: %w", p.Platform, err)
		}
		if i == 0 {
			r.Image, r.base = img, p.Base
		}
		platform := p.Platform
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	r.Index = index
	digest, err := index.Digest()
	r.Digest = release.Digest(digest.String())
	return err
}

// buildOn adds the release's layer on top of a base. It replaces all labels, because the base's labels describe another image.
func (r *Result) buildOn(base v1.Image, digest release.Digest) (v1.Image, error) {
	if digest == "" {
		own, err := base.Digest()
		if err != nil {
			return nil, fmt.Errorf("reading the base image: %w", err)
		}
		digest = release.Digest(own.String())
	}
	img, err := layer.Image(base, r.Created, map[string]string{
		api.ReleaseLabel:     r.Version,
		api.ReleaseBaseLabel: string(digest),
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{
		Layer:   r.Layer,
		History: v1.History{Created: v1.Time{Time: r.Created}, Comment: "Release image"},
	})
}

// releaseFiles returns the files in release-manifests/ in the order of the layer. The metadata is first for streaming readers.
func (r *Result) releaseFiles() []input.File {
	return append([]input.File{
		{Name: input.ReferencesFile, Data: r.References},
		{Name: metadataFile, Data: r.Metadata},
	}, r.manifests...)
}

// addOperator sets the base of a release that has none: the operator's manifests on top of its programs, or of nothing.
func (r *Result) addOperator(opts *Options) error {
	files, err := layer.New(r.Created, layer.Folder(payload.OperatorDir, 0o755, r.operator))
	if err != nil {
		return err
	}
	on := func(program v1.Image) (v1.Image, error) {
		img, err := layer.Image(program, r.Created, nil)
		if err != nil {
			return nil, err
		}
		return mutate.AppendLayers(img, files)
	}
	switch len(opts.Programs) {
	case 0:
		opts.Base, err = on(empty.Image)
	case 1:
		opts.Base, err = on(opts.Programs[0].Base)
	default:
		for _, p := range opts.Programs {
			if p.Base, err = on(p.Base); err != nil {
				return fmt.Errorf("for %s: %w", p.Platform, err)
			}
			opts.Platforms = append(opts.Platforms, p)
		}
	}
	return err
}

// Platforms returns the platforms on which the release's own operator runs, such as linux/amd64, in the order of the images. It returns
// none for a release without an operator.
func (r *Result) Platforms() ([]string, error) {
	config, err := r.Image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of the release: %w", err)
	}
	switch {
	case len(config.Config.Entrypoint)+len(config.Config.Cmd) == 0:
		return nil, nil
	case r.Index == nil:
		return []string{config.Platform().String()}, nil
	}
	list, err := r.Index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the index of the release: %w", err)
	}
	var names []string
	for _, m := range list.Manifests {
		names = append(names, m.Platform.String())
	}
	return names, nil
}
