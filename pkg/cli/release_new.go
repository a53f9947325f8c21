package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	imagev1 "github.com/openshift/api/image/v1"
	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/assemble"
	"github.com/cluster-version/cvo/pkg/image"
)

// sourceDateEpoch names the environment variable by which builds are told a time (reproducible-builds.org).
const sourceDateEpoch = "SOURCE_DATE_EPOCH"

type releaseNewOptions struct {
	name              string
	fromDir           string
	overrides         []string
	previous, next    []string
	metadata          string
	componentVersions string
	created           string

	base              string
	operatorManifests string
	offline           bool
	allowMissing      bool

	toImage, toOCI, toDir string
	dryRun                bool
	output                string
	registry              imageFlags
}

func newReleaseNewCmd(streams Streams) *cobra.Command {
	var opts releaseNewOptions
	cmd := &cobra.Command{
		Use:   "new [COMPONENT=PULLSPEC ...]",
		Short: "Assemble a release image from folders of manifests and component images",
		Long: `Assemble a release image from folders of manifests and component images.

--from-dir names a folder with one subdirectory for each component, which holds the component's manifests and, where
they refer to images, a file image-references: an ImageStream whose tags map a component's name to the text that its
pullspec replaces. The file image-references at the top of the folder lists the component images, by digest.

Positional arguments add component images or replace them. They are read from their registry: a tag becomes a digest,
labels say where the image was built from, and an image labelled io.openshift.release.operator brings the manifests in
its folder /manifests, unless --from-dir has a subdirectory for the component. --offline takes them as they are written.

In all manifests 0.0.1-snapshot becomes the release's version, and 0.0.1-snapshot-KEY the version of KEY in an image
that the component refers to, or in --component-versions. Files are applied in the order of their names; a name without
0000_NN_ in front becomes 0000_50_<component>_<name>.

The operator and its own manifests come with the base image. Without --to-image-base the release is built on nothing: it
carries the set of this binary but for the operator's Deployment, or else --operator-manifests, and is installed by an
operator that runs elsewhere.

The result goes to a registry (--to-image), an OCI layout (--to-oci) and a folder (--to-dir), which are not exclusive.
Equal input, with equal file times or one --created, gives an equal digest. Printed are digest, name and creation time.`,
		Example: `  cvo release new --from-dir examples/platform/1.0.0 --name 1.0.0 --to-oci /tmp/release
  cvo release new --from-dir ./components --name 2.1.0 --previous 2.0.0,2.0.1 \
    dns=registry.example/platform/dns:v2.1.0 --to-image-base registry.example/cvo:v1 --to-image registry.example/release:2.1.0`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.overrides = args
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.name, "name", "", "version of the release (required)")
	flags.StringVarP(&opts.fromDir, "from-dir", "", "", "folder with one subdirectory of manifests for each component")
	flags.StringSliceVar(&opts.previous, "previous", nil, "versions that may update to this one")
	flags.StringSliceVar(&opts.next, "next", nil, "versions that this one may update to")
	flags.StringVar(&opts.metadata, "metadata", "", `JSON object to put into the release's metadata, such as {"url": "https://…"}`)
	flags.StringVar(&opts.componentVersions, "component-versions", "", "versions of what is inside the components, as k=v,k2=v2, where no image says otherwise")
	flags.StringVar(&opts.created, "created", "", "creation time, RFC 3339 (default $"+sourceDateEpoch+", or the newest time of a manifest)")
	flags.StringVar(&opts.base, "to-image-base", "", "image or OCI layout to build on")
	flags.StringVar(&opts.operatorManifests, "operator-manifests", "", "folder with the operator's own manifests (default those of this binary)")
	flags.BoolVar(&opts.offline, "offline", false, "do not read component images: take their pullspecs, by digest, as they are")
	flags.BoolVar(&opts.allowMissing, "allow-missing-images", false, "keep placeholders of images that the release does not have")
	flags.StringVar(&opts.toImage, "to-image", "", "tag in a registry to push to")
	flags.StringVar(&opts.toOCI, "to-oci", "", "OCI layout to write to")
	flags.StringVar(&opts.toDir, "to-dir", "", "folder to write manifests/ and release-manifests/ to")
	flags.BoolVar(&opts.dryRun, "dry-run", false, "write nothing")
	flags.StringVarP(&opts.output, "output", "o", "", "json prints the list of images and stops")
	opts.registry.add(flags)
	return cmd
}

