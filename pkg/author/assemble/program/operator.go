package program

import (
	"compress/gzip"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
	"github.com/cluster-version/cvo/pkg/payload"
)

// ProjectOptions define the content of the images of this project.
type ProjectOptions struct {
	// Binary is the program, linked statically for Linux.
	Binary []byte
	// Certificates are the PEM certificate authorities for registries. The node stage needs none.
	Certificates []byte
	// Manifests are the manifests of the program; nil for an operator's image without them, to which a release adds its own.
	Manifests []input.File
	// Architecture is the architecture of the binary, as in GOARCH.
	Architecture string
	// Version and Revision identify the source in labels; both may be empty.
	Version, Revision string
	// Created is the time of the image and its files.
	Created time.Time
}

// Operator builds the base image for releases. It contains only certificates, the operator and the operator's manifests. It matches the
// Dockerfile, for machines without a container engine. Layers that rarely change are at the bottom. The manifests are at the top, because
// readers of a release start there and need not load the binary.
func Operator(opts ProjectOptions) (v1.Image, error) {
	layers := []content{
		{"CA certificates", []layer.Entry{
			{Name: "etc/", Mode: 0o755},
			{Name: "etc/ssl/", Mode: 0o755},
			{Name: "etc/ssl/certs/", Mode: 0o755},
			{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o444, Data: opts.Certificates},
		}},
		{"Version operator", []layer.Entry{{Name: "cvo", Mode: 0o755, Data: opts.Binary}}},
	}
	if opts.Manifests != nil {
		layers = append(layers, content{"Manifests of the version operator", layer.Folder(payload.OperatorDir, 0o755, opts.Manifests)})
	}
	return build("cvo", layers, labels(opts, "Cluster Version Operator", "Installs and updates a platform from signed release images."), opts)
}

// NodeStage builds the component image of the node stage, with its program and manifests. Its label makes `cvo release new` copy the manifests
// into releases.
func NodeStage(opts ProjectOptions) (v1.Image, error) {
	const name = "cvo-node"
	all := labels(opts, "Node stage", "Updates the nodes of a platform.")
	all[api.OperatorLabel] = "true"
	return build(name, []content{
		{"Node stage", []layer.Entry{{Name: name, Mode: 0o755, Data: opts.Binary}}},
		{"Manifests of the node stage", layer.Folder(payload.OperatorDir, 0o755, opts.Manifests)},
	}, all, opts)
}

// build returns an image with these layers, which runs the program with a name.
func build(name string, layers []content, labels map[string]string, opts ProjectOptions) (v1.Image, error) {
	created := opts.Created.UTC().Truncate(time.Second)
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: opts.Architecture, Created: v1.Time{Time: created}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/" + name}, User: "65532:65532", WorkingDir: "/", Env: []string{"PATH=/"}, Labels: labels,
		},
	})
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		// The best compression takes three times as long and saves less than half a percent.
		added, err := layer.New(created, l.entries, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression))
		if err != nil {
			return nil, err
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer: added, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: created}, Comment: l.comment},
		})
		if err != nil {
			return nil, err
		}
	}
	return img, nil
}

// content is the content of one layer of an image.
type content struct {
	comment string
	entries []layer.Entry
}

// labels returns the labels in the Dockerfile. They omit api.OperatorLabel, which means that manifests/ is copied into releases: the manifests
// in the operator's image are rendered in place.
func labels(opts ProjectOptions, title, description string) map[string]string {
	labels := map[string]string{
		"io.k8s.description":                   description,
		"io.k8s.display-name":                  title,
		"org.opencontainers.image.description": description,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://github.com/cluster-version/cvo",
		"org.opencontainers.image.title":       title,
	}
	for label, value := range map[string]string{
		"org.opencontainers.image.revision": opts.Revision,
		"org.opencontainers.image.version":  opts.Version,
	} {
		if value != "" {
			labels[label] = value
		}
	}
	return labels
}

// Index returns an index of images of a program for several architectures, in the given order. A release can be built on all of them at
// once.
func Index(images []v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("reading the configuration of an image: %w", err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	return index, nil
}
