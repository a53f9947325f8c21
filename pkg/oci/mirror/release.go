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

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// ReleaseName is the name of the release image among the images of a release.
const ReleaseName = "release"

// architectures maps image architectures to the names in release tags.
var architectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// Release is the part of a release image's metadata that mirroring needs.
type Release struct {
	// Image is the image to mirror. For an index, it is the image for the platform unless the whole index is mirrored.
	release.Image
	// Resolved is the digest of the pullspec, which is the signed digest: either Image's digest or the digest of its index.
	Resolved release.Digest
	// Version and Architecture appear in tags at the target. The architecture of an index is "multi".
	Version, Architecture string
	// Components are the release's images, sorted by name.
	Components []Component
}

// Component is an image of a release.
type Component struct {
	Name string
	release.Image
}

// Digests returns the digests that may be signed: the resolved digest and the digest of the platform's image in an index.
func (r *Release) Digests() []release.Digest {
	if r.Resolved == r.Digest {
		return []release.Digest{r.Digest}
	}
	return []release.Digest{r.Resolved, r.Digest}
}

// Read reads a release image's metadata; img must have a digest. For an index, it reads the image for the reader's platform. With whole,
// the image to mirror is the index itself. Read fails if the image is not a release.
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
	if layout.IsReference(img.Pullspec) {
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
			return fmt.Errorf("reading %s: the image is not a release image: it has no file %s", r.Pullspec, file)
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
		digest, err := release.ParseDigest(string(release.Pullspec(pullspec).Digest()))
		if err != nil {
			return fmt.Errorf("reading %s: component %s is %q, which has no digest to verify: rebuild the release", r.Pullspec, printable.Text(component), pullspec)
		}
		r.Components = append(r.Components, Component{Name: component, Image: release.Image{Pullspec: pullspec, Digest: digest}})
	}
	return nil
}

func architecture(ctx context.Context, repository *repository.Repository, doc *document.Document) (string, error) {
	raw, err := repository.Config(ctx, doc)
	if err != nil {
		return "", err
	}
	var config v1.ConfigFile
	if err := json.Unmarshal(raw, &config); err != nil {
		return "", fmt.Errorf("reading the configuration of %s: %w: %w", doc.Digest, failure.ErrIntegrity, err)
	}
	if a := architectures[config.Architecture]; a != "" {
		return a, nil
	}
	if config.Architecture == "" {
		return "", fmt.Errorf("the image %s has no architecture: rebuild it", doc.Digest)
	}
	return config.Architecture, nil
}

// Destination contains the targets and tags for a release's images.
type Destination struct {
	// To receives the components, and the release image unless ReleaseTo is set.
	To Target
	// Tag is the format of tags with ${version}, ${arch} and ${component}. The default is ${version}-${arch}-${component}, and
	// ${version}-${arch} for the release image.
	Tag string
	// ReleaseTo and ReleaseTag are the target and tag of the release image; zero selects To and Tag.
	ReleaseTo  Target
	ReleaseTag string
	// SkipRelease omits the release image.
	SkipRelease bool
}

// Placed returns the target and tag for an image of a release.
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
	// Tags cannot contain the "+" of build metadata.
	version := strings.ReplaceAll(r.Version, "+", "_")
	return d.To, strings.NewReplacer("${version}", version, "${arch}", r.Architecture, "${component}", component).Replace(format)
}

// Images returns all images of a release with their destinations. The release image is first, because its layers have already been read.
// It is written last, so that an available release is complete. If a component's repository is unreachable, the component is read from the
// release image's repository, where a mirror has it.
//
// own reads the release image and may have a cache. components reads the components and should have no cache.
func (r *Release) Images(ctx context.Context, access *registry.Access, own, components *image.Reader, to Destination) ([]Image, error) {
	s := &sources{access: access, images: components, known: map[string]*repository.Repository{}}
	if layout.IsReference(r.Pullspec) {
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
		place, tag := to.Placed(r, ReleaseName)
		out = append(out, Image{Name: ReleaseName, From: from, Origin: origin, Digest: r.Digest, To: place, Tag: tag, Last: true})
	}
	for _, c := range r.Components {
		from, origin, err := s.component(ctx, c, r)
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", printable.Text(c.Name), err)
		}
		place, tag := to.Placed(r, c.Name)
		out = append(out, Image{Name: printable.Text(c.Name), From: from, Origin: origin, Digest: c.Digest, To: place, Tag: tag})
	}
	return out, nil
}

// sources holds the repositories of a release's images.
type sources struct {
	access *registry.Access
	images *image.Reader
	// only is the single source of all images, if set.
	only  *repository.Repository
	known map[string]*repository.Repository
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

// component returns the source of a component: the component's own repository or the release's. It decides once for each repository.
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
		return nil, name.Repository{}, errors.Join(err, fmt.Errorf("trying the release's own repository: %w", ownErr))
	}
	s.known[key] = s.known[r.Repository()]
	return own, ownOrigin, nil
}

// Releases returns the names of the release images in an OCI layout, sorted.
func Releases(ctx context.Context, images *image.Reader, dir string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, layout.IndexFile))
	if err != nil {
		return nil, fmt.Errorf("listing releases: %w", err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("listing releases in %s: %w: %w", dir, failure.ErrIntegrity, err)
	}
	var names []string
	for _, desc := range index.Manifests {
		named := layout.NameOf(desc)
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
	digest, err := target.DigestOf(desc)
	if err != nil {
		return false, err
	}
	repository, err := images.Repository(release.Image{Pullspec: dir, Digest: digest})
	if err != nil {
		return false, err
	}
	doc, err := repository.Document(ctx, digest)
	for err == nil && doc.IsIndex() && len(doc.Manifests) > 0 {
		if digest, err = target.DigestOf(doc.Manifests[0]); err == nil {
			doc, err = repository.Document(ctx, digest)
		}
	}
	if err != nil || doc.Config == nil {
		return false, err
	}
	raw, err := repository.Config(ctx, doc)
	if errors.Is(err, failure.ErrNotFound) {
		return false, nil // not a release: --since omits configurations of components, but never of releases
	}
	if err != nil {
		return false, err
	}
	var config v1.ConfigFile
	if err := json.Unmarshal(raw, &config); err != nil {
		return false, nil //nolint:nilerr // any other configuration is not a release
	}
	return config.Config.Labels[api.ReleaseLabel] != "", nil
}
