// Package assemble builds release images. It takes the components of a platform and the pullspecs of their images from package input. It
// returns a release image with its metadata, which can be pushed to a registry or written as an OCI image layout or a folder. Other
// packages sign and apply releases. A release image has the same structure as one from `oc adm release new`.
package assemble

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/internal/errorset"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
	"github.com/cluster-version/cvo/pkg/author/assemble/substitute"
	"github.com/cluster-version/cvo/pkg/engine/permission"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// OperatorComponent is the component whose files form the folder manifests/ of a release image. These files are templates that belong to
// the version operator. The files of all other components go to release-manifests/.
const OperatorComponent = api.OperatorComponent

// Options define the content of a release. Version, and one of Operator, Base and Platforms, are required.
type Options struct {
	// Version is the release's version, in strict semantic versioning.
	Version string
	// Previous lists the versions that can update to this release. Next lists the versions that this release can update to. Order and
	// duplicates do not matter.
	Previous, Next []string
	// Metadata is free-form. "url" is the address of the release notes.
	Metadata map[string]any
	// Components provide the manifests, in any order. Files of OperatorComponent are added to Operator, or replace files with the same
	// name.
	Components []input.Component
	// Images are the component images by digest, with one tag per component. An image is omitted if its component has no manifests and no
	// component or operator template refers to it.
	Images []imagev1.TagReference
	// Include lists images to keep even if nothing refers to them.
	Include []string
	// ComponentVersions provides versions that no image reports. ComponentDisplayNames provides their display names.
	ComponentVersions, ComponentDisplayNames map[string]string
	// Annotations are added to the file image-references, for example to record the source of the list of images.
	Annotations map[string]string
	// AllowMissingImages keeps placeholders for images that the release lacks. By default, they are errors.
	AllowMissingImages bool
	// Operator contains the version operator's own files. It is used if there is no base image. Files that are not manifests are ignored.
	Operator []input.File
	// Programs are images with the operator's program but without its manifests, one for each platform. The release adds Operator to them.
	// They are used if there is no base image. For several platforms, the release is an index.
	Programs []Platform
	// Base is the image to build on. It contains the folder manifests/ and usually the operator's binary. Without it and Programs, the
	// release is built on an empty image: it can be used for an installation, but not run.
	Base v1.Image
	// BaseDigest is the digest of the base that the release records; default the digest of Base.
	BaseDigest release.Digest
	// Platforms replaces Base with a base image for each platform. The release is then an index with one image for each platform.
	Platforms []Platform
	// Created is the time of the image and all files, in whole seconds. The default is the latest modification time of a component's file.
	// The same inputs and time result in the same digest.
	Created time.Time
}

// Platform is the base image for one platform.
type Platform struct {
	v1.Platform
	Base       v1.Image
	BaseDigest release.Digest
}

// Result is an assembled release.
type Result struct {
	// Image is the release image; for several platforms, the first platform's.
	Image v1.Image
	// Index lists the release images of all platforms; nil if there is only a single image.
	Index v1.ImageIndex
	// Digest is the digest of the index, or of the image if there is no index.
	Digest  release.Digest
	Version string
	Created time.Time
	// References is the file image-references: an ImageStream that lists the component images.
	References []byte
	// Metadata is the file release-metadata.
	Metadata []byte
	// Warnings are problems that do not prevent using the release.
	Warnings []string
	// Operators is the number of components with manifests, Images the number of component images.
	Operators, Images int
	// Left lists the images that were omitted because nothing refers to them.
	Left []string

	// Layer contains the release's files. It turns the base image into the release.
	Layer v1.Layer

	manifests []input.File
	operator  []input.File
	base      v1.Image
}

// New assembles a release. It reads only opts, and the same inputs result in the same digest. It reports the errors of all manifests
// together, sorted by file and document.
func New(opts Options) (*Result, error) {
	version, err := opts.check()
	if err != nil {
		return nil, err
	}
	r, err := draft(opts, version)
	if err != nil {
		return nil, err
	}
	if err := r.build(opts); err != nil {
		return nil, fmt.Errorf("building the release image: %w", err)
	}
	return r, r.load()
}

// Draft assembles the files of a release without its image. If components have mistakes, it returns their files anyway, together with all
// errors.
func Draft(opts Options) (*Result, error) {
	version, err := release.ParseVersion(opts.Version)
	if err != nil {
		return nil, err
	}
	return draft(opts, version)
}

func draft(opts Options, version semver.Version) (*Result, error) {
	images, left, err := opts.pruned()
	if err != nil {
		return nil, err
	}
	plan, mistakes := opts.plan(version, images)
	var role []input.File
	if mistakes == nil {
		role, mistakes = opts.role(plan)
	}
	plan.manifests = append(slices.DeleteFunc(plan.manifests, func(f input.File) bool { return len(role) > 0 && f.Name == permission.File }), role...)
	input.SortFiles(plan.manifests)
	r := &Result{
		Version: opts.Version, Created: opts.created(), base: opts.Base, Warnings: plan.warnings, Left: left,
		manifests: plan.manifests, operator: plan.operator, Operators: plan.operators, Images: len(images),
	}
	if r.References, err = references(opts, r.Created, images); err != nil {
		return nil, err
	}
	if r.Metadata, err = metadata(opts); err != nil {
		return nil, err
	}
	return r, mistakes
}

