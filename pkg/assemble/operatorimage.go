package assemble

import (
	"compress/gzip"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// OperatorImageOptions say what the operator's image is made of.
type OperatorImageOptions struct {
	// Binary is cvo, linked statically for Linux.
	Binary []byte
	// Certificates are the authorities that registries are trusted by, as PEM.
	Certificates []byte
	// Manifests are the operator's own set.
	Manifests []File
	// Architecture is that of the binary, as Go names it.
	Architecture string
	// Version and Revision are those of the source, for labels.
	Version, Revision string
	// Created is the time of the image and of its files.
	Created time.Time
}

// OperatorImage makes the image that releases are built on: certificates, the operator and its manifests, and nothing
// else. It is what the Dockerfile describes, for machines without a container engine. What changes least lies lowest,
// and the manifests highest, because readers of a release look from the top and need not load the binary.
func OperatorImage(opts OperatorImageOptions) (v1.Image, error) {
	created := opts.Created.UTC().Truncate(time.Second)
	layers := []struct {
		comment string
		entries []entry
	}{
		{"Certificates of authorities", []entry{
			{name: "etc/", mode: 0o755},
			{name: "etc/ssl/", mode: 0o755},
			{name: "etc/ssl/certs/", mode: 0o755},
			{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o444, data: opts.Certificates},
		}},
		{"Version operator", []entry{{name: "cvo", mode: 0o755, data: opts.Binary}}},
		{"Manifests of the version operator", folderEntries(operatorFolder, 0o755, opts.Manifests)},
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: opts.Architecture, Created: v1.Time{Time: created}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/cvo"}, User: "65532:65532", WorkingDir: "/", Env: []string{"PATH=/"},
			Labels: operatorLabels(opts),
		},
	})
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		// The best compression takes three times as long for less than half a percent.
		layer, err := fileLayer(created, l.entries, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression))
		if err != nil {
			return nil, err
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: created}, Comment: l.comment},
		})
		if err != nil {
			return nil, err
		}
	}
	return img, nil
}

// operatorLabels are those of the Dockerfile. io.openshift.release.operator is none of them: it says that manifests/ is
// copied into releases, and what this image has there is rendered where it lies.
func operatorLabels(opts OperatorImageOptions) map[string]string {
	labels := map[string]string{
		"io.k8s.description":                   "Installs and updates a platform from signed release images.",
		"io.k8s.display-name":                  "Cluster Version Operator",
		"org.opencontainers.image.description": "Installs and updates a platform from signed release images.",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://github.com/cluster-version/cvo",
		"org.opencontainers.image.title":       "Cluster Version Operator",
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

// OperatorIndex lists the operator's images for several architectures, in the order given. Releases are built on all of
// them at once.
func OperatorIndex(images []v1.Image) (v1.ImageIndex, error) {
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
