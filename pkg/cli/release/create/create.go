// Package create provides the command 'cvo release new'. Package compose gathers the inputs that the flags name, assemble builds the
// release, and lint checks it. The command prints the findings and writes the release.
package create

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/progress"
	"github.com/cluster-version/cvo/pkg/cli/registries"
)

// Values of --lint, which sets the effect of mistakes in the manifests.
const (
	lintError = "error"
	lintWarn  = "warn"
	lintOff   = "off"
)

// sourceDateEpoch is the environment variable with the time stamp of reproducible builds (reproducible-builds.org).
const sourceDateEpoch = "SOURCE_DATE_EPOCH"

type options struct {
	name           string
	previous, next []string
	metadata       string
	created        string
	// changed reports whether the flag of that name was given.
	changed func(string) bool

	fromDirs        []string
	charts          []string
	values          []string
	kustomizations  []string
	profile         string
	noAnnotate      bool
	fromRelease     string
	streamFile      string
	stream          string
	namespace       string
	cluster         cluster.ContextFlags
	referenceMode   string
	mappingFile     string
	args            []string
	exclude         []string
	include         []string
	allowMissing    bool
	offline         bool
	versions        string
	displayNames    string
	registry        registries.Flags
	overrides       map[string]string // args and the mapping file
	versionsByKey   map[string]string
	displayByKey    map[string]string
	metadataContent map[string]any
	createdAt       time.Time

	base              string
	baseTag           string
	operatorManifests string
	noOperator        bool
	arch              []string
	programs          map[string]string // arch
	keepManifestList  bool
	monitoring        bool

	toImage, toOCI, toDir, toFile string
	toSignature                   string
	mirror                        string
	resultFile                    string
	dryRun                        bool
	lint                          string
	lintDisable                   []string
	lintFrom                      string
	output                        string
	progress                      progress.Flags

	clock clock.PassiveClock
	// executable returns the file of this program, as os.Executable does.
	executable func() (string, error)
}

