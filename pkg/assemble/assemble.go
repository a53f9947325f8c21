// Package assemble makes release images: it takes the manifests of a platform's components and the pullspecs of their
// images, puts images and versions in place of placeholders, and returns a release image with its metadata. The result
// can be pushed to a registry or written as an OCI image layout or a folder. Reading component images is left to the
// caller's Reader, signing and applying to others. The layout of a release image is that of `oc adm release new`.
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

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/permission"
	"github.com/cluster-version/cvo/pkg/release"
)

// OperatorComponent is the component whose files form the folder manifests/ of a release image, which is templated and
// belongs to the version operator; the files of all others go to release-manifests/.
const OperatorComponent = "cluster-version-operator"

// Options say what goes into a release. Version, and one of Operator, Base and Platforms, are required.
type Options struct {
	// Version is strict SemVer.
	Version string
	// Previous lists the versions that may update to this one, Next those that this one may update to. Order and
	// repetition do not matter.
	Previous, Next []string
	// Metadata is free-form; "url" leads to the release notes.
	Metadata map[string]any
	// Components bring the manifests, in any order. OperatorComponent adds to Operator, or replaces files of it.
	Components []Component
	// Images are the component images by digest, one tag a component. Those of components without manifests that no
	// component and no template of the operator refers to are left out.
	Images []imagev1.TagReference
	// Include names images that are not left out.
	Include []string
	// ComponentVersions are used where no image says otherwise; ComponentDisplayNames are what people call them.
	ComponentVersions, ComponentDisplayNames map[string]string
	// Annotations are those of the file image-references, such as where the list of images comes from.
	Annotations map[string]string
	// AllowMissingImages keeps placeholders of images that the release does not have.
	AllowMissingImages bool
	// Operator is the version operator's own set, if Base is nil; files that are no manifests are passed over.
	Operator []File
	// Base is the image to build on, which brings the folder manifests/ and normally the operator's binary. Nil
	// builds on nothing: the image can be installed from, but not run.
	Base v1.Image
	// BaseDigest is what the release says that it was built on; default the digest of Base.
	BaseDigest release.Digest
	// Platforms, instead of Base, are the images to build on of several platforms; the release is an index of as many.
	Platforms []Platform
	// Created is the time in the image and of every file; default the newest modification time of a component's
	// file, in seconds. Equal inputs and an equal time give an equal digest.
	Created time.Time
}

// Platform is what the release of one platform is built on.
type Platform struct {
	v1.Platform
	Base       v1.Image
	BaseDigest release.Digest
}

// Result is an assembled release.
type Result struct {
	// Image is the release, or that of the first platform.
	Image v1.Image
	// Index lists the releases of all platforms; nil for a release of one.
	Index v1.ImageIndex
	// Digest is that of the index, or else of the image.
	Digest  release.Digest
	Version string
	Created time.Time
	// References is the ImageStream that lists the component images, as it stands in the file image-references.
	References []byte
	// Metadata is the file release-metadata.
	Metadata []byte
	// Warnings are what a reader of the payload should know although it is fit for use.
	Warnings []string
	// Operators counts the components that brought manifests, Images the component images.
	Operators, Images int
	// Left names the images that were left out, because no component refers to them.
	Left []string

	manifests []File
	operator  []File
	base      v1.Image
	layer     v1.Layer
}

// New assembles a release. It reads nothing but Options and gives the same digest for the same input. Errors of
// manifests are reported together, by file and document.
func New(opts Options) (*Result, error) {
	version, err := opts.check()
	if err != nil {
		return nil, err
	}
	images, left, err := opts.pruned()
	if err != nil {
		return nil, err
	}
	plan, err := opts.plan(version, images)
	if err != nil {
		return nil, err
	}
	role, err := opts.role(plan)
	if err != nil {
		return nil, err
	}
	plan.manifests = append(slices.DeleteFunc(plan.manifests, func(f File) bool { return len(role) > 0 && f.Name == permission.File }), role...)
	sortFiles(plan.manifests)
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
	if err := r.build(opts); err != nil {
		return nil, fmt.Errorf("building the release image: %w", err)
	}
	return r, r.load()
}

// Files are what the release is made of, by path, but for what comes with a base image.
func (r *Result) Files() []File {
	var files []File
	for folder, list := range map[string][]File{operatorFolder: r.operator, releaseFolder: r.releaseFiles()} {
		for _, f := range list {
			f.Name = folder + "/" + f.Name
			files = append(files, f)
		}
	}
	sortFiles(files)
	return files
}