// Files returns the files of the release by path, without the files of a base image.
func (r *Result) Files() []input.File {
	var files []input.File
	for folder, list := range map[string][]input.File{payload.OperatorDir: r.operator, payload.ReleaseDir: r.releaseFiles()} {
		for _, f := range list {
			f.Name = folder + "/" + f.Name
			files = append(files, f)
		}
	}
	input.SortFiles(files)
	return files
}

// load loads the release like a cluster with default settings. It rejects a release that a cluster could not load, for example because of
// broken templates or duplicate objects. It does not load the manifests of a base image, which were checked when the base image was built.
func (r *Result) load() error {
	fsys, err := layer.FS(map[string][]input.File{payload.OperatorDir: r.operator, payload.ReleaseDir: r.releaseFiles()})
	if err != nil {
		return err
	}
	image := release.Image{Pullspec: OperatorComponent, Digest: r.Digest}
	p, err := payload.Load(fsys, image.ByDigest(), payload.Options{TemplateErrors: true})
	if err != nil {
		return err
	}
	r.Warnings = append(r.Warnings, p.Warnings...)
	return nil
}

func (o *Options) check() (semver.Version, error) {
	version, err := release.ParseVersion(o.Version)
	if err != nil {
		return version, fmt.Errorf("release name %q is not a semantic version: %w", o.Version, err)
	}
	for _, v := range slices.Concat(o.Previous, o.Next) {
		if _, err := release.ParseVersion(v); err != nil {
			return version, fmt.Errorf("%q in the list of previous or next releases is not a semantic version: %w", v, err)
		}
	}
	var errs []error
	seen := map[string]bool{}
	for _, c := range o.Components {
		if err := input.CheckName(c.Name); err != nil {
			errs = append(errs, err)
		}
		if seen[c.Name] {
			errs = append(errs, fmt.Errorf("duplicate component %q", c.Name))
		}
		seen[c.Name] = true
		if c.Name == OperatorComponent && o.based() {
			errs = append(errs, fmt.Errorf("component %q: the base image already contains the operator's manifests: remove the component or the base image", c.Name))
		}
	}
	clear(seen)
	for _, image := range o.Images {
		errs = append(errs, input.CheckImage(image))
		if seen[image.Name] {
			errs = append(errs, fmt.Errorf("duplicate image %q", image.Name))
		}
		seen[image.Name] = true
	}
	if !o.based() && len(o.Operator) == 0 {
		errs = append(errs, errors.New("there is neither a base image nor the operator's own manifests: add one of them"))
	}
	return version, errorset.Join(errs)
}

// based reports whether the release has a base image.
func (o *Options) based() bool { return o.Base != nil || len(o.Platforms) > 0 }

// created returns the creation time of the release.
func (o *Options) created() time.Time {
	t := o.Created
	if t.IsZero() {
		t = time.Unix(0, 0)
		for _, c := range o.Components {
			for _, f := range c.Files {
				if f.ModTime.After(t) {
					t = f.ModTime
				}
			}
		}
	}
	return t.UTC().Truncate(time.Second)
}

// plan contains the files of the two folders.
type plan struct {
	manifests, operator []input.File
	operators           int
	warnings            []string
}

func (o *Options) plan(version semver.Version, images []imagev1.TagReference) (plan, error) {
	byName := map[string]imagev1.TagReference{}
	for _, image := range images {
		byName[image.Name] = image
	}
	version.Build = nil
	r := substitute.Renderer{
		Version: version.String(), Images: byName, Defaults: o.ComponentVersions, AllowMissing: o.AllowMissingImages,
	}
	var p plan
	var errs []error
	var given names
	operator := input.Component{Name: OperatorComponent}
	for _, f := range o.Operator {
		if manifest.IsFile(f.Name) {
			operator.Files = append(operator.Files, f)
		}
	}
	for _, c := range slices.SortedFunc(slices.Values(o.Components), func(a, b input.Component) int { return strings.Compare(a.Name, b.Name) }) {
		if c.Name == OperatorComponent {
			overlay(&operator, c)
			continue
		}
		files, err := r.Render(c)
		errs = append(errs, err)
		if len(files) > 0 {
			p.operators++
		}
		for _, f := range files {
			f.Name = given.unique(c.Name, f.Name)
			p.manifests = append(p.manifests, f)
		}
	}
	if !o.based() {
		// Templates need not be valid YAML before rendering, so the operator's own files are not parsed here.
		files, err := r.Substitute(operator)
		errs = append(errs, err)
		p.operator = files
	}
	input.SortFiles(p.manifests)
	input.SortFiles(p.operator)
	p.warnings = r.Warnings
	return p, errorset.Join(errs)
}

// overlay adds the files and references of another component. Its files replace files with the same name.
func overlay(c *input.Component, other input.Component) {
	c.References = append(c.References, other.References...)
	for _, f := range other.Files {
		c.Files = slices.DeleteFunc(c.Files, func(have input.File) bool { return have.Name == f.Name })
		c.Files = append(c.Files, f)
	}
}

// ParseMetadata parses the free-form part of a release's metadata, which is a JSON object. It returns nil for empty text.
func ParseMetadata(text string) (map[string]any, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var object map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // preserves the format of numbers
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("metadata %q is not a JSON object: %w", text, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("metadata %q has more than one JSON object", text)
	}
	return object, nil
}
