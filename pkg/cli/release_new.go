package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/assemble"
	"github.com/cluster-version/cvo/pkg/lint"
)

// What mistakes in the manifests do.
const (
	lintError = "error"
	lintWarn  = "warn"
	lintOff   = "off"
)

// sourceDateEpoch names the environment variable by which builds are told a time (reproducible-builds.org).
const sourceDateEpoch = "SOURCE_DATE_EPOCH"

type releaseNewOptions struct {
	name           string
	previous, next []string
	metadata       string
	created        string
	// changed tells which flags were given, by name.
	changed func(string) bool

	fromDirs        []string
	fromRelease     string
	streamFile      string
	stream          string
	namespace       string
	cluster         contextFlags
	referenceMode   string
	mappingFile     string
	args            []string
	exclude         []string
	include         []string
	allowMissing    bool
	offline         bool
	versions        string
	displayNames    string
	registry        imageFlags
	overrides       map[string]string // args and the mapping file
	versionsByKey   map[string]string
	displayByKey    map[string]string
	metadataContent map[string]any
	createdAt       time.Time

	base              string
	baseTag           string
	operatorManifests string
	keepManifestList  bool
	monitoring        bool

	toImage, toOCI, toDir, toFile string
	toSignature                   string
	mirror                        string
	resultFile                    string
	dryRun                        bool
	lint                          string
	lintDisable                   []string
	output                        string
	progress                      progressFlags

	clock clock.PassiveClock
}

