package assemble

import (
	"archive/tar"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	imagev1 "github.com/openshift/api/image/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

const (
	// maxReads bounds how many component images are read at a time; OpenShift's client has the same default.
	maxReads = 4
	// maxImageFiles bounds how many files a component image may bring; the largest real component has 171.
	maxImageFiles = 10_000
)

// Labels of a component image that are copied to its tag in image-references: where the image was built from.
var copiedLabels = [...]string{
	"io.openshift.build.commit.id", "io.openshift.build.commit.ref", "io.openshift.build.source-location",
	api.ComponentVersionsLabel, "io.openshift.build.version-display-names",
}

// RegistryOptions say how registries are reached; the zero value is HTTPS but for local addresses, with the credentials
// that the user's container tools have stored.
type RegistryOptions struct {
	// Insecure allows HTTP, and HTTPS without checking certificates.
	Insecure bool
	// Authorities are the certificates to trust; default the system's.
	Authorities *x509.CertPool
}

// Registry reads and writes images.
type Registry struct {
	name   []name.Option
	remote []remote.Option
}

// NewRegistry returns a Registry.
func NewRegistry(opts RegistryOptions) Registry {
	g := Registry{remote: []remote.Option{remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("cvo")}}
	if opts.Insecure {
		g.name = append(g.name, name.Insecure)
	}
	if transport, ok := remote.DefaultTransport.(*http.Transport); ok {
		transport = transport.Clone()
		transport.TLSClientConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: opts.Authorities, InsecureSkipVerify: opts.Insecure,
		}
		g.remote = append(g.remote, remote.WithTransport(transport))
	}
	return g
}

func (g Registry) options(ctx context.Context) []remote.Option {
	return append(slices.Clone(g.remote), remote.WithContext(ctx))
}

// Open opens an image by pullspec, or the image of an OCI layout by its folder; DIR@sha256:… and DIR:NAME choose among
// several. Of an index it takes the image for the platform linux/amd64. The pullspec returned
// names the content; for a layout it is the digest alone.
func (g Registry) Open(ctx context.Context, ref string) (v1.Image, release.Image, error) {
	if dir, want, ok := layoutReference(ref); ok {
		img, err := openLayout(dir, want)
		if err != nil {
			return nil, release.Image{}, fmt.Errorf("opening the OCI layout %s: %w", ref, err)
		}
		digest, err := img.Digest()
		return img, release.Image{Pullspec: ref, Digest: release.Digest(digest.String())}, err
	}
	parsed, err := name.ParseReference(ref, g.name...)
	if err != nil {
		return nil, release.Image{}, fmt.Errorf("reading the pullspec: %w", err)
	}
	desc, err := remote.Get(parsed, g.options(ctx)...)
	if err != nil {
		return nil, release.Image{}, fmt.Errorf("opening %s: %w", ref, err)
	}
	img, err := desc.Image()
	if err != nil {
		return nil, release.Image{}, fmt.Errorf("opening %s: %w", ref, err)
	}
	return img, release.Image{Pullspec: ref, Digest: release.Digest(desc.Digest.String())}, nil
}

// layoutReference splits DIR, DIR:NAME and DIR@DIGEST, where DIR is an OCI layout on this machine.
func layoutReference(ref string) (dir, want string, ok bool) {
	isLayout := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "oci-layout"))
		return err == nil
	}
	if isLayout(ref) {
		return ref, "", true
	}
	for _, sep := range []string{"@", ":"} {
		if i := strings.LastIndex(ref, sep); i > 0 && sep == "@" || i > 0 && !strings.Contains(ref[i:], "/") {
			if isLayout(ref[:i]) {
				return ref[:i], ref[i+1:], true
			}
		}
	}
	return "", "", false
}

