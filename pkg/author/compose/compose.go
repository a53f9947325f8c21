// Package compose gathers the inputs of a new release. It takes an author's choices: a release or an image stream to start from, folders,
// images to replace, and a base. It reads these sources and returns the options for package assemble. It rejects contradictory choices,
// and a release that lacks manifests of the original release. It also selects the files to lint. It writes nothing.
package compose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/internal/errorset"
	"github.com/cluster-version/cvo/internal/folder"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/derive"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/image"
)

// Options are the choices for a new release. Images and at least one source of images or manifests are required.
type Options struct {
	// Images reads component images, the base and the original release.
	Images *image.Reader

	// Original is the pullspec or OCI layout of the release to start from; may be empty.
	Original string
	// Again reproduces Original without changes.
	Again bool
	// Stream lists the images; nil for no list. ReferenceMode selects one of the addresses of each image.
	Stream        *imagev1.ImageStream
	ReferenceMode input.ReferenceMode
	// Folders are folders with a subfolder for each component's manifests.
	Folders []string
	// Rendered are components that were rendered from charts and kustomizations. They are treated like those in Folders.
	Rendered []input.Component
	// Profile is the cluster profile of manifests in Folders that name none. NoAnnotate adds no profile. A release is reproduced with the
	// profile that it records.
	Profile    string
	NoAnnotate bool
	// Overrides are pullspecs of images to add or replace, by component.
	Overrides map[string]string
	// Exclude lists images to omit. Include lists images to keep even if nothing refers to them.
	Exclude, Include []string
	// AllowMissing keeps placeholders for images that the release lacks.
	AllowMissing bool
	// Offline prevents reading component images.
	Offline bool
	// PerRegistry is the maximum number of images read in parallel from a registry; default input.DefaultPerRegistry.
	PerRegistry int

	// Created is the creation time; default the latest time of a manifest. A reproduced release keeps its time.
	Created time.Time
	// Now is the time in the version of a release that has no version. Created takes precedence.
	Now time.Time
	// Adjust, if set, changes the version, update graph and metadata copied from the original.
	Adjust func(*assemble.Options)

	// Base is the image or OCI layout to build on. The default is the image of component BaseComponent, or the base of the original.
	Base, BaseComponent string
	// RequireBaseComponent rejects a release without the image of BaseComponent.
	RequireBaseComponent bool
	// AllPlatforms builds on every image of the base, which must be an index.
	AllPlatforms bool
	// NoOperator omits the operator, so that the release cannot run.
	NoOperator bool
	// Executable returns the file of the running program, which is the operator in a release without a base; required unless NoOperator is
	// set. Architecture is its architecture, as in GOARCH.
	Executable   func() (string, error)
	Architecture string
	// Programs are files of the operator for further architectures. A file for the architecture of the running program replaces that
	// program.
	Programs map[string]string
	// OperatorFolder contains the operator's own manifests for a release without a base and without the operator; default Operator.
	OperatorFolder string
	// Operator contains the operator's manifests in this program.
	Operator fs.FS
	// Monitoring contains manifests for monitoring the operator. AddMonitoring adds them.
	Monitoring    fs.FS
	AddMonitoring bool

	// Warn, if set, receives warnings.
	Warn func(string)
	// Reading, if set, is called with the number of component images before the first image is read. The functions that it returns are
	// called for each image, and done at the end.
	Reading func(images int) (loading, loaded func(imagev1.TagReference), done func())
}

// Inputs are the inputs of a new release.
type Inputs struct {
	// Options are the options for package assemble.
	Options assemble.Options
	// Original is the release to start from; may be nil.
	Original *derive.Original
	// Folders describes the manifests in folders.
	Folders Folders

	chosen Options
	// tolerant is set if Gather continues after mistakes in folders and collects them in mistakes.
	tolerant bool
	mistakes []error
	// own lists the components whose manifests come from a folder.
	own []string
	// asWritten lists images that are only in a folder's list. Their entries are copied unchanged, without reading the image.
	asWritten []string
	// base is the component whose image is the base of the release and therefore provides its own manifests; may be empty.
	base string
}

// ContradictionError rejects contradictory or incomplete choices.
type ContradictionError struct{ Err error }

func (e *ContradictionError) Error() string { return e.Err.Error() }
func (e *ContradictionError) Unwrap() error { return e.Err }

func contradiction(format string, args ...any) error {
	return &ContradictionError{Err: fmt.Errorf(format, args...)}
}

// Gather reads the inputs of a release: the list of images, the overrides, manifests from folders and images, and the base.
func Gather(ctx context.Context, opts Options) (*Inputs, error) {
	in := &Inputs{chosen: opts}
	if err := in.gather(ctx); err != nil {
		return nil, err
	}
	return in, nil
}

