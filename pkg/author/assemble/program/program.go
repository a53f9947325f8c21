// Package program builds images with a single static program, such as the version operator's image, on which releases are built. It takes
// the program's bytes and files. It compiles nothing. Package publish writes the image.
package program

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
)

// Options define the content of an image.
type Options struct {
	// Name is the name of the program, which is at the root of the image.
	Name string
	// Binary is the program, linked statically for Linux.
	Binary []byte
	// Architecture is the architecture of the binary, as in GOARCH.
	Architecture string
	// Files are additional, world-readable files. Their names are paths from the root of the image.
	Files []input.File
	// Folders are writable folders, as paths from the root of the image; default none.
	Folders []string
	// Created is the time of the image and its files.
	Created time.Time
}

// Image builds an image with a static program and its files. The program runs as an unprivileged user.
func Image(opts Options) (v1.Image, error) {
	created := opts.Created.UTC().Truncate(time.Second)
	entries := []layer.Entry{{Name: opts.Name, Mode: 0o755, Data: opts.Binary}}
	for _, f := range opts.Files {
		entries = append(entries, layer.Entry{Name: f.Name, Mode: 0o444, Data: f.Data})
	}
	for _, folder := range opts.Folders {
		entries = append(entries, layer.Entry{Name: folder + "/", Mode: 0o1777})
	}
	content, err := layer.New(created, entries)
	if err != nil {
		return nil, err
	}
	img, err := layer.Image(empty.Image, created, nil)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture = opts.Architecture
	config.Config = v1.Config{Entrypoint: []string{"/" + opts.Name}, User: "65532:65532"}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, content)
}