func openLayout(dir, want string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	content, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var names []string
	var found []v1.Hash
	for _, m := range content.Manifests {
		named := m.Annotations[refNameAnnotation]
		names = append(names, strings.TrimPrefix(named+"@"+m.Digest.String(), "@"))
		if m.MediaType.IsImage() && (want == "" || want == named || want == m.Digest.String()) {
			found = append(found, m.Digest)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d of its images match: name one as %s:NAME or %s@DIGEST; it has %s", len(found), dir, dir, strings.Join(names, ", "))
	}
	img, err := index.Image(found[0])
	if err != nil {
		return nil, err
	}
	// A registry's content is checked as it comes; what lies on a disk is checked here.
	if err := validate.Image(img); err != nil {
		return nil, fmt.Errorf("checking the digests of %s: %w", found[0], err)
	}
	return img, nil
}

// ReadImages opens component images, by component and pullspec. It returns a tag for each, by digest and annotated with
// where it was built from, and what those images contribute that are labelled as operators: the files in the folder
// manifests/ of their root. Images of the components in skip contribute nothing.
func ReadImages(ctx context.Context, registry Registry, pullspecs map[string]string, skip map[string]bool) (Folder, error) {
	components := slices.Sorted(maps.Keys(pullspecs))
	tags := make([]imagev1.TagReference, len(components))
	read := make([]Component, len(components))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReads)
	for i, component := range components {
		group.Go(func() (err error) {
			tags[i], read[i], err = readImage(ctx, registry, component, pullspecs[component], skip[component])
			if err != nil {
				return fmt.Errorf("component %s: %w", component, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Folder{}, err
	}
	return Folder{
		Images:     tags,
		Components: slices.DeleteFunc(read, func(c Component) bool { return len(c.Files) == 0 }),
	}, nil
}

func readImage(ctx context.Context, registry Registry, component, pullspec string, labelsOnly bool) (imagev1.TagReference, Component, error) {
	if _, _, local := layoutReference(pullspec); local {
		return imagev1.TagReference{}, Component{}, fmt.Errorf("%s is a folder of this machine, which no cluster can pull from: push the image to a registry", pullspec)
	}
	img, resolved, err := registry.Open(ctx, pullspec)
	if err != nil {
		return imagev1.TagReference{}, Component{}, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return imagev1.TagReference{}, Component{}, fmt.Errorf("reading the configuration of %s: %w", pullspec, err)
	}
	tag := ImageTag(component, resolved.ByDigest())
	for _, label := range copiedLabels {
		if value := config.Config.Labels[label]; value != "" {
			if tag.Annotations == nil {
				tag.Annotations = map[string]string{}
			}
			tag.Annotations[label] = value
		}
	}
	if labelsOnly || config.Config.Labels[api.OperatorLabel] == "" {
		return tag, Component{Name: component}, nil
	}
	files, err := imageFiles(img, operatorFolder)
	if err != nil {
		return tag, Component{}, fmt.Errorf("reading the manifests of %s: %w", pullspec, err)
	}
	c, err := newComponent(component, files[operatorFolder])
	return tag, c, err
}

// imageFiles reads the regular files at the top of some folders of an image, all layers taken together, by folder.
func imageFiles(img v1.Image, folders ...string) (files map[string][]File, err error) {
	stream := mutate.Extract(img)
	defer func() { err = errors.Join(err, stream.Close()) }()
	limit := int64(manifest.Limits{}.WithDefaults().FileBytes)
	files = map[string][]File{}
	read := 0
	for archive := tar.NewReader(stream); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the layers: %w", err)
		}
		file := path.Clean("/" + header.Name)
		folder := strings.TrimPrefix(path.Dir(file), "/")
		if header.Typeflag != tar.TypeReg || !slices.Contains(folders, folder) {
			continue
		}
		if read++; header.Size > limit || read > maxImageFiles {
			return nil, fmt.Errorf("%s has %d bytes, the limit is %d, and it is file %d, the limit is %d", file, header.Size, limit, read, maxImageFiles)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		files[folder] = append(files[folder], File{Name: path.Base(file), Data: data, ModTime: header.ModTime})
	}
	for _, folder := range folders {
		sortFiles(files[folder])
	}
	return files, nil
}
