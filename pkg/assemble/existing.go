package assemble

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
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Annotations of image-references that say where its list of images comes from.
const (
	fromReleaseAnnotation     = "release.openshift.io/from-release"
	fromImageStreamAnnotation = "release.openshift.io/from-image-stream"
	overrideAnnotation        = "io.openshift.release.override"
)

// Existing is a release that another one is made from.
type Existing struct {
	// Image is the release; of an index, Digest is the index's.
	Image release.Image
	// Version, Previous, Next and Metadata are those of its release-metadata.
	Version        string
	Previous, Next []string
	Metadata       map[string]any
	// Images are its component images.
	Images []imagev1.TagReference
	// BaseDigest is the digest of what it was built on, empty if it does not say.
	BaseDigest release.Digest

	stream *imagev1.ImageStream
	img    v1.Image
	digest release.Digest
	layer  map[string]layerFile
}

// layerFile is a file of a release's layer.
type layerFile struct {
	header *tar.Header
	data   []byte
}

// ReadExisting opens a release in a registry, by tag or digest, or in an OCI layout. Of an index it takes the image for
// the Reader's platform.
func ReadExisting(ctx context.Context, images *image.Reader, ref string) (*Existing, error) {
	resolved, err := images.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	e, err := openExisting(ctx, images, resolved)
	if err != nil {
		return nil, fmt.Errorf("reading release %s: %w", ref, err)
	}
	return e, nil
}

func openExisting(ctx context.Context, images *image.Reader, img release.Image) (*Existing, error) {
	e := &Existing{Image: img}
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
		return nil, errors.New("it has no layers, so it is no release")
	}
	// A release's files are its last layer (the same assumption lets existing clients read but that one).
	if e.layer, err = readReleaseLayer(layers[len(layers)-1]); err != nil {
		return nil, err
	}
	return e, e.parse()
}

func (e *Existing) parse() error {
	for _, name := range []string{referencesFile, metadataFile} {
		if _, ok := e.layer[name]; !ok {
			return fmt.Errorf("its last layer has no %s/%s, so it is no release", releaseFolder, name)
		}
	}
	var err error
	if e.stream, err = payload.ParseReferences(e.layer[referencesFile].data); err != nil {
		return err
	}
	e.Images = e.stream.Spec.Tags
	object, err := ParseMetadata(string(e.layer[metadataFile].data))
	if err != nil {
		return fmt.Errorf("%s: %w", metadataFile, err)
	}
	m, err := payload.ParseMetadata(e.layer[metadataFile].data)
	if err != nil {
		return err
	}
	e.Version, e.Previous, e.Next = m.Version, m.Previous, m.Next
	e.Metadata, _ = object["metadata"].(map[string]any) // with its numbers as they were written
	return nil
}

// readReleaseLayer reads the files of a release's layer, within the limits of those who read a release.
func readReleaseLayer(layer v1.Layer) (files map[string]layerFile, err error) {
	content, err := layer.Uncompressed()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	limits := image.Limits{}.WithDefaults()
	// Headers and padding take their part as well.
	bounded := &io.LimitedReader{R: content, N: 2 * limits.TotalBytes}
	archive := tar.NewReader(bounded)
	files = map[string]layerFile{}
	for {
		header, err := archive.Next()
		if bounded.N <= 0 {
			return nil, fmt.Errorf("%w: its last layer has more than %d bytes", image.ErrLimit, 2*limits.TotalBytes)
		}
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading its last layer: %w", err)
		}
		dir, name := path.Split(path.Clean(header.Name))
		if header.Typeflag != tar.TypeReg || dir != releaseFolder+"/" {
			continue
		}
		if header.Size > limits.FileBytes || len(files) >= limits.Files {
			return nil, fmt.Errorf("%w: %s has %d bytes, the limit is %d, and it is file %d, the limit is %d",
				image.ErrLimit, header.Name, header.Size, limits.FileBytes, len(files)+1, limits.Files)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", header.Name, err)
		}
		files[name] = layerFile{header: header, data: data}
	}
}

// Options are those that make the release again, but for its components: put their manifests, and images in place of
// others, and assemble.
func (e *Existing) Options() (Options, error) {
	opts := Options{
		Version: e.Version, Previous: e.Previous, Next: e.Next, Metadata: e.Metadata, Images: slices.Clone(e.Images),
		Created: e.stream.CreationTimestamp.UTC(), Annotations: maps.Clone(e.stream.Annotations),
	}
	// Which images belong to it was decided when it was made.
	for _, tag := range e.Images {
		opts.Include = append(opts.Include, tag.Name)
	}
	var err error
	if opts.ComponentVersions, err = ParseComponentVersions(opts.Annotations[api.ComponentVersionsLabel]); err != nil {
		return opts, fmt.Errorf("%s: %s: %w", referencesFile, api.ComponentVersionsLabel, err)
	}
	if opts.ComponentDisplayNames, err = ParseDisplayNames(opts.Annotations[api.ComponentDisplayNamesLabel]); err != nil {
		return opts, fmt.Errorf("%s: %s: %w", referencesFile, api.ComponentDisplayNamesLabel, err)
	}
	delete(opts.Annotations, api.ComponentVersionsLabel)
	delete(opts.Annotations, api.ComponentDisplayNamesLabel)
	return opts, nil
}

