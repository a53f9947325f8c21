// Package derive derives a new release from an existing release, or reproduces it. It reads the original, including its own layer. It
// returns the base image and the options for package assemble. It compares a reproduced release with the original, byte for byte.
package derive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	imagelayer "github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// metadataFile is the name of the file with the release metadata.
const metadataFile = "release-metadata"

// Original is an existing release, from which another one is derived.
type Original struct {
	// Image is the release. For an index, Digest is the digest of the index.
	Image release.Image
	// Version, Previous, Next and Metadata come from the release metadata.
	Version        string
	Previous, Next []string
	Metadata       map[string]any
	// Images are the release's component images.
	Images []imagev1.TagReference
	// BaseDigest is the digest of the base image; empty if it is not recorded.
	BaseDigest release.Digest

	stream *imagev1.ImageStream
	img    v1.Image
	digest release.Digest
	files  map[string]layerFile
}

// layerFile is a file in a release's layer.
type layerFile struct {
	header *tar.Header
	data   []byte
}

// Open opens a release in a registry, by tag or digest, or in an OCI layout. For an index, it opens the image for the Reader's platform.
func Open(ctx context.Context, images *image.Reader, ref string) (*Original, error) {
	resolved, err := images.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	e, err := open(ctx, images, resolved)
	if err != nil {
		return nil, fmt.Errorf("reading release %s: %w", ref, err)
	}
	return e, nil
}

func open(ctx context.Context, images *image.Reader, img release.Image) (*Original, error) {
	e := &Original{Image: img}
	var err error
	if e.img, err = images.Open(ctx, img); err != nil {
		return nil, err
	}
	digest, err := e.img.Digest()
	if err != nil {
		return nil, err
	}
	e.digest = release.Digest(digest.String())
	config, err := e.img.ConfigFile()
	if err != nil {
		return nil, err
	}
	e.BaseDigest = release.Digest(config.Config.Labels[api.ReleaseBaseLabel])
	layers, err := e.img.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 {
		return nil, errors.New("the image has no layers, so it is not a release")
	}
	// A release's files are in its last layer. Existing clients also rely on this and read only that layer.
	if e.files, err = readReleaseLayer(layers[len(layers)-1]); err != nil {
		return nil, err
	}
	return e, e.parse()
}

func (e *Original) parse() error {
	for _, name := range []string{input.ReferencesFile, metadataFile} {
		if _, ok := e.files[name]; !ok {
			return fmt.Errorf("the last layer has no %s/%s, so the image is not a release", payload.ReleaseDir, name)
		}
	}
	var err error
	if e.stream, err = payload.ParseReferences(e.files[input.ReferencesFile].data); err != nil {
		return err
	}
	e.Images = e.stream.Spec.Tags
	object, err := assemble.ParseMetadata(string(e.files[metadataFile].data))
	if err != nil {
		return fmt.Errorf("%s: %w", metadataFile, err)
	}
	m, err := payload.ParseMetadata(e.files[metadataFile].data)
	if err != nil {
		return err
	}
	e.Version, e.Previous, e.Next = m.Version, m.Previous, m.Next
	e.Metadata, _ = object["metadata"].(map[string]any) // preserves the format of numbers
	return nil
}

// readReleaseLayer reads the files in a release's layer. It enforces the same limits as readers of releases.
func readReleaseLayer(top v1.Layer) (files map[string]layerFile, err error) {
	content, err := top.Uncompressed()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	limits := imagelayer.Limits{}.WithDefaults()
	// Headers and padding also need space.
	bounded := &io.LimitedReader{R: content, N: 2 * limits.TotalBytes}
	archive := tar.NewReader(bounded)
	files = map[string]layerFile{}
	for {
		header, err := archive.Next()
		if bounded.N <= 0 {
			return nil, fmt.Errorf("%w: the last layer has more than %d bytes", failure.ErrLimit, 2*limits.TotalBytes)
		}
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the last layer: %w", err)
		}
		dir, name := path.Split(path.Clean(header.Name))
		if header.Typeflag != tar.TypeReg || dir != payload.ReleaseDir+"/" {
			continue
		}
		if header.Size > limits.FileBytes || len(files) >= limits.Files {
			return nil, fmt.Errorf("%w: %s has %d bytes (limit %d) and is file number %d (limit %d)",
				failure.ErrLimit, header.Name, header.Size, limits.FileBytes, len(files)+1, limits.Files)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", header.Name, err)
		}
		files[name] = layerFile{header: header, data: data}
	}
}

