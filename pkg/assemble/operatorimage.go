package assemble

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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
	// Created is the time of the image and of its files.
	Created time.Time
}

// OperatorImage makes the image that releases are built on: the operator, certificates and its manifests, and nothing
// else. It is what the Dockerfile describes, for machines without a container engine.
func OperatorImage(opts OperatorImageOptions) (v1.Image, error) {
	created := opts.Created.UTC().Truncate(time.Second)
	layer, err := fileLayer(created, []entry{
		{name: "cvo", mode: 0o755, data: opts.Binary},
		{name: "etc/", mode: 0o755},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o444, data: opts.Certificates},
	})
	if err != nil {
		return nil, err
	}
	set, err := folderLayer(operatorFolder, 0o755, opts.Manifests, created)
	if err != nil {
		return nil, err
	}
	img, err := dockerImage(empty.Image, created, nil)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture = opts.Architecture
	config.Config = v1.Config{Entrypoint: []string{"/cvo"}, User: "65532:65532"}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layer, set)
}