// New returns the command 'cvo release new'.
func New(streams command.Streams) *cobra.Command {
	opts := options{clock: clock.RealClock{}, executable: os.Executable}
	cmd := &cobra.Command{
		Use:   "new [COMPONENT=PULLSPEC ...]",
		Short: "Build a release image from component images, folders of manifests, or another release",
		Long: `Build a release image from component images, folders of manifests, or another release.

The component images come from one list: another release (--from-release), an image stream (--from-image-stream-file, or
--from-image-stream in a cluster) or the file image-references at the top of --from-dir. Positional arguments and the
lines of --mapping-file add or replace images. The command resolves tags to digests. It reads every image from its registry,
except the images that a folder lists. The labels of an image give its source, and an image with the label
io.openshift.release.operator=true contains manifests in its folder /manifests. --offline uses the given pullspecs and reads
no component image. It still reads the release of --from-release and the base image, and --mirror copies the images.

--from-dir names a folder with one subdirectory for each component. Its manifests replace the manifests in the component's
image. A component's file image-references is an ImageStream. Its tags map the name of an image to the text that the image's
pullspec replaces. In all manifests the command replaces 0.0.1-snapshot with the release's version, and 0.0.1-snapshot-KEY
with the version of KEY in an image that the component refers to, or in --component-versions. Files are applied in the order
of their names; a name without the prefix 0000_NN_ becomes 0000_50_<component>_<name>.

--from-helm renders a Helm chart, and --from-kustomize a kustomization, into a component with the name of the folder. They run
helm, and kustomize or kubectl, on this machine. A chart's templates see the component's name as name and namespace; its hooks
and tests are omitted.

A cluster installs only manifests that name its profile. The command adds the annotation
include.release.openshift.io/PROFILE: "true" to manifests from folders, charts and kustomizations that name no profile.
PROFILE is --profile or the default profile. This changes only the copy in the release. --no-annotate adds nothing.

The release does not include images that no component refers to and whose component has no manifests; --include keeps them.

--mirror copies the images of the release, with their signatures and other attachments, to one repository. The release then
refers to the copies.

--from-release without other changes rebuilds the release. The command fails and shows the differences, unless the result
is identical byte for byte. If you replace images, the release keeps its base and its metadata.

The release contains the operator: this binary, which must be static (CGO_ENABLED=0), with its manifests. --arch adds a
binary for another architecture, and the release becomes an index. If this binary is not for Linux, --arch is required. A
base image replaces this operator: --to-image-base, or the component --to-image-base-tag. A release made from another one
keeps its base. --no-operator omits the operator and its Deployment, and an operator outside the cluster ('cvo start')
installs the release. With --operator-manifests, the release contains only the manifests in that folder. --monitoring adds a
ServiceMonitor and alerts; a cluster without the Prometheus Operator cannot apply them.

The command prints the findings of 'cvo release lint' before it writes anything. Errors prevent the release (exit code 3),
unless --lint allows them. Files in the base image are not linted. --from compares with the release that clusters update
from.

The command writes the result to a registry (--to-image), an OCI layout (--to-oci), a folder (--to-dir) or a file with its
one layer (--to-file), or to several of them. The same input, with the same file times or the same --created, results in
the same digest. The command prints the digest, the name and the creation time.`,
		Example: `  cvo release new --from-dir examples/platform/1.0.0 --name 1.0.0 --to-oci /tmp/release
  cvo release new --from-dir ./components --name 2.1.0 --previous 2.0.0,2.0.1 \
    dns=registry.example/platform/dns:v2.1.0 --to-image registry.example/release:2.1.0

  # For nodes with amd64 and arm64
  cvo release new --from-dir ./components --name 2.1.0 --arch arm64=./cvo-linux-arm64 --to-image registry.example/release:2.1.0

  # Render a chart and a kustomization into components
  cvo release new --from-helm ./charts/web --values production.yaml --from-kustomize dns=./dns/overlays/production \
    --name 2.1.0 --to-oci ./release

  # Replace one image of a release
  cvo release new --from-release registry.example/release:2.1.0 --name 2.1.1 dns=registry.example/platform/dns:v2.1.1 \
    --to-image registry.example/release:2.1.1

  # Check that a release is built from its component images
  cvo release new --from-release registry.example/release:2.1.0 --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.args, opts.changed = args, cmd.Flags().Changed
			return opts.run(cmd.Context(), streams)
		},
	}
	opts.add(cmd.Flags())
	for flag, values := range map[string][]string{
		"output": {printing.FormatJSON, printing.FormatYAML}, "lint": {lintError, lintWarn, lintOff}, "lint-disable": finding.RuleIDs(),
		"reference-mode": {string(input.ReferencePublic), string(input.ReferenceSource)},
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	registries.Copies(cmd)
	return cmd
}

func (o *options) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.name, "name", "", "version of the release (default from --from-release, or 0.0.1-<time>)")
	flags.StringSliceVar(&o.previous, "previous", nil, "versions that may update to this one")
	flags.StringSliceVar(&o.next, "next", nil, "versions that this one may update to")
	flags.StringVar(&o.metadata, "metadata", "", `JSON object to add to the release's metadata, such as {"url": "https://…"}`)
	flags.StringVar(&o.created, "created", "", "creation time, RFC 3339 (default $"+sourceDateEpoch+", or the newest time of a manifest)")

	flags.StringArrayVar(&o.fromDirs, "from-dir", nil, "`folder` with one subdirectory of manifests for each component (repeat for more)")
	flags.StringArrayVar(&o.charts, "from-helm", nil, "`chart` to render into a component, or COMPONENT=CHART; needs helm (repeat for more)")
	flags.StringArrayVar(&o.values, "values", nil, "`file` with values for the charts of --from-helm (repeat for more)")
	flags.StringArrayVar(&o.kustomizations, "from-kustomize", nil, "`folder` with a kustomization to render into a component, or COMPONENT=FOLDER; needs kustomize or kubectl (repeat for more)")
	flags.StringVar(&o.profile, "profile", api.DefaultProfile, "cluster `profile` of manifests in --from-dir that name none")
	flags.BoolVar(&o.noAnnotate, "no-annotate", false, "add no profile to manifests: clusters do not install manifests without one")
	flags.StringVar(&o.fromRelease, "from-release", "", "release to start from, with its images and metadata: pullspec or OCI layout")
	flags.StringVarP(&o.streamFile, "from-image-stream-file", "f", "", "`file` with the image stream that lists the images; a URL, or - for standard input")
	flags.StringVar(&o.stream, "from-image-stream", "", "image stream of a cluster that lists the images")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of --from-image-stream (default the kubeconfig's namespace)")
	o.cluster.Add(flags)
	for _, flag := range []string{"kubeconfig", "context"} {
		flags.Lookup(flag).Usage += "; for --from-image-stream"
	}
	flags.StringVar(&o.referenceMode, "reference-mode", "", "address of an image stream's images: public or source (default public if the stream has such an address)")
	flags.StringVar(&o.mappingFile, "mapping-file", "", "`file` with a line COMPONENT=PULLSPEC for each image to add or replace")
	flags.StringSliceVar(&o.exclude, "exclude", nil, "images to omit from the list")
	flags.StringSliceVar(&o.include, "include", nil, "images to keep even without references")
	flags.BoolVar(&o.allowMissing, "allow-missing-images", false, "keep placeholders of missing images")
	flags.BoolVar(&o.offline, "offline", false, "do not read component images; use their pullspecs, by digest, as given")
	flags.StringVar(&o.versions, "component-versions", "", "versions of the components' content, as k=v,k2=v2; labels of images take precedence")
	flags.StringVar(&o.displayNames, "component-versions-display-names", "", "display names for the keys of component versions, as k=name,k2=name")

	flags.StringVar(&o.base, "to-image-base", "", "image or OCI layout to build on")
	flags.StringVar(&o.baseTag, "to-image-base-tag", assemble.OperatorComponent, "component whose image is the base, if --to-image-base is not set")
	flags.StringArrayVar(&o.arch, "arch", nil, "`ARCH=FILE`: add the operator for another architecture, a static cvo for Linux (repeat for more)")
	flags.BoolVar(&o.noOperator, "no-operator", false, "omit the operator: 'cvo start' outside the cluster installs the release")
	flags.StringVar(&o.operatorManifests, "operator-manifests", "", "`folder` with the operator's own manifests, for a release without the operator (default those of this binary)")
	flags.BoolVar(&o.keepManifestList, "keep-manifest-list", false, "if the base is an index, build on each of its images and create an index")

	flags.BoolVar(&o.monitoring, "monitoring", false, "add a ServiceMonitor and a PrometheusRule for the version operator; for clusters that serve these kinds")

	flags.StringVar(&o.toImage, "to-image", "", "tag in a registry to push to")
	flags.StringVar(&o.toOCI, "to-oci", "", "`folder` to write to, as an OCI layout")
	flags.StringVar(&o.toDir, "to-dir", "", "new `folder` to write manifests/ and release-manifests/ to")
	flags.StringVar(&o.toFile, "to-file", "", "new `file` for the release's layer on top of the base, a .tar.gz; - is standard output")
	flags.StringVar(&o.mirror, "mirror", "", "repository to copy the component images to; the release refers to the copies")
	flags.StringVar(&o.toSignature, "to-signature", "", "new `file` for the message that signers of --to-image sign")
	flags.StringVar(&o.resultFile, "result-file", "", "new `file` for digest, name, creation time, counts and warnings as JSON; - prints them instead of the usual line")
	flags.StringVar(&o.lint, "lint", lintError, "effect of lint findings: error (errors prevent the release), warn (print them), or off")
	flags.StringSliceVar(&o.lintDisable, "lint-disable", nil, "`rule` of cvo release lint to skip (repeat for more)")
	flags.StringVar(&o.lintFrom, "from", "", "`release` that clusters update from: cvo release lint then warns about dropped kinds and changed storage versions")
	flags.BoolVar(&o.dryRun, "dry-run", false, "write nothing")
	flags.StringVarP(&o.output, "output", "o", "", "json or yaml: print the list of images and stop")
	o.registry.Add(flags)
	o.registry.AddPlatform(flags)
	o.progress.Add(flags)
	flags.Lookup("max-per-registry").Usage = fmt.Sprintf("maximum `number` of component images to read from one registry concurrently; 0 for the default of %d", input.DefaultPerRegistry)
}

func (o *options) run(ctx context.Context, streams command.Streams) error {
	if err := o.check(); err != nil {
		return &command.UsageError{Err: err}
	}
	if err := o.checkFiles(); err != nil {
		return err
	}
	images, err := o.registry.Images("")
	if err != nil {
		return err
	}
	inputs, err := o.inputs(ctx, streams, images)
	if err != nil {
		return err
	}
	result, err := assemble.New(inputs.Options)
	if err != nil {
		return fmt.Errorf("assembling release %s: %w", inputs.Options.Version, err)
	}
	if err := o.compare(inputs, result); err != nil {
		return err
	}
	if o.mirror != "" {
		if result, err = o.mirrored(ctx, streams, images, inputs.Options, result); err != nil {
			return err
		}
	}
	if o.output != "" {
		return o.printReferences(streams, result)
	}
	if err := o.report(streams, inputs, result); err != nil {
		return err
	}
	if err := o.examine(ctx, streams, inputs, result); err != nil {
		return err
	}
	if !o.dryRun {
		if err := o.write(ctx, streams, result); err != nil {
			return err
		}
	}
	return o.printResult(streams, inputs, result)
}

// check rejects contradictory flags and parses the flags that need no other input.
func (o *options) check() (err error) {
	outputs := o.toImage + o.toOCI + o.toDir + o.toFile
	lists := 0
	for _, list := range []string{o.fromRelease, o.stream, o.streamFile} {
		if list != "" {
			lists++
		}
	}
	switch {
	case lists > 1:
		return errors.New("--from-release, --from-image-stream and --from-image-stream-file each set the list of images: use one of them, and COMPONENT=PULLSPEC for other images")
	case len(o.values) > 0 && len(o.charts) == 0:
		return errors.New("--values requires a chart: add --from-helm, or omit --values")
	case lists == 0 && len(o.fromDirs)+len(o.charts)+len(o.kustomizations)+len(o.args) == 0 && o.mappingFile == "":
		return errors.New("nothing to assemble: name a release, an image stream or a folder with a --from flag, or images as COMPONENT=PULLSPEC")
	case o.referenceMode != "" && o.stream+o.streamFile == "":
		return errors.New("--reference-mode requires an image stream: add one, or omit --reference-mode")
	case o.namespace != "" && o.stream == "":
		return errors.New("--namespace requires --from-image-stream: add it, or omit --namespace")
	case outputs == "" && !o.dryRun && o.output == "":
		return errors.New("no output: use --to-image, --to-oci, --to-dir, --to-file or --dry-run")
	case o.base != "" && o.operatorManifests != "":
		return errors.New("--to-image-base includes the operator's manifests: omit --operator-manifests")
	case o.keepManifestList && o.operatorManifests != "":
		return errors.New("--keep-manifest-list requires a base image, and --operator-manifests excludes one: omit one of the two")
	case o.noOperator && (o.base != "" || o.changed("to-image-base-tag") || o.operatorManifests != "" || len(o.arch) > 0 || o.keepManifestList):
		return errors.New("--no-operator omits the operator, and --to-image-base, --to-image-base-tag, --operator-manifests, --arch and --keep-manifest-list describe it: omit --no-operator or the others")
	case len(o.arch) > 0 && (o.base != "" || o.changed("to-image-base-tag") || o.operatorManifests != ""):
		return errors.New("--arch adds this operator, and --to-image-base, --to-image-base-tag and --operator-manifests replace it: omit --arch or the others")
	case o.profile == "":
		return errors.New("--profile has no value: name a profile, or use --no-annotate")
	case o.noAnnotate && o.changed("profile"):
		return errors.New("--profile and --no-annotate are mutually exclusive: omit one of the two")
	case o.toSignature != "" && o.toImage == "":
		return errors.New("--to-signature requires an image in a registry: name it with --to-image")
	case o.toFile == "-" && o.resultFile == "-":
		return errors.New("--to-file and --result-file cannot both be standard output: name a file for one of them")
	case !slices.Contains([]string{lintError, lintWarn, lintOff}, o.lint):
		return fmt.Errorf("--lint %q is not known: use %s, %s or %s", o.lint, lintError, lintWarn, lintOff)
	case !slices.Contains([]string{"", "json", "yaml"}, o.output):
		return fmt.Errorf("--output %q is not known: use json or yaml", o.output)
	}
	if err := finding.CheckIDs(o.lintDisable); err != nil {
		return fmt.Errorf("--lint-disable: %w", err)
	}
	if o.metadataContent, err = assemble.ParseMetadata(o.metadata); err != nil {
		return err
	}
	if o.versionsByKey, err = input.ParseComponentVersions(o.versions); err != nil {
		return fmt.Errorf("--component-versions: %w", err)
	}
	if o.displayByKey, err = input.ParseDisplayNames(o.displayNames); err != nil {
		return fmt.Errorf("--component-versions-display-names: %w", err)
	}
	if o.createdAt, err = creationTime(o.created, sourceDate()); err != nil {
		return err
	}
	if err := o.parsePrograms(); err != nil {
		return err
	}
	return o.readOverrides()
}
