package input

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	imagev1 "github.com/openshift/api/image/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// DefaultPerRegistry is the number of component images that are read from a registry in parallel, as in OpenShift's client.
const DefaultPerRegistry = 4

// copiedLabels are the image labels that are copied to the image's tag in image-references: its source and versions.
var copiedLabels = [...]string{
	"io.openshift.build.commit.id", "io.openshift.build.commit.ref", "io.openshift.build.source-location",
	api.ComponentVersionsLabel, api.ComponentDisplayNamesLabel,
}

// ReadOptions configure reading component images. Images is required.
type ReadOptions struct {
	Images *image.Reader
	// PerRegistry is the maximum number of images that are read from a registry in parallel; default DefaultPerRegistry.
	PerRegistry int
	// LabelsOnly lists components whose manifests are not read from their images.
	LabelsOnly []string
	// Loading, if set, is called before each image is read. Calls do not overlap.
	Loading func(imagev1.TagReference)
	// Loaded, if set, is called after each image has been read. Calls do not overlap.
	Loaded func(imagev1.TagReference)
	// TotalBytes bounds the total size of all manifests; default the limit of readers of a release.
	TotalBytes int64
}

// ReadImages reads component images. It returns their tags with a digest and with annotations about their source. For images labeled as
// operators, it also returns the files in the folder manifests/ at the root, with all layers applied. It holds only these files in memory.
func ReadImages(ctx context.Context, tags []imagev1.TagReference, opts ReadOptions) (Folder, error) {
	r := imageReading{ReadOptions: opts, registries: map[string]chan struct{}{}}
	if r.PerRegistry <= 0 {
		r.PerRegistry = DefaultPerRegistry
	}
	if r.TotalBytes == 0 {
		r.TotalBytes = layer.Limits{}.WithDefaults().TotalBytes
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
			r.report(r.Loaded, tag)
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

// imageReading reads several images.
type imageReading struct {
	ReadOptions
	// registries holds a semaphore for each registry, with one slot for each parallel read.
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

func (r *imageReading) report(callback func(imagev1.TagReference), tag imagev1.TagReference) {
	if callback != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		callback(tag)
	}
}

// count adds a component's files to the total size. It fails if the total exceeds the limit.
func (r *imageReading) count(c Component) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range c.Files {
		r.bytes += int64(len(f.Data))
	}
	if r.bytes > r.TotalBytes {
		return fmt.Errorf("%w: the manifests of all images together have more than %d bytes, which readers of the release would reject", failure.ErrLimit, r.TotalBytes)
	}
	return nil
}

func (r *imageReading) image(ctx context.Context, tag imagev1.TagReference) (imagev1.TagReference, Component, error) {
	pullspec := tag.From.Name
	if layout.IsReference(pullspec) {
		return tag, Component{}, fmt.Errorf("%s is a local folder: push the image to a registry that clusters can reach", pullspec)
	}
	r.report(r.Loading, tag)
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
		return tag, Component{}, fmt.Errorf("%s: %w: rebuild the image with a valid label", pullspec, err)
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
	sub, err := fs.Sub(fsys, payload.OperatorDir)
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

// isOperator reports whether an image is labeled as contributing manifests. It accepts Go's boolean values (1, t, true, True, TRUE and
// their opposites). OpenShift's client treats any non-empty text as true, even "false".
func isOperator(labels map[string]string) (bool, error) {
	value, ok := labels[api.OperatorLabel]
	if !ok || value == "" {
		return false, nil
	}
	yes, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("label %s=%q is neither true nor false: rebuild the image with one of these values", api.OperatorLabel, value)
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