func (in *Inputs) gather(ctx context.Context) error {
	opts := &in.chosen
	for _, name := range opts.Exclude {
		if _, given := opts.Overrides[name]; given || slices.Contains(opts.Include, name) {
			return contradiction("component %q is both excluded and included: remove one of the two", name)
		}
	}
	for _, step := range []func(context.Context) error{
		in.list, in.folders, in.annotate, in.monitoring, in.override, in.setBase, in.readImages, in.checkComplete,
	} {
		if err := in.tolerate(step(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// tolerate moves the mistakes in folders out of an error if in is tolerant, and returns the remaining error. An error without mistakes keeps
// the text that wraps it.
func (in *Inputs) tolerate(err error) error {
	if !in.tolerant {
		return err
	}
	var others []error
	before := len(in.mistakes)
	for _, err := range errorset.Split(err) {
		_, content := errors.AsType[*input.ContentError](err)
		_, invalid := errors.AsType[*manifest.Error](err)
		if content || invalid {
			in.mistakes = append(in.mistakes, err)
		} else {
			others = append(others, err)
		}
	}
	if len(in.mistakes) == before {
		return err
	}
	return errorset.Join(others)
}

// list reads images and metadata from another release or an image stream, and sets the metadata of the new release.
func (in *Inputs) list(ctx context.Context) error {
	o, opts := &in.chosen, &in.Options
	switch {
	case o.Original != "":
		var err error
		if in.Original, err = derive.Open(ctx, o.Images, o.Original); err != nil {
			return err
		}
		if *opts, err = in.Original.Options(); err != nil {
			return fmt.Errorf("reading release %s: %w", o.Original, err)
		}
		if !o.Again {
			opts.Created = time.Time{}
			in.Original.Derive(opts)
		}
	case o.Stream != nil:
		tags, warnings, err := input.StreamImages(o.Stream, o.ReferenceMode, o.Exclude)
		if err != nil {
			return err
		}
		for _, w := range warnings {
			if o.Warn != nil {
				o.Warn(w)
			}
		}
		opts.Images = tags
		opts.FromImageStream(o.Stream)
	}
	opts.Images = slices.DeleteFunc(opts.Images, func(tag imagev1.TagReference) bool { return slices.Contains(o.Exclude, tag.Name) })
	opts.AllowMissingImages = o.AllowMissing
	opts.Include = append(opts.Include, o.Include...)
	if !o.Created.IsZero() && !o.Again {
		opts.Created = o.Created
	}
	if o.Adjust != nil {
		o.Adjust(opts)
	}
	if opts.Version == "" {
		at := o.Created
		if at.IsZero() {
			at = o.Now
		}
		opts.Version = "0.0.1-" + at.UTC().Format("2006-01-02-150405")
	}
	return nil
}

// folders adds the contents of the folders: components and images. An image must not have a different pullspec in another list.
func (in *Inputs) folders(context.Context) error {
	for _, dir := range in.chosen.Folders {
		var content input.Folder
		files, err := folder.Open(dir)
		if err == nil {
			content, err = input.ReadFolder(files)
		}
		if err := in.tolerate(err); err != nil {
			return fmt.Errorf("reading %s: %w", dir, err)
		}
		for _, c := range content.Components {
			for i, f := range c.Files {
				c.Files[i].Origin = filepath.Join(dir, c.Name, f.Name)
			}
			if err := in.addOwn(c, "--from-dir "+dir); err != nil {
				return err
			}
		}
		if err := in.tolerate(in.mergeImages(content.Images)); err != nil {
			return fmt.Errorf("reading %s: %w", dir, err)
		}
	}
	for _, c := range in.chosen.Rendered {
		if err := in.addOwn(c, "--from-helm or --from-kustomize"); err != nil {
			return err
		}
	}
	return nil
}

// addOwn adds an author's component. source names its source in the error.
func (in *Inputs) addOwn(c input.Component, source string) error {
	if slices.Contains(in.own, c.Name) {
		return contradiction("%s: component %q is already in another source: remove one of the two", source, c.Name)
	}
	in.own = append(in.own, c.Name)
	in.Options.Components = append(in.Options.Components, c)
	return nil
}

// mergeImages adds a folder's images to the list. An image in both must have the same pullspec.
func (in *Inputs) mergeImages(added []imagev1.TagReference) error {
	have := &in.Options.Images
	var errs []error
	for _, tag := range added {
		at := slices.IndexFunc(*have, func(t imagev1.TagReference) bool { return t.Name == tag.Name })
		switch {
		case in.isReplaced(tag.Name) || slices.Contains(in.chosen.Exclude, tag.Name):
		case at < 0:
			if err := input.CheckImage(tag); err != nil {
				errs = append(errs, &input.ContentError{Path: input.ReferencesFile, Err: err})
				continue
			}
			*have = append(*have, tag)
			in.asWritten = append(in.asWritten, tag.Name)
		case (*have)[at].From == nil || tag.From == nil || (*have)[at].From.Name != tag.From.Name:
			errs = append(errs, &ContradictionError{
				input.Mistake(input.ReferencesFile, "image %q has two addresses: select one with %s=PULLSPEC", tag.Name, tag.Name),
			})
		}
	}
	return errorset.Join(errs)
}

func (in *Inputs) isReplaced(component string) bool {
	_, replaced := in.chosen.Overrides[component]
	return replaced
}

// monitoringComponent is the component with the manifests for monitoring. They are separate from the operator's own manifests, which a
// base image provides.
const monitoringComponent = assemble.OperatorComponent + "-monitoring"

// monitoring adds the manifests for monitoring and drops those from another release.
func (in *Inputs) monitoring(context.Context) error {
	if !in.chosen.AddMonitoring {
		return nil
	}
	files, err := input.ReadFiles(in.chosen.Monitoring)
	if err != nil {
		return err
	}
	for i := range in.Options.Components {
		c := &in.Options.Components[i]
		c.Files = slices.DeleteFunc(slices.Clone(c.Files), func(f input.File) bool {
			return slices.ContainsFunc(files, func(ours input.File) bool { return ours.Name == f.Name })
		})
	}
	in.Options.Components = append(in.Options.Components, input.Component{Name: monitoringComponent, Files: files})
	return nil
}

// override replaces and adds images.
func (in *Inputs) override(context.Context) error {
	for _, component := range slices.Sorted(maps.Keys(in.chosen.Overrides)) {
		in.Options.Override(component, in.chosen.Overrides[component])
	}
	return nil
}

// readImages reads metadata and manifests from the component images.
func (in *Inputs) readImages(ctx context.Context) error {
	o := &in.chosen
	if o.Offline {
		return nil
	}
	var asWritten, toRead []imagev1.TagReference
	for _, tag := range in.Options.Images {
		if slices.Contains(in.asWritten, tag.Name) {
			asWritten = append(asWritten, tag)
		} else {
			toRead = append(toRead, tag)
		}
	}
	reading := input.ReadOptions{Images: o.Images, PerRegistry: o.PerRegistry, LabelsOnly: append([]string{in.base}, in.own...)}
	if o.Reading != nil {
		var done func()
		reading.Loading, reading.Loaded, done = o.Reading(len(toRead))
		defer done()
	}
	read, err := input.ReadImages(ctx, toRead, reading)
	if err != nil {
		return fmt.Errorf("reading component images (skip this with --offline): %w", err)
	}
	in.Options.Images = slices.Concat(asWritten, read.Images)
	in.Options.Components = append(in.Options.Components, read.Components...)
	return nil
}

// IncompleteError rejects a release that lacks manifests of the original.
type IncompleteError struct {
	Original string
	// Missing contains the file names of the missing manifests. It is not empty.
	Missing []string
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("%d manifests of %s do not come from its images, such as %s: add their source folders with --from-dir",
		len(e.Missing), e.Original, e.Missing[0])
}

// checkComplete rejects an incomplete release. Every manifest of the original must come from an image or a folder, unless its image was
// replaced or excluded.
func (in *Inputs) checkComplete(ctx context.Context) error {
	o := &in.chosen
	if in.Original == nil || o.Again || len(o.Folders)+len(o.Rendered) > 0 {
		return nil
	}
	var gone []imagev1.TagReference
	for _, tag := range in.Original.Images {
		if (in.isReplaced(tag.Name) || slices.Contains(o.Exclude, tag.Name)) && tag.Name != in.base && !o.Offline {
			gone = append(gone, tag)
		}
	}
	before, err := input.ReadImages(ctx, gone, input.ReadOptions{Images: o.Images, PerRegistry: o.PerRegistry})
	if err != nil {
		return fmt.Errorf("reading the manifests of the replaced images: %w", err)
	}
	for _, c := range in.Options.Components {
		if !in.isReplaced(c.Name) {
			before.Components = append(before.Components, c)
		}
	}
	missing, err := in.Original.MissingFrom(before.Components)
	if err != nil {
		return fmt.Errorf("reproducing %s: %w", o.Original, err)
	}
	if len(missing) > 0 {
		return &IncompleteError{Original: o.Original, Missing: missing}
	}
	return nil
}
