package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// ReleaseName is the name of the release image among the images of a release.
const ReleaseName = "release"

// architectures are the names that tags of releases use, by those of images.
var architectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// Release is what a release image says of itself, as far as mirroring is concerned.
type Release struct {
	// Image is the image to mirror: of an index, the one for the platform unless the whole index is kept.
	release.Image
	// Resolved is the digest that the pullspec stands for, and that is signed: Image's, or that of the index around it.
	Resolved release.Digest
	// Version and Architecture name it at the target; the architecture of an index is "multi".
	Version, Architecture string
	// Components are the images it consists of, by name.
	Components []Component
}

// Component is one image of a release.
type Component struct {
	Name string
	release.Image
}

// Digests are those that may be signed: of the release image, and of the index it was taken from or the images in it.
func (r *Release) Digests() []release.Digest {
	if r.Resolved == r.Digest {
		return []release.Digest{r.Digest}
	}
	return []release.Digest{r.Resolved, r.Digest}
}

// Read reads what a release image says of itself. Its digest must be resolved. Of an index, the image for the reader's
// platform is read; whole says that the index is to be mirrored nevertheless.
func Read(ctx context.Context, images *image.Reader, img release.Image, whole bool) (*Release, error) {
	repository, err := images.Repository(img)
	if err != nil {
		return nil, err
	}
	doc, err := repository.Image(ctx, img.Digest)
	if err != nil {
		return nil, err
	}
	r := &Release{Image: img, Resolved: img.Digest}
	if doc.Digest != img.Digest && whole {
		r.Architecture = "multi"
	} else {
		r.Digest = doc.Digest
		if r.Architecture, err = architecture(ctx, repository, doc); err != nil {
			return nil, err
		}
	}
	platform := release.Image{Pullspec: img.ByDigest(), Digest: doc.Digest}
	if image.IsLayout(img.Pullspec) {
		platform.Pullspec = img.Pullspec
	}
	files, err := images.ReadFiles(ctx, platform, payload.ReferencesFile, payload.MetadataFile)
	if err != nil {
		return nil, err
	}
	return r, r.readFiles(files)
}

func (r *Release) readFiles(files map[string][]byte) error {
	for _, file := range []string{payload.ReferencesFile, payload.MetadataFile} {
		if files[file] == nil {
			return fmt.Errorf("reading %s: it has no file %s, so it is no release image", r.Pullspec, file)
		}
	}
	metadata, err := payload.ParseMetadata(files[payload.MetadataFile])
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.Pullspec, err)
	}
	stream, err := payload.ParseReferences(files[payload.ReferencesFile])
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.Pullspec, err)
	}
	r.Version = metadata.Version
	references := payload.ImageReferences(stream)
	for _, component := range slices.Sorted(maps.Keys(references)) {
		pullspec := references[component]
		_, digest, ok := strings.Cut(pullspec, "@")
		d, err := release.ParseDigest(digest)
		if !ok || err != nil {
			return fmt.Errorf("reading %s: component %s is %q, not an image by digest, which nobody could verify: rebuild the release", r.Pullspec, component, pullspec)
		}
		r.Components = append(r.Components, Component{Name: component, Image: release.Image{Pullspec: pullspec, Digest: d}})
	}
	return nil
}

func architecture(ctx context.Context, repository *image.Repository, doc *image.Document) (string, error) {
	raw, err := repository.Config(ctx, doc)
	if err != nil {
		return "", err
	}
	var config v1.ConfigFile
	if err := json.Unmarshal(raw, &config); err != nil {
		return "", fmt.Errorf("reading the configuration of %s: %w: %w", doc.Digest, image.ErrIntegrity, err)
	}
	if a := architectures[config.Architecture]; a != "" {
		return a, nil
	}
	if config.Architecture == "" {
		return "", fmt.Errorf("the image %s does not say for which architecture it is: rebuild it", doc.Digest)
	}
	return config.Architecture, nil
}

// Destination says where the images of a release go and how they are called there.
type Destination struct {
	// To takes the components, and the release unless it has a place of its own.
	To Target
	// Tag is what an image is called, with ${version}, ${arch} and ${component} in it; default
	// ${version}-${arch}-${component}, and ${version}-${arch} for the release.
	Tag string
	// ReleaseTo and ReleaseTag, if set, are the release image's place.
	ReleaseTo  Target
	ReleaseTag string
	// SkipRelease leaves the release image out.
	SkipRelease bool
}

// Placed returns where an image of a release goes.
func (d Destination) Placed(r *Release, component string) (to Target, tag string) {
	format := d.Tag
	switch {
	case component == ReleaseName && d.ReleaseTo != nil:
		return d.ReleaseTo, d.ReleaseTag
	case format == "" && component == ReleaseName:
		format = "${version}-${arch}"
	case format == "":
		format = "${version}-${arch}-${component}"
	}
	// Build metadata of a version may not stand in a tag.
	version := strings.ReplaceAll(r.Version, "+", "_")
	return d.To, strings.NewReplacer("${version}", version, "${arch}", r.Architecture, "${component}", component).Replace(format)
}

