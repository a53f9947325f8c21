package assemble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	imagev1 "github.com/openshift/api/image/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/release"
)

const (
	// DefaultPerRegistry is how many component images are read from one registry at a time; OpenShift's client has the
	// same default.
	DefaultPerRegistry = 4
	// maxImageFiles bounds how many files a base image may bring.
	maxImageFiles = 10_000
)

// Labels of a component image that are copied to its tag in image-references: where the image was built from.
var copiedLabels = [...]string{
	"io.openshift.build.commit.id", "io.openshift.build.commit.ref", "io.openshift.build.source-location",
	api.ComponentVersionsLabel, api.ComponentDisplayNamesLabel,
}

// ReadOptions say how component images are read. Images is required.
type ReadOptions struct {
	Images *image.Reader
	// PerRegistry bounds how many images are read from one registry at a time; default DefaultPerRegistry.
	PerRegistry int
	// LabelsOnly names components whose manifests do not come from their image.
	LabelsOnly []string
	// Loading, if set, is told of each image before it is read, by one goroutine at a time.
	Loading func(imagev1.TagReference)
	// Loaded, if set, is told of each image that was read, by one goroutine at a time.
	Loaded func(imagev1.TagReference)
	// TotalBytes bounds the manifests of all images together; default what readers of a release take.
	TotalBytes int64
}

// ReadImages opens component images. It returns their tags, by digest and annotated with where each was built from, and
// what those images contribute that are labelled as operators: the files in the folder manifests/ of their root, of all
// layers taken together. Nothing but these files is held in memory.
func ReadImages(ctx context.Context, tags []imagev1.TagReference, opts ReadOptions) (Folder, error) {
	r := imageReading{ReadOptions: opts, registries: map[string]chan struct{}{}}
	if r.PerRegistry <= 0 {
		r.PerRegistry = DefaultPerRegistry
	}
	if r.TotalBytes == 0 {
		r.TotalBytes = image.Limits{}.WithDefaults().TotalBytes
	}
	images, components := make([]imagev1.TagReference, len(tags)), make([]Component, len(tags))
	group, ctx := errgroup.WithContext(ctx)
	for i, tag := range tags {
		slot := r.registry(tag)
		group.Go(func() (err error) {
			select {
			case slot <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			defer func() { <-slot }()
			images[i], components[i], err = r.image(ctx, tag)
			if err != nil {
				return fmt.Errorf("component %s: %w", tag.Name, err)
			}
			r.tell(r.Loaded, tag)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Folder{}, err
	}
	return Folder{
		Images:     images,
		Components: slices.DeleteFunc(components, func(c Component) bool { return len(c.Files) == 0 }),
	}, nil
}

// imageReading is one reading of many images.
type imageReading struct {
	ReadOptions
	// registries hold a place for each image that may be read from one at a time.
	registries map[string]chan struct{}

	mu    sync.Mutex
	bytes int64
}

func (r *imageReading) registry(tag imagev1.TagReference) chan struct{} {
	host, _, _ := strings.Cut(tag.From.Name, "/")
	if r.registries[host] == nil {
		r.registries[host] = make(chan struct{}, r.PerRegistry)
	}
	return r.registries[host]
}

func (r *imageReading) tell(whom func(imagev1.TagReference), tag imagev1.TagReference) {
	if whom != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		whom(tag)
	}
}

// count adds to the bytes that are held.
func (r *imageReading) count(c Component) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range c.Files {
		r.bytes += int64(len(f.Data))
	}
	if r.bytes > r.TotalBytes {
		return fmt.Errorf("%w: the manifests of all images have more than %d bytes, which no reader of the release would take", image.ErrLimit, r.TotalBytes)
	}
	return nil
}

func (r *imageReading) image(ctx context.Context, tag imagev1.TagReference) (imagev1.TagReference, Component, error) {
	pullspec := tag.From.Name
	if image.IsLayout(pullspec) {
		return tag, Component{}, fmt.Errorf("%s is a folder of this machine, which no cluster can pull from: push the image to a registry", pullspec)
	}
	r.tell(r.Loading, tag)
	resolved, err := r.Images.Resolve(ctx, pullspec)
	if err != nil {
		return tag, Component{}, err
	}
	img, err := r.Images.Open(ctx, resolved)
	if err != nil {
		return tag, Component{}, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return tag, Component{}, fmt.Errorf("reading the configuration of %s: %w", pullspec, err)
	}
	labels := config.Config.Labels
	if err := checkVersionLabels(labels); err != nil {
		return tag, Component{}, fmt.Errorf("%s: %w: build the image again with another label", pullspec, err)
	}
	tag.From, tag.Annotations = ImageTag(tag.Name, resolved.ByDigest()).From, maps.Clone(tag.Annotations)
	for _, label := range copiedLabels {
		if value := labels[label]; value != "" {
			if tag.Annotations == nil {
				tag.Annotations = map[string]string{}
			}
			tag.Annotations[label] = value
		}
	}
	operator, err := isOperator(labels)
	if err != nil {
		return tag, Component{}, fmt.Errorf("%s: %w", pullspec, err)
	}
	if !operator || slices.Contains(r.LabelsOnly, tag.Name) {
		return tag, Component{Name: tag.Name}, nil
	}
	c, err := r.manifests(ctx, resolved, tag.Name)
	if err != nil {
		return tag, Component{}, fmt.Errorf("reading the manifests of %s: %w", pullspec, err)
	}
	return tag, c, r.count(c)
}

func (r *imageReading) manifests(ctx context.Context, img release.Image, component string) (Component, error) {
	fsys, err := r.Images.Manifests(ctx, img)
	if err != nil {
		return Component{}, err
	}
	sub, err := fs.Sub(fsys, operatorFolder)
	if err != nil {
		return Component{}, err
	}
	files, err := ReadFiles(sub)
	if errors.Is(err, fs.ErrNotExist) {
		return Component{Name: component}, nil
	}
	if err != nil {
		return Component{}, err
	}
	return newComponent(component, files)
}

// isOperator reads the label by which an image contributes manifests: what Go takes for a boolean (1, t, true, True,
// TRUE and their opposites). OpenShift's client takes any text but none for a yes, "false" too.
func isOperator(labels map[string]string) (bool, error) {
	value, ok := labels[api.OperatorLabel]
	if !ok || value == "" {
		return false, nil
	}
	yes, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("label %s=%q is neither true nor false: build the image again with one of the two", api.OperatorLabel, value)
	}
	return yes, nil
}