// load reads the release as a cluster of default settings will. A release that cannot be read is not made: templates
// that cannot be rendered and objects that come twice show here. The manifests of a base image were checked with it.
func (r *Result) load() error {
	fsys, err := archiveFS(map[string][]File{operatorFolder: r.operator, releaseFolder: r.releaseFiles()})
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
	version, err := semver.Parse(o.Version)
	if err != nil {
		return version, fmt.Errorf("release name %q is not a semantic version: %w", o.Version, err)
	}
	for _, v := range slices.Concat(o.Previous, o.Next) {
		if _, err := semver.Parse(v); err != nil {
			return version, fmt.Errorf("%q in the list of previous or next releases is not a semantic version: %w", v, err)
		}
	}
	var errs []error
	seen := map[string]bool{}
	for _, c := range o.Components {
		if err := checkComponentName(c.Name); err != nil {
			errs = append(errs, err)
		}
		if seen[c.Name] {
			errs = append(errs, fmt.Errorf("component %q is given twice", c.Name))
		}
		seen[c.Name] = true
		if c.Name == OperatorComponent && o.based() {
			errs = append(errs, fmt.Errorf("component %q: the base image brings the operator's manifests: leave out one of the two", c.Name))
		}
	}
	clear(seen)
	for _, image := range o.Images {
		errs = append(errs, checkImage(image))
		if seen[image.Name] {
			errs = append(errs, fmt.Errorf("image %q is given twice", image.Name))
		}
		seen[image.Name] = true
	}
	if !o.based() && len(o.Operator) == 0 {
		errs = append(errs, errors.New("neither a base image nor the operator's own manifests are given"))
	}
	return version, manifest.JoinSorted(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
}

func checkImage(image imagev1.TagReference) error {
	if err := checkComponentName(image.Name); err != nil {
		return err
	}
	if image.From == nil || image.From.Kind != "DockerImage" {
		return fmt.Errorf("image %q has no pullspec", image.Name)
	}
	_, digest, ok := strings.Cut(image.From.Name, "@")
	if !ok {
		return fmt.Errorf("image %q: %q is not by digest: a release names content, which a tag does not", image.Name, image.From.Name)
	}
	if _, err := release.ParseDigest(digest); err != nil {
		return fmt.Errorf("image %q: %w", image.Name, err)
	}
	return nil
}

// based reports whether the release is built on something.
func (o *Options) based() bool { return o.Base != nil || len(o.Platforms) > 0 }

// created is the time that the release carries.
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

// plan is the content of the two folders.
type plan struct {
	manifests, operator []File
	operators           int
	warnings            []string
}

func (o *Options) plan(version semver.Version, images []imagev1.TagReference) (plan, error) {
	byName := map[string]imagev1.TagReference{}
	for _, image := range images {
		byName[image.Name] = image
	}
	r := renderer{
		version: withoutBuild(version), images: byName,
		defaults: o.ComponentVersions, allowMissing: o.AllowMissingImages,
	}
	var p plan
	var errs []error
	var given names
	operator := Component{Name: OperatorComponent}
	for _, f := range o.Operator {
		if manifest.IsFile(f.Name) {
			operator.Files = append(operator.Files, f)
		}
	}
	for _, c := range slices.SortedFunc(slices.Values(o.Components), func(a, b Component) int { return strings.Compare(a.Name, b.Name) }) {
		if c.Name == OperatorComponent {
			operator.overlay(c)
			continue
		}
		files, err := r.render(c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(files) > 0 {
			p.operators++
		}
		for _, f := range files {
			f.Name = given.give(c.Name, f.Name)
			p.manifests = append(p.manifests, f)
		}
	}
	if !o.based() {
		// Templates need not be YAML before they are rendered, so the operator's own set is not parsed here.
		files, err := r.substitute(operator)
		errs = append(errs, err)
		p.operator = files
	}
	sortFiles(p.manifests)
	sortFiles(p.operator)
	p.warnings = r.warnings
	return p, manifest.JoinSorted(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
}

// renderer puts images and versions in place and checks the outcome.
type renderer struct {
	version      string
	images       map[string]imagev1.TagReference
	defaults     map[string]string
	allowMissing bool
	warnings     []string
}

// render is substitute, and a check that every document of every file is a manifest.
func (r *renderer) render(c Component) ([]File, error) {
	files, err := r.substitute(c)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, f := range files {
		if !manifest.IsFile(f.Name) {
			continue
		}
		if _, err := manifest.Parse(f.Name, f.Data, manifest.Limits{}); err != nil {
			errs = append(errs, fmt.Errorf("component %s: %w", c.Name, err))
		}
	}
	return files, manifest.JoinSorted(errs)
}

func (r *renderer) substitute(c Component) ([]File, error) {
	pullspecs := map[string]string{}
	for name, image := range r.images {
		pullspecs[name] = image.From.Name
	}
	rules, err := placeholders(c.Name, c.References, pullspecs, r.allowMissing)
	if err != nil {
		return nil, err
	}
	keyed, warnings, err := componentVersions(c.References, r.images, r.defaults)
	if err != nil {
		return nil, fmt.Errorf("component %s: %w", c.Name, err)
	}
	for _, w := range warnings {
		r.warnings = append(r.warnings, fmt.Sprintf("component %s: %s", c.Name, w))
	}
	files := slices.Clone(c.Files)
	for i, f := range files {
		data, err := replaceVersions(replaceImages(f.Data, rules), r.version, keyed)
		if err != nil {
			return nil, fmt.Errorf("component %s: %s: %w", c.Name, f.Name, err)
		}
		files[i].Data = data
	}
	return files, nil
}

// ParseMetadata reads the free-form part of a release's metadata, a JSON object; empty text is none.
func ParseMetadata(text string) (map[string]any, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var object map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // a number stays as it was written
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("metadata %q is not a JSON object: %w", text, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("metadata %q is more than one JSON object", text)
	}
	return object, nil
}