// Images are all images of a release with their places at the destination. The release image is to be put last, so that
// what can be pulled is complete; it is listed first, because its layers have been read already. A component whose repository cannot be reached is taken from the release image's own repository,
// which is where a mirror has it.
//
// The release image is read by a reader that may have it in its cache, the components by one that should have none.
func (r *Release) Images(ctx context.Context, access *registry.Access, own, components *image.Reader, to Destination) ([]Image, error) {
	s := &sources{access: access, images: components, known: map[string]*image.Repository{}}
	if image.IsLayout(r.Pullspec) {
		layout, err := components.Repository(r.Image)
		if err != nil {
			return nil, err
		}
		s.only = layout
	}
	var out []Image
	if !to.SkipRelease {
		from, err := own.Repository(r.Image)
		if err != nil {
			return nil, err
		}
		_, origin, err := s.repository(r.Image)
		if err != nil {
			return nil, err
		}
		target, tag := to.Placed(r, ReleaseName)
		out = append(out, Image{Name: ReleaseName, From: from, Origin: origin, Digest: r.Digest, To: target, Tag: tag, Last: true})
	}
	for _, c := range r.Components {
		from, origin, err := s.component(ctx, c, r)
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", c.Name, err)
		}
		target, tag := to.Placed(r, c.Name)
		out = append(out, Image{Name: c.Name, From: from, Origin: origin, Digest: c.Digest, To: target, Tag: tag})
	}
	return out, nil
}

// sources are the repositories that a release consists of.
type sources struct {
	access *registry.Access
	images *image.Reader
	// only, if set, is where everything comes from.
	only  *image.Repository
	known map[string]*image.Repository
}

func (s *sources) repository(img release.Image) (Source, name.Repository, error) {
	if s.only != nil {
		return s.only, name.Repository{}, nil
	}
	ref, err := s.access.Reference(img.ByDigest())
	if err != nil {
		return nil, name.Repository{}, err
	}
	key := img.Repository()
	if s.known[key] == nil {
		if s.known[key], err = s.images.Repository(img); err != nil {
			return nil, name.Repository{}, err
		}
	}
	return s.known[key], ref.Context(), nil
}

// component finds out, once for each repository, whether it or that of the release is to be asked.
func (s *sources) component(ctx context.Context, c Component, r *Release) (Source, name.Repository, error) {
	if s.only != nil {
		return s.only, name.Repository{}, nil
	}
	key := c.Repository()
	first := s.known[key] == nil
	from, origin, err := s.repository(c.Image)
	if err != nil || !first || key == r.Repository() {
		return from, origin, err
	}
	if _, err = from.Document(ctx, c.Digest); err == nil {
		return from, origin, nil
	}
	own, ownOrigin, ownErr := s.repository(r.Image)
	if ownErr != nil {
		return nil, name.Repository{}, ownErr
	}
	if _, ownErr = own.Document(ctx, c.Digest); ownErr != nil {
		return nil, name.Repository{}, errors.Join(err, fmt.Errorf("nor from the release's own repository: %w", ownErr))
	}
	s.known[key] = s.known[r.Repository()]
	return own, ownOrigin, nil
}

// Releases lists the release images of an OCI layout, by name.
func Releases(ctx context.Context, images *image.Reader, dir string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		return nil, fmt.Errorf("looking for releases: %w", err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("looking for releases in %s: %w: %w", dir, image.ErrIntegrity, err)
	}
	var names []string
	for _, desc := range index.Manifests {
		named := desc.Annotations[image.RefNameAnnotation]
		if named == "" || strings.HasPrefix(named, "sha256-") {
			continue
		}
		if ok, err := isRelease(ctx, images, dir, desc); err != nil {
			return nil, err
		} else if ok {
			names = append(names, named)
		}
	}
	slices.Sort(names)
	return names, nil
}

func isRelease(ctx context.Context, images *image.Reader, dir string, desc v1.Descriptor) (bool, error) {
	digest, err := digestOf(desc)
	if err != nil {
		return false, err
	}
	repository, err := images.Repository(release.Image{Pullspec: dir, Digest: digest})
	if err != nil {
		return false, err
	}
	doc, err := repository.Document(ctx, digest)
	for err == nil && doc.IsIndex() && len(doc.Manifests) > 0 {
		if digest, err = digestOf(doc.Manifests[0]); err == nil {
			doc, err = repository.Document(ctx, digest)
		}
	}
	if err != nil || doc.Config == nil {
		return false, err
	}
	raw, err := repository.Config(ctx, doc)
	if errors.Is(err, image.ErrNotFound) {
		return false, nil // of an image that an earlier release has too; --since left it out, as no release ever is
	}
	if err != nil {
		return false, err
	}
	var config v1.ConfigFile
	if err := json.Unmarshal(raw, &config); err != nil {
		return false, nil //nolint:nilerr // whatever this is, it is no release
	}
	return config.Config.Labels[api.ReleaseLabel] != "", nil
}
