package assemble

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// The folders and files of a release image.
const (
	operatorFolder = "manifests"
	releaseFolder  = "release-manifests"
	metadataFile   = "release-metadata"
)

// build puts one layer with the release on top of the base, or on each of several.
func (r *Result) build(opts Options) error {
	var err error
	if r.layer, err = folderLayer(releaseFolder, 0o777, r.releaseFiles(), r.Created); err != nil {
		return err
	}
	if len(opts.Platforms) > 0 {
		return r.buildIndex(opts.Platforms)
	}
	base := opts.Base
	if base == nil {
		if base, err = emptyBase(r.operator, r.Created); err != nil {
			return err
		}
	}
	if r.Image, err = r.onto(base, opts.BaseDigest); err != nil {
		return err
	}
	digest, err := r.Image.Digest()
	r.Digest = release.Digest(digest.String())
	return err
}

// buildIndex lists the releases of all platforms, in the order of their bases.
func (r *Result) buildIndex(platforms []Platform) error {
	index := mutate.IndexMediaType(empty.Index, types.DockerManifestList)
	for i, p := range platforms {
		img, err := r.onto(p.Base, p.BaseDigest)
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

// onto puts the release's layer on top of a base. Labels are replaced as a whole: those of the base describe another
// image.
func (r *Result) onto(base v1.Image, digest release.Digest) (v1.Image, error) {
	if digest == "" {
		own, err := base.Digest()
		if err != nil {
			return nil, fmt.Errorf("reading the base image: %w", err)
		}
		digest = release.Digest(own.String())
	}
	img, err := dockerImage(base, r.Created, map[string]string{
		api.ReleaseLabel:     r.Version,
		api.ReleaseBaseLabel: string(digest),
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{
		Layer:   r.layer,
		History: v1.History{Created: v1.Time{Time: r.Created}, Comment: "Release image"},
	})
}

// releaseFiles is the folder release-manifests/ in the order of its layer: metadata first, so that a reader that
// streams the layer knows early what it reads.
func (r *Result) releaseFiles() []File {
	return append([]File{
		{Name: referencesFile, Data: r.References},
		{Name: metadataFile, Data: r.Metadata},
	}, r.manifests...)
}

// emptyBase is an image of the operator's manifests alone.
func emptyBase(operator []File, created time.Time) (v1.Image, error) {
	layer, err := folderLayer(operatorFolder, 0o755, operator, created)
	if err != nil {
		return nil, err
	}
	img, err := dockerImage(empty.Image, created, nil)
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layer)
}

// dockerImage rebuilds an image with Docker's media types, which every registry and runtime takes, keeping how it is
// run (entrypoint, environment, user) and replacing where it came from (labels, history, times).
func dockerImage(from v1.Image, created time.Time, labels map[string]string) (v1.Image, error) {
	config, err := from.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of the base image: %w", err)
	}
	layers, err := from.Layers()
	if err != nil {
		return nil, fmt.Errorf("reading the layers of the base image: %w", err)
	}
	config = &v1.ConfigFile{
		OS: config.OS, OSVersion: config.OSVersion, Architecture: config.Architecture, Variant: config.Variant,
		Created: v1.Time{Time: created}, Config: *config.Config.DeepCopy(),
	}
	config.Config.Labels, config.Config.Image, config.Config.Hostname = labels, "", ""
	if config.OS == "" {
		config.OS, config.Architecture = "linux", "amd64"
	}
	return dockerLayers(config, layers)
}

// dockerLayers is an image of a configuration and layers.
func dockerLayers(config *v1.ConfigFile, layers []v1.Layer) (v1.Image, error) {
	config.RootFS, config.History = v1.RootFS{Type: "layers"}, nil
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.DockerManifestSchema2), types.DockerConfigJSON)
	img, err := mutate.ConfigFile(img, config)
	if err != nil {
		return nil, err
	}
	var adds []mutate.Addendum
	for _, layer := range layers {
		mediaType, err := dockerLayerType(layer)
		if err != nil {
			return nil, err
		}
		adds = append(adds, mutate.Addendum{Layer: layer, MediaType: mediaType})
	}
	return mutate.Append(img, adds...)
}

func dockerLayerType(layer v1.Layer) (types.MediaType, error) {
	mediaType, err := layer.MediaType()
	if err != nil {
		return "", fmt.Errorf("reading the layers of the base image: %w", err)
	}
	switch mediaType {
	case types.DockerLayer, types.OCILayer:
		return types.DockerLayer, nil
	case types.DockerUncompressedLayer, types.OCIUncompressedLayer:
		return types.DockerUncompressedLayer, nil
	}
	return "", fmt.Errorf("the base image has a layer of type %s, which Docker's image format does not know: build it with gzip layers", mediaType)
}

// entry is one entry of a layer; a name that ends in a slash is a folder.
type entry struct {
	name string
	mode int64
	data []byte
}

// folderLayer is a layer of one folder: the folder itself, then its files, read-only.
func folderLayer(folder string, mode int64, files []File, created time.Time) (v1.Layer, error) {
	return fileLayer(created, folderEntries(folder, mode, files))
}

func folderEntries(folder string, mode int64, files []File) []entry {
	entries := []entry{{name: folder + "/", mode: mode}}
	for _, f := range files {
		entries = append(entries, entry{name: folder + "/" + f.Name, mode: 0o444, data: f.Data})
	}
	return entries
}

// fileLayer is a compressed layer of entries in the order given, owned by root, all of one time.
func fileLayer(created time.Time, entries []entry, opts ...tarball.LayerOption) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, e := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Size: int64(len(e.data)), Mode: e.mode, ModTime: created}
		if strings.HasSuffix(e.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("writing %s to a layer: %w", e.name, err)
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, fmt.Errorf("writing %s to a layer: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("writing a layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	return tarball.LayerFromOpener(open, append(opts, tarball.WithCompressedCaching)...)
}

// archiveFS offers folders as a file system in memory, which a zip archive is.
func archiveFS(folders map[string][]File) (fs.FS, error) {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, folder := range []string{operatorFolder, releaseFolder} {
		if _, err := w.CreateHeader(&zip.FileHeader{Name: folder + "/"}); err != nil {
			return nil, err
		}
		for _, f := range folders[folder] {
			entry, err := w.CreateHeader(&zip.FileHeader{Name: folder + "/" + f.Name, Method: zip.Store})
			if err != nil {
				return nil, err
			}
			if _, err := entry.Write(f.Data); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
}