// Options returns the options for rebuilding the release, without its components. The caller adds the components' manifests and replaces
// images.
func (e *Original) Options() (assemble.Options, error) {
	opts := assemble.Options{
		Version: e.Version, Previous: e.Previous, Next: e.Next, Metadata: e.Metadata, Images: slices.Clone(e.Images),
		Created: e.stream.CreationTimestamp.UTC(), Annotations: maps.Clone(e.stream.Annotations),
	}
	// The images were already selected when the release was built.
	for _, tag := range e.Images {
		opts.Include = append(opts.Include, tag.Name)
	}
	var err error
	if opts.ComponentVersions, err = input.ParseComponentVersions(opts.Annotations[api.ComponentVersionsLabel]); err != nil {
		return opts, fmt.Errorf("%s: %s: %w", input.ReferencesFile, api.ComponentVersionsLabel, err)
	}
	if opts.ComponentDisplayNames, err = input.ParseDisplayNames(opts.Annotations[api.ComponentDisplayNamesLabel]); err != nil {
		return opts, fmt.Errorf("%s: %s: %w", input.ReferencesFile, api.ComponentDisplayNamesLabel, err)
	}
	delete(opts.Annotations, api.ComponentVersionsLabel)
	delete(opts.Annotations, api.ComponentDisplayNamesLabel)
	return opts, nil
}

// Derive records the original in the options of a new release. For a layout, it records only the digest, because a local folder means
// nothing elsewhere.
func (e *Original) Derive(opts *assemble.Options) {
	from := e.Image.ByDigest()
	if layout.IsReference(e.Image.Pullspec) {
		from = string(e.Image.Digest)
	}
	opts.FromRelease(from)
}

// Platforms returns the base images of the release, one for each platform. It returns none if the release is not an index.
func (e *Original) Platforms(ctx context.Context, images *image.Reader) ([]assemble.Platform, error) {
	return assemble.EachPlatform(ctx, images, e.Image, func(child release.Image) (v1.Image, release.Digest, error) {
		one, err := open(ctx, images, child)
		if err != nil {
			return nil, "", err
		}
		base, err := one.Base()
		return base, one.BaseDigest, err
	})
}

// BaseImage returns the component image that the release is built on; ok is false if there is none.
func (e *Original) BaseImage() (tag imagev1.TagReference, ok bool) {
	for _, tag := range e.Images {
		if _, digest, named := input.ByDigest(tag); named && release.Digest(digest) == e.BaseDigest {
			return tag, true
		}
	}
	return tag, false
}

// Base reconstructs the base image by removing the release's last layer. The result has a different digest from the original base image,
// because it has the release's configuration. BaseDigest is the digest of the original base image.
func (e *Original) Base() (v1.Image, error) {
	if _, err := release.ParseDigest(string(e.BaseDigest)); err != nil {
		return nil, fmt.Errorf("the base image of release %s is unknown (no label %s): specify it: %w", e.Image.Pullspec, api.ReleaseBaseLabel, err)
	}
	config, err := e.img.ConfigFile()
	if err != nil {
		return nil, err
	}
	layers, err := e.img.Layers()
	if err != nil {
		return nil, err
	}
	return layer.Stack(config.DeepCopy(), layers[:len(layers)-1])
}

// Runs reports whether the release image can run, which means that its base is an operator image.
func (e *Original) Runs() (bool, error) {
	config, err := e.img.ConfigFile()
	if err != nil {
		return false, err
	}
	return len(config.Config.Entrypoint)+len(config.Config.Cmd) > 0, nil
}

// missing returns the names of the release's manifests that r lacks.
func (e *Original) missing(r *assemble.Result) []string {
	have := map[string]bool{}
	for _, f := range r.Files() {
		if dir, name := path.Split(f.Name); dir == payload.ReleaseDir+"/" {
			have[name] = true
		}
	}
	var names []string
	for name := range e.files {
		if !have[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// MissingFrom returns the names of the release's manifests that the components lack.
func (e *Original) MissingFrom(components []input.Component) ([]string, error) {
	opts, err := e.Options()
	if err != nil {
		return nil, err
	}
	opts.Components, opts.AllowMissingImages, opts.BaseDigest = components, true, e.BaseDigest
	if opts.Base, err = e.Base(); err != nil {
		return nil, err
	}
	r, err := assemble.New(opts)
	if err != nil {
		return nil, err
	}
	return e.missing(r), nil
}

// DifferenceError describes how a rebuilt release differs from the original.
type DifferenceError struct {
	Want, Got   release.Digest
	Differences []string
}

// maxDifferences is the maximum number of differences in an error message.
const maxDifferences = 20

func (e *DifferenceError) Error() string {
	list := e.Differences
	more := ""
	if n := len(list) - maxDifferences; n > 0 {
		list, more = list[:maxDifferences], fmt.Sprintf("\n  and %d more", n)
	}
	return fmt.Sprintf("the release could not be reproduced from its inputs: expected %s, got %s:\n  %s%s", e.Want, e.Got, strings.Join(list, "\n  "), more)
}

// Compare returns nil if a rebuilt release is identical to the original, or else a DifferenceError.
func (e *Original) Compare(r *assemble.Result) error {
	got, want := r.Digest, e.Image.Digest
	if r.Index == nil {
		want = e.digest // for an index, the digest of the image that Open read
	}
	if got == want {
		return nil
	}
	differences, err := e.differences(r)
	if err != nil {
		return fmt.Errorf("the release could not be reproduced from its inputs (expected %s, got %s); comparing the two: %w", want, got, err)
	}
	return &DifferenceError{Want: want, Got: got, Differences: differences}
}
