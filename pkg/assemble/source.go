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
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	imagev1 "github.com/openshift/api/image/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/manifest"
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

// ReadImages opens component images, by component and pullspec. It returns a tag for each, by digest and annotated with
// where it was built from, and what those images contribute that are labelled as operators: the files in the folder
// manifests/ of their root. Images of the components in skip contribute nothing.
func ReadImages(ctx context.Context, images *image.Reader, pullspecs map[string]string, skip map[string]bool) (Folder, error) {
	components := slices.Sorted(maps.Keys(pullspecs))
	tags := make([]imagev1.TagReference, len(components))
	read := make([]Component, len(components))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReads)
	for i, component := range components {
		group.Go(func() (err error) {
			tags[i], read[i], err = readImage(ctx, images, component, pullspecs[component], skip[component])
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

func readImage(ctx context.Context, images *image.Reader, component, pullspec string, labelsOnly bool) (imagev1.TagReference, Component, error) {
	if image.IsLayout(pullspec) {
		return imagev1.TagReference{}, Component{}, fmt.Errorf("%s is a folder of this machine, which no cluster can pull from: push the image to a registry", pullspec)
	}
	resolved, err := images.Resolve(ctx, pullspec)
	if err != nil {
		return imagev1.TagReference{}, Component{}, err
	}
	img, err := images.Open(ctx, resolved)
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
