package assemble

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// ProgramImageOptions say what the image of one program is made of.
type ProgramImageOptions struct {
	// Name is that of the program, which lies at the top of the image.
	Name string
	// Binary is the program, linked statically for Linux.
	Binary []byte
	// Architecture is that of the binary, as Go names it.
	Architecture string
	// Files lie beside the program; their names are paths from the top of the image. Everybody may read them.
	Files []File
	// Folders are paths from the top of the image that the program may write to; default none.
	Folders []string
	// Created is the time of the image and of its files.
	Created time.Time
}

// ProgramImage makes an image that holds one static program, with its files, and runs it as a user that is nobody.
func ProgramImage(opts ProgramImageOptions) (v1.Image, error) {
	created := opts.Created.UTC().Truncate(time.Second)
	entries := []entry{{name: opts.Name, mode: 0o755, data: opts.Binary}}
	for _, f := range opts.Files {
		entries = append(entries, entry{name: f.Name, mode: 0o444, data: f.Data})
	}
	for _, folder := range opts.Folders {
		entries = append(entries, entry{name: folder + "/", mode: 0o1777})
	}
	layer, err := fileLayer(created, entries)
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
	config.Config = v1.Config{Entrypoint: []string{"/" + opts.Name}, User: "65532:65532"}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layer)
}