func newReleaseNewCmd(streams Streams) *cobra.Command {
	opts := releaseNewOptions{clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "new [COMPONENT=PULLSPEC ...]",
		Short: "Assemble a release image from component images, folders of manifests, or another release",
		Long: `Assemble a release image from component images, folders of manifests, or another release.

The component images come from one list: another release (--from-release), an image stream (--from-image-stream-file, or
--from-image-stream in a cluster) or the file image-references at the top of --from-dir. Positional arguments and the
lines of --mapping-file add images or replace them; a tag becomes a digest. Every image is read from its registry, but for
those that a folder lists: labels say where it was built from, and an image labelled io.openshift.release.operator=true
brings the manifests in its folder /manifests. --offline takes images as they are written and reads none.

--from-dir names a folder with one subdirectory for each component, whose manifests count instead of those in its image.
A component's file image-references is an ImageStream whose tags map the name of an image to the text that its pullspec
replaces. In all manifests 0.0.1-snapshot becomes the release's version, and 0.0.1-snapshot-KEY the version of KEY in an
image that the component refers to, or in --component-versions. Files are applied in the order of their names; a name
without 0000_NN_ in front becomes 0000_50_<component>_<name>.

Images that no component refers to, and whose component has no manifests, are left out; --include keeps them.

--mirror copies the images that the release consists of to one repository, with what is attached to them, and refers to
them there.

--from-release without anything else makes the release again and fails, saying what differs, unless it comes out the same
to the last byte. With replaced images, what the release was built on and what it says about itself are kept.

The operator and its own manifests come with the base image: --to-image-base, or the component --to-image-base-tag.
Without either the release is built on nothing: it carries the set of this binary but for the operator's Deployment, or
else --operator-manifests, and is installed by an operator that runs elsewhere. --monitoring adds a ServiceMonitor and
alerts, which a cluster without the Prometheus Operator cannot take.

What cvo release lint finds is printed before anything is written, and errors keep the release from being made (exit code
3), unless --lint says otherwise. What lies in a base image is not looked at again.

The result goes to a registry (--to-image), an OCI layout (--to-oci), a folder (--to-dir) and a file with its one layer
(--to-file), which are not exclusive. Equal input, with equal file times or one --created, gives an equal digest. Printed
are digest, name and creation time.`,
		Example: `  cvo release new --from-dir examples/platform/1.0.0 --name 1.0.0 --to-oci /tmp/release
  cvo release new --from-dir ./components --name 2.1.0 --previous 2.0.0,2.0.1 \
    dns=registry.example/platform/dns:v2.1.0 --to-image-base registry.example/cvo:v1 --to-image registry.example/release:2.1.0

  # Replace one image of a release
  cvo release new --from-release registry.example/release:2.1.0 --name 2.1.1 dns=registry.example/platform/dns:v2.1.1 \
    --to-image registry.example/release:2.1.1

  # Is a release what its component images make?
  cvo release new --from-release registry.example/release:2.1.0 --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.args, opts.changed = args, cmd.Flags().Changed
			return opts.run(cmd.Context(), streams)
		},
	}
	opts.add(cmd.Flags())
	for flag, values := range map[string][]string{
		"output": {outputJSON, outputYAML}, "lint": {lintError, lintWarn, lintOff}, "lint-disable": lint.RuleIDs(),
		"reference-mode": {string(assemble.ReferencePublic), string(assemble.ReferenceSource)},
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func (o *releaseNewOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.name, "name", "", "version of the release (default that of --from-release, or 0.0.1-<time>)")
	flags.StringSliceVar(&o.previous, "previous", nil, "versions that may update to this one")
	flags.StringSliceVar(&o.next, "next", nil, "versions that this one may update to")
	flags.StringVar(&o.metadata, "metadata", "", `JSON object to put into the release's metadata, such as {"url": "https://…"}`)
	flags.StringVar(&o.created, "created", "", "creation time, RFC 3339 (default $"+sourceDateEpoch+", or the newest time of a manifest)")

	flags.StringArrayVar(&o.fromDirs, "from-dir", nil, "`folder` with one subdirectory of manifests for each component (repeat for more)")
	flags.StringVar(&o.fromRelease, "from-release", "", "release whose images and metadata to start from: pullspec or OCI layout")
	flags.StringVarP(&o.streamFile, "from-image-stream-file", "f", "", "`file` with the image stream that lists the images; a URL, or - for standard input")
	flags.StringVar(&o.stream, "from-image-stream", "", "image stream of a cluster that lists the images")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of --from-image-stream (default that of the kubeconfig)")
	o.cluster.add(flags)
	for _, flag := range []string{"kubeconfig", "context"} {
		flags.Lookup(flag).Usage += "; for --from-image-stream"
	}
	flags.StringVar(&o.referenceMode, "reference-mode", "", "address of an image stream's images: public or source (default public if the stream has such an address)")
	flags.StringVar(&o.mappingFile, "mapping-file", "", "`file` with a line COMPONENT=PULLSPEC for each image to add or replace")
	flags.StringSliceVar(&o.exclude, "exclude", nil, "images of the list to pass over")
	flags.StringSliceVar(&o.include, "include", nil, "images to keep although nothing refers to them")
	flags.BoolVar(&o.allowMissing, "allow-missing-images", false, "keep placeholders of images that the release does not have")
	flags.BoolVar(&o.offline, "offline", false, "do not read component images: take their pullspecs, by digest, as they are")
	flags.StringVar(&o.versions, "component-versions", "", "versions of what is inside the components, as k=v,k2=v2, where no image says otherwise")
	flags.StringVar(&o.displayNames, "component-versions-display-names", "", "what people call the keys of component versions, as k=name,k2=name")

	flags.StringVar(&o.base, "to-image-base", "", "image or OCI layout to build on")
	flags.StringVar(&o.baseTag, "to-image-base-tag", assemble.OperatorComponent, "component whose image to build on, if there is no --to-image-base")
	flags.StringVar(&o.operatorManifests, "operator-manifests", "", "`folder` with the operator's own manifests, for a release built on nothing (default those of this binary)")
	flags.BoolVar(&o.keepManifestList, "keep-manifest-list", false, "if the base is an index, build on each of its images and make an index")

	flags.BoolVar(&o.monitoring, "monitoring", false, "add what has the Prometheus Operator watch the version operator, with alerts; for clusters that serve ServiceMonitor and PrometheusRule")

	flags.StringVar(&o.toImage, "to-image", "", "tag in a registry to push to")
	flags.StringVar(&o.toOCI, "to-oci", "", "`folder` to write to, as an OCI layout")
	flags.StringVar(&o.toDir, "to-dir", "", "new `folder` to write manifests/ and release-manifests/ to")
	flags.StringVar(&o.toFile, "to-file", "", "new `file` for the layer that makes the base a release, a .tar.gz; - is standard output")
	flags.StringVar(&o.mirror, "mirror", "", "repository to copy the component images to, and to refer to them in")
	flags.StringVar(&o.toSignature, "to-signature", "", "new `file` for the message that signers of --to-image have to sign")
	flags.StringVar(&o.resultFile, "result-file", "", "new `file` for digest, name, creation time, counts and warnings as JSON; - prints them instead of the usual line")
	flags.StringVar(&o.lint, "lint", lintError, "what mistakes in the manifests do, which cvo release lint finds: error (they keep the release from being made), warn (they are printed), or off")
	flags.StringSliceVar(&o.lintDisable, "lint-disable", nil, "`rule` of cvo release lint that is not looked for (repeat for more)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "write nothing")
	flags.StringVarP(&o.output, "output", "o", "", "json or yaml prints the list of images and stops")
	o.registry.add(flags)
	o.registry.addPlatform(flags)
	o.progress.add(flags)
	flags.Lookup("max-per-registry").Usage = fmt.Sprintf("`number` of component images that are read from one registry at a time; 0 for the default of %d", assemble.DefaultPerRegistry)
}

func (o *releaseNewOptions) run(ctx context.Context, streams Streams) error {
	if err := o.check(); err != nil {
		return &UsageError{Err: err}
	}
	inputs, err := o.inputs(ctx, streams)
	if err != nil {
		return err
	}
	result, err := assemble.New(inputs.options)
	if err != nil {
		return fmt.Errorf("assembling release %s: %w", inputs.options.Version, err)
	}
	if err := o.compare(inputs, result); err != nil {
		return err
	}
	if o.mirror != "" {
		if result, err = o.mirrored(ctx, streams, inputs, result); err != nil {
			return err
		}
	}
	if o.output != "" {
		return o.printReferences(streams, result)
	}
	o.report(streams, result)
	if err := o.examine(streams, inputs, result); err != nil {
		return err
	}
	if !o.dryRun {
		if err := o.write(ctx, streams, result); err != nil {
			return err
		}
	}
	return o.printResult(streams, result)
}

// check refuses what is contradictory, and reads what needs nothing but the command line.
func (o *releaseNewOptions) check() (err error) {
	outputs := o.toImage + o.toOCI + o.toDir + o.toFile
	lists := 0
	for _, list := range []string{o.fromRelease, o.stream, o.streamFile} {
		if list != "" {
			lists++
		}
	}
	switch {
	case lists > 1:
		return errors.New("--from-release, --from-image-stream and --from-image-stream-file each give the list of images: use one of them, and COMPONENT=PULLSPEC for the rest")
	case lists == 0 && len(o.fromDirs)+len(o.args) == 0 && o.mappingFile == "":
		return errors.New("nothing to assemble: name a release, an image stream or a folder by a --from flag, or images as COMPONENT=PULLSPEC")
	case o.referenceMode != "" && o.stream+o.streamFile == "":
		return errors.New("--reference-mode is about the images of an image stream: give one, or leave it out")
	case o.namespace != "" && o.stream == "":
		return errors.New("--namespace is that of --from-image-stream: give one, or leave it out")
	case outputs == "" && !o.dryRun && o.output == "":
		return errors.New("nowhere to write to: use --to-image, --to-oci, --to-dir, --to-file or --dry-run")
	case o.base != "" && o.operatorManifests != "":
		return errors.New("--to-image-base brings the operator's manifests with it: leave out --operator-manifests")
	case o.keepManifestList && o.operatorManifests != "":
		return errors.New("--keep-manifest-list is about the base image, and --operator-manifests about a release without one: leave out one of the two")
	case o.toSignature != "" && o.toImage == "":
		return errors.New("--to-signature is about the image in the registry: name it with --to-image")
	case o.toFile == "-" && o.resultFile == "-":
		return errors.New("--to-file and --result-file cannot both be standard output: name a file for one of them")
	case !slices.Contains([]string{lintError, lintWarn, lintOff}, o.lint):
		return fmt.Errorf("--lint %q is not known: use %s, %s or %s", o.lint, lintError, lintWarn, lintOff)
	case !slices.Contains([]string{"", "json", "yaml"}, o.output):
		return fmt.Errorf("--output %q is not known: use json or yaml", o.output)
	}
	for _, id := range o.lintDisable {
		if !slices.Contains(lint.RuleIDs(), id) {
			return fmt.Errorf("--lint-disable: %w", unknownRule(id))
		}
	}
	if o.metadataContent, err = assemble.ParseMetadata(o.metadata); err != nil {
		return err
	}
	if o.versionsByKey, err = assemble.ParseComponentVersions(o.versions); err != nil {
		return fmt.Errorf("--component-versions: %w", err)
	}
	if o.displayByKey, err = assemble.ParseDisplayNames(o.displayNames); err != nil {
		return fmt.Errorf("--component-versions-display-names: %w", err)
	}
	if o.createdAt, err = creationTime(o.created, sourceDate()); err != nil {
		return err
	}
	return o.checkOverrides()
}