func checkVersionLabels(labels map[string]string) error {
	if _, err := ParseComponentVersions(labels[api.ComponentVersionsLabel]); err != nil {
		return fmt.Errorf("label %s: %w", api.ComponentVersionsLabel, err)
	}
	if _, err := ParseDisplayNames(labels[api.ComponentDisplayNamesLabel]); err != nil {
		return fmt.Errorf("label %s: %w", api.ComponentDisplayNamesLabel, err)
	}
	return nil
}

// imageFiles reads the regular files at the top of some folders of an image, all layers taken together, by folder.
func imageFiles(img v1.Image, folders ...string) (map[string][]File, error) {
	files := map[string][]File{}
	read := 0
	err := image.WalkImage(img, func(f image.File) error {
		folder := path.Dir(f.Name)
		if !slices.Contains(folders, folder) {
			return nil
		}
		if read++; read > maxImageFiles {
			return fmt.Errorf("the image has more than %d files in %s", maxImageFiles, strings.Join(folders, " and "))
		}
		data, err := io.ReadAll(f.Content)
		if err != nil {
			return fmt.Errorf("reading %s: %w", f.Name, err)
		}
		files[folder] = append(files[folder], File{Name: path.Base(f.Name), Data: data, ModTime: f.ModTime})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the layers: %w", err)
	}
	for _, folder := range folders {
		sortFiles(files[folder])
	}
	return files, nil
}