// Derive notes in the options of another release that it was made from this one. A folder on somebody's machine means
// nothing to others, so of a layout only the digest is told.
func (e *Existing) Derive(opts *Options) {
	from := e.Image.ByDigest()
	if image.IsLayout(e.Image.Pullspec) {
		from = string(e.Image.Digest)
	}
	opts.annotate(fromReleaseAnnotation, from)
}

// Override puts an image in place of another of the list, or adds it, and marks it as existing clients do.
func (o *Options) Override(component, pullspec string) {
	o.Images = slices.DeleteFunc(slices.Clone(o.Images), func(tag imagev1.TagReference) bool { return tag.Name == component })
	tag := ImageTag(component, pullspec)
	tag.Annotations = map[string]string{overrideAnnotation: "true"}
	o.Images = append(o.Images, tag)
}

// FromImageStream notes in the options that the list of images is that of an image stream.
func (o *Options) FromImageStream(stream *imagev1.ImageStream) {
	o.annotate(fromImageStreamAnnotation, strings.TrimPrefix(stream.Namespace+"/"+stream.Name, "/"))
}

func (o *Options) annotate(key, value string) {
	if value == "" {
		return
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[key] = value
}

// BaseImage finds among the component images the one that the release was built on.
func (e *Existing) BaseImage() (tag imagev1.TagReference, ok bool) {
	for _, tag := range e.Images {
		if _, digest, named := byDigest(tag); named && release.Digest(digest) == e.BaseDigest {
			return tag, true
		}
	}
	return tag, false
}

// Base is what the release was built on, as far as the release itself tells: its image without the last layer. It has
// another digest, because the configuration is the release's; BaseDigest is the right one.
func (e *Existing) Base() (v1.Image, error) {
	if _, err := release.ParseDigest(string(e.BaseDigest)); err != nil {
		return nil, fmt.Errorf("release %s does not say what it was built on (label %s): name its base image: %w", e.Image.Pullspec, api.ReleaseBaseLabel, err)
	}
	config, err := e.img.ConfigFile()
	if err != nil {
		return nil, err
	}
	layers, err := e.img.Layers()
	if err != nil {
		return nil, err
	}
	return dockerLayers(config.DeepCopy(), layers[:len(layers)-1])
}

// Runs reports whether the release's image can be run, which means that it was built on an operator's image.
func (e *Existing) Runs() (bool, error) {
	config, err := e.img.ConfigFile()
	if err != nil {
		return false, err
	}
	return len(config.Config.Entrypoint)+len(config.Config.Cmd) > 0, nil
}

// missing names the manifests of the release that another one lacks.
func (e *Existing) missing(r *Result) []string {
	have := map[string]bool{referencesFile: true, metadataFile: true}
	for _, f := range r.manifests {
		have[f.Name] = true
	}
	var names []string
	for name := range e.layer {
		if !have[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Unbrought names the manifests of the release that components do not bring, if it is made of them.
func (e *Existing) Unbrought(components []Component) ([]string, error) {
	opts, err := e.Options()
	if err != nil {
		return nil, err
	}
	opts.Components, opts.AllowMissingImages, opts.BaseDigest = components, true, e.BaseDigest
	if opts.Base, err = e.Base(); err != nil {
		return nil, err
	}
	r, err := New(opts)
	if err != nil {
		return nil, err
	}
	return e.missing(r), nil
}

// DifferenceError says in what a release that was made again is not what it was.
type DifferenceError struct {
	Want, Got   release.Digest
	Differences []string
}

// maxDifferences bounds how many an error message lists.
const maxDifferences = 20

func (e *DifferenceError) Error() string {
	list := e.Differences
	more := ""
	if n := len(list) - maxDifferences; n > 0 {
		list, more = list[:maxDifferences], fmt.Sprintf("\n  and %d more", n)
	}
	return fmt.Sprintf("the release could not be reproduced from its inputs: it is %s, they make %s:\n  %s%s", e.Want, e.Got, strings.Join(list, "\n  "), more)
}

// Compare returns nil if a release is the same, to the last byte, and otherwise a DifferenceError.
func (e *Existing) Compare(r *Result) error {
	got, want := r.Digest, e.Image.Digest
	if r.Index == nil {
		want = e.digest // of an index, the image that was looked at
	}
	if got == want {
		return nil
	}
	differences, err := e.differences(r)
	if err != nil {
		return fmt.Errorf("the release could not be reproduced from its inputs (it is %s, they make %s), and comparing them: %w", want, got, err)
	}
	return &DifferenceError{Want: want, Got: got, Differences: differences}
}