func (o *releaseNewOptions) run(ctx context.Context, streams Streams) error {
	if err := o.check(); err != nil {
		return &UsageError{Err: err}
	}
	images, err := o.registry.images("")
	if err != nil {
		return err
	}
	inputs, err := o.inputs(ctx, images, streams)
	if err != nil {
		return err
	}
	result, err := assemble.New(inputs)
	if err != nil {
		return fmt.Errorf("assembling release %s: %w", o.name, err)
	}
	if o.output == "json" {
		_, err := fmt.Fprintln(streams.Out, string(result.References))
		return err
	}
	fmt.Fprintf(streams.Err, "info: Included %d images from %d input operators into the release\n", result.Images, result.Operators)
	for _, warning := range result.Warnings {
		fmt.Fprintf(streams.Err, "warning: %s\n", warning)
	}
	if result.Operators == 0 {
		fmt.Fprintln(streams.Err, "warning: No component contributes manifests")
	}
	if !o.dryRun {
		if err := o.write(ctx, streams, result); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(streams.Out, "%s %s %s\n", result.Digest, result.Version, result.Created.Format(time.RFC3339))
	return err
}

func (o *releaseNewOptions) check() error {
	switch {
	case o.name == "":
		return errors.New("--name is required: a release needs a version")
	case o.fromDir == "" && len(o.overrides) == 0:
		return errors.New("nothing to assemble: name a folder with --from-dir, or images as COMPONENT=PULLSPEC")
	case o.toImage == "" && o.toOCI == "" && o.toDir == "" && !o.dryRun && o.output == "":
		return errors.New("nowhere to write to: use --to-image, --to-oci, --to-dir or --dry-run")
	case o.base != "" && o.operatorManifests != "":
		return errors.New("--to-image-base brings the operator's manifests with it: leave out --operator-manifests")
	case o.output != "" && o.output != "json":
		return fmt.Errorf("--output %q is not known, only json is", o.output)
	}
	return nil
}

// inputs gathers what the release is made of.
func (o *releaseNewOptions) inputs(ctx context.Context, images *image.Reader, streams Streams) (assemble.Options, error) {
	inputs := assemble.Options{Version: o.name, Previous: o.previous, Next: o.next, AllowMissingImages: o.allowMissing}
	var err error
	if inputs.Metadata, err = assemble.ParseMetadata(o.metadata); err != nil {
		return inputs, &UsageError{Err: err}
	}
	if inputs.ComponentVersions, err = assemble.ParseComponentVersions(o.componentVersions); err != nil {
		return inputs, &UsageError{Err: err}
	}
	if inputs.Created, err = creationTime(o.created, os.Getenv(sourceDateEpoch)); err != nil {
		return inputs, &UsageError{Err: err}
	}
	var folder assemble.Folder
	if o.fromDir != "" {
		if folder, err = assemble.ReadFolder(os.DirFS(o.fromDir)); err != nil {
			return inputs, fmt.Errorf("reading %s: %w", o.fromDir, err)
		}
	}
	if err := o.override(ctx, images, streams, &folder); err != nil {
		return inputs, err
	}
	inputs.Components, inputs.Images = folder.Components, folder.Images
	return inputs, o.operator(ctx, images, &inputs)
}

// override adds the images on the command line to the folder's, or puts them in their place.
func (o *releaseNewOptions) override(ctx context.Context, images *image.Reader, streams Streams, folder *assemble.Folder) error {
	pullspecs := map[string]string{}
	for _, arg := range o.overrides {
		component, pullspec, ok := strings.Cut(arg, "=")
		if !ok || component == "" || pullspec == "" {
			return &UsageError{Err: fmt.Errorf("argument %q is not COMPONENT=PULLSPEC", arg)}
		}
		if _, twice := pullspecs[component]; twice {
			return &UsageError{Err: fmt.Errorf("component %q is given twice", component)}
		}
		pullspecs[component] = pullspec
	}
	own := map[string]bool{}
	for _, c := range folder.Components {
		own[c.Name] = true
	}
	var added assemble.Folder
	if o.offline {
		for component, pullspec := range pullspecs {
			added.Images = append(added.Images, assemble.ImageTag(component, pullspec))
		}
	} else {
		for _, component := range slices.Sorted(maps.Keys(pullspecs)) {
			fmt.Fprintf(streams.Err, "info: Loading override %s %s\n", pullspecs[component], component)
		}
		var err error
		if added, err = assemble.ReadImages(ctx, images, pullspecs, own); err != nil {
			return fmt.Errorf("reading component images (--offline takes their digests as they are): %w", err)
		}
	}
	folder.Components = append(folder.Components, added.Components...)
	folder.Images = mergeImages(folder.Images, added.Images)
	return nil
}

// mergeImages marks images from the command line as overrides, as existing clients do, and lets them replace others.
func mergeImages(have, added []imagev1.TagReference) []imagev1.TagReference {
	replaced := map[string]bool{}
	for _, image := range added {
		replaced[image.Name] = true
	}
	var merged []imagev1.TagReference
	for _, image := range have {
		if !replaced[image.Name] {
			merged = append(merged, image)
		}
	}
	for _, image := range added {
		annotations := map[string]string{"io.openshift.release.override": "true"}
		maps.Copy(annotations, image.Annotations)
		image.Annotations = annotations
		merged = append(merged, image)
	}
	return merged
}

// operator opens the base image, or reads the operator's own set that stands in for it.
func (o *releaseNewOptions) operator(ctx context.Context, images *image.Reader, inputs *assemble.Options) (err error) {
	set := manifests.FS()
	switch {
	case o.base != "":
		base, err := images.Resolve(ctx, o.base)
		if err != nil {
			return err
		}
		inputs.Base, err = images.Open(ctx, base)
		return err
	case o.operatorManifests != "":
		set = os.DirFS(o.operatorManifests)
	case !manifests.Complete():
		return errors.New("this cvo was built without the CustomResourceDefinitions of ClusterVersion and ClusterOperator: " +
			"build it again after `make generate`, or give the operator's manifests by --operator-manifests or --to-image-base")
	}
	inputs.Operator, err = assemble.ReadFiles(set)
	if o.operatorManifests == "" {
		// A release built on nothing has no operator to run: its Deployment would never become available.
		inputs.Operator = slices.DeleteFunc(inputs.Operator, func(f assemble.File) bool {
			return bytes.Contains(f.Data, []byte(".ReleaseImage"))
		})
	}
	return err
}

func (o *releaseNewOptions) write(ctx context.Context, streams Streams, result *assemble.Result) error {
	if o.toDir != "" {
		if err := result.WriteFolder(o.toDir); err != nil {
			return err
		}
		fmt.Fprintf(streams.Err, "info: Wrote %s\n", o.toDir)
	}
	if o.toOCI != "" {
		if err := result.WriteLayout(o.toOCI); err != nil {
			return err
		}
		fmt.Fprintf(streams.Err, "info: Wrote %s\n", o.toOCI)
	}
	if o.toImage != "" {
		access, err := o.registry.access()
		if err != nil {
			return err
		}
		if _, err := result.Push(ctx, access, o.toImage); err != nil {
			return err
		}
		fmt.Fprintf(streams.Err, "info: Pushed to %s\n", o.toImage)
	}
	return nil
}

// creationTime takes the flag, or else the environment variable (seconds since 1970), or else none.
func creationTime(flag, epoch string) (time.Time, error) {
	if flag != "" {
		t, err := time.Parse(time.RFC3339, flag)
		if err != nil {
			return t, fmt.Errorf("--created: %w", err)
		}
		return t, nil
	}
	if epoch == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("$%s: %w", sourceDateEpoch, err)
	}
	return time.Unix(seconds, 0), nil
}
