// Package diff provides the command 'cvo upgrade diff'. It opens a release as the cluster's operator would, and prints the preview of an
// update to it.
package diff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/folder"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/reading"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/cli/verifying"
	"github.com/cluster-version/cvo/pkg/clusterversion/outside"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/operator/sources"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/images"
	"github.com/cluster-version/cvo/pkg/verify/policy"
)

type options struct {
	ref string
	// completed is set if ref is an image that the cluster has completed, so that its signature needs no check.
	completed    bool
	cluster      cluster.VersionFlags
	namespace    string
	profile      string
	capabilities string
	// capabilitiesSet is true if the flag is set, even to none.
	capabilitiesSet bool
	ownNetwork      bool
	trust           string
	unverified      bool
	payloadCache    string
	registry        registries.Flags
	skipImages      bool
	output          string
	full            bool
}

// New returns the command 'cvo upgrade diff'.
func New(streams command.Streams) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "diff REF|VERSION|DIR",
		Short: "Print the changes that an update would make, without making them",
		Long: `Print the changes that an update to a release would make, without making them.

The command sends every manifest for this cluster to the API server as a dry run. The API server applies schema, defaults,
validation and admission, and stores nothing. The command prints the objects that the update would create, change (field by
field: ~ changed value, + new, - removed), delete, recreate, or fail to apply, and unchanged objects that need an explanation.
It never prints values of Secrets.

The release is an image in a registry, a version that the cluster knows, or a folder with manifests/ and release-manifests/.
An image must be signed as for an update: by a key in the file of --trust, else by a key in the trust policy of the cluster, else by
a key in the running release.

It also looks up the images that the update would newly pull, through the mirrors and with the pull secret of the cluster.
--skip-images omits this, for example for a folder whose images are not pushed yet.

The command uses the permissions of the kubeconfig's user, who needs get, list, create, patch and delete on the objects of the
release. The exit code is 3 if the API server would reject an object or nodes cannot pull an image, and 1 if the command could
not check an object, for example because a permission is missing. An object is unknown, with exit code 0, if no one can check
it before the update.`,
		Example: `  # Print the changes of an update
  cvo upgrade diff registry.example/platform/release:1.1.0

  # Check a release that is not built yet, with all values in full
  cvo upgrade diff ./release --full

  # List the objects that would be refused, for a script
  cvo upgrade diff ./release --skip-images -o json | jq '.objects[] | select(.verdict == "refused")'`,
		Args: command.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.ref, o.capabilitiesSet = args[0], cmd.Flags().Changed("always-enable-capabilities")
			return o.run(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	o.cluster.Add(f)
	f.StringVar(&o.namespace, "namespace", command.EnvOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator")
	f.StringVar(&o.profile, "profile", "", "cluster profile of the operator; default from its Deployment in the cluster, else $CLUSTER_PROFILE or self-managed-high-availability")
	f.StringVar(&o.capabilities, "always-enable-capabilities", "", "comma-separated capabilities that the operator was started with; default from its Deployment in the cluster")
	f.BoolVar(&o.ownNetwork, "bring-your-own-network", false, "the operator was started with this flag; default from its Deployment in the cluster")
	f.StringVar(&o.trust, "trust", "", "`file` with the accepted signers, instead of the trust policy of the cluster or the keys in the running release")
	f.BoolVar(&o.skipImages, "skip-images", false, "do not look up the images that the update would newly pull")
	f.BoolVar(&o.unverified, "force-unverified", false, "accept a release without a trusted signature")
	f.StringVar(&o.payloadCache, "payload-cache", "", "`folder` that caches pulled content, as an OCI layout; default none")
	printing.AddFlag(cmd, &o.output)
	cmd.ValidArgsFunction = command.CompleteFolders
	f.BoolVar(&o.full, "full", false, "do not shorten long values, and list all excluded objects")
	o.registry.Add(f)
	registries.LimitLookups(f)
	return cmd
}

func (o *options) run(ctx context.Context, streams command.Streams) error {
	write, err := o.writer()
	if err != nil {
		return &command.UsageError{Err: err}
	}
	cfg, err := o.cluster.Config()
	if err != nil {
		return err
	}
	cfg.UserAgent = "cvo-upgrade-diff"
	target, err := o.read(ctx, streams, cfg)
	if err != nil {
		return err
	}
	for _, w := range target.payload.Warnings {
		streams.Warnf("%s", w)
	}
	progress, done := progressOn(streams.Err)
	target.options.Progress = progress
	report, err := preview.Run(ctx, cfg, target.payload, target.options)
	if err != nil {
		done()
		return err
	}
	var found images.Found
	if !o.skipImages {
		found, err = target.images(ctx)
	}
	done()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		target.notes = append(target.notes, fmt.Sprintf("The images of the update are not looked up: %v", err))
	}
	report.MissingImages, report.UnknownImages = found.Missing, found.Unknown
	report.Notes = append(report.Notes, target.notes...)
	if err := write(streams.Out, report); err != nil {
		return err
	}
	switch t := report.Totals; {
	case t.Refused > 0:
		return &command.RefusedError{Err: fmt.Errorf("the cluster would reject %s of release %s", printable.Count(t.Refused, "manifest"), report.Version)}
	case len(report.MissingImages) > 0:
		return &command.RefusedError{Err: fmt.Errorf("nodes cannot pull %s of release %s", printable.Count(len(report.MissingImages), "image"), report.Version)}
	case t.NotAsked > 0:
		return fmt.Errorf("%s of release %s could not be checked", printable.Count(t.NotAsked, "manifest"), report.Version)
	}
	return nil
}

// Completed previews the return to an image that the cluster has completed before, with the settings of the operator.
func Completed(ctx context.Context, cfg *rest.Config, version cluster.VersionFlags, registry registries.Flags, image string) (*preview.Report, error) {
	o := &options{
		ref: image, completed: true, cluster: version, registry: registry,
		namespace: command.EnvOr("CVO_NAMESPACE", api.OperatorNamespace),
	}
	target, err := o.read(ctx, command.Streams{}, cfg)
	if err != nil {
		return nil, err
	}
	return preview.Run(ctx, cfg, target.payload, target.options)
}

func (o *options) writer() (func(io.Writer, *preview.Report) error, error) {
	switch o.output {
	case "text":
		return func(w io.Writer, r *preview.Report) error { return preview.WriteText(w, r, o.full) }, nil
	case "json":
		return func(w io.Writer, r *preview.Report) error { return printing.JSON(w, r) }, nil
	case "yaml":
		return func(w io.Writer, r *preview.Report) error { return printing.YAML(w, r) }, nil
	}
	return nil, fmt.Errorf("unknown output %q: use text, json or yaml", o.output)
}

// target is the previewed release, and its cluster.
type target struct {
	payload *payload.Payload
	options preview.Options
	notes   []string
	// images looks up the images that the update would newly pull.
	images func(context.Context) (images.Found, error)
}

// read reads the state of the cluster, and loads the manifests of the release that the cluster would get.
func (o *options) read(ctx context.Context, streams command.Streams, cfg *rest.Config) (*target, error) {
	reader, err := cluster.OperatorReader(cfg)
	if err != nil {
		return nil, err
	}
	c := &examined{reader: reader}
	if c.version, err = o.cluster.ReadClusterVersion(ctx, reader); err != nil {
		return nil, err
	}
	if o.ref, err = reading.NameImage(c.version, o.ref); err != nil {
		return nil, err
	}
	deployment, err := cluster.ReadOperatorDeployment(ctx, reader, client.ObjectKey{Namespace: o.namespace, Name: api.OperatorDeployment})
	if err != nil {
		return nil, err
	}
	own := reading.OperatorSettings(deployment)
	own.Profile = cmp.Or(o.profile, own.Profile)
	if o.capabilitiesSet {
		own.AlwaysEnable = cluster.CapabilityList(o.capabilities)
	}
	c.options = outside.Options{Images: image.Options{CacheDir: o.payloadCache}}
	if c.options.Access, err = o.registry.Options(); err != nil {
		return nil, err
	}
	if c.options.Policy, err = verifying.ReadTrust(o.trust); err != nil {
		return nil, err
	}
	filter, err := sources.ClusterFilter(ctx, reader, c.version, own)
	if err != nil {
		return nil, err
	}
	out := &target{}
	if out.options, err = preview.ReadOptions(ctx, reader, c.version, o.namespace); err != nil {
		return nil, err
	}
	out.options.Inventory, out.notes, err = o.inventory(ctx, cfg)
	if err != nil {
		return nil, err
	}
	load := payload.Options{
		Filter: filter(c.version.Status.Desired.Version), // of the running release
		// This command renders manifests as the operator does.
		BringYourOwnNetwork: o.ownNetwork || install.Existing{Deployment: deployment}.Network(),
	}
	files, image, err := o.open(ctx, streams, c, load)
	if err != nil {
		return nil, err
	}
	update, enables, err := reading.LoadUpdate(ctx, files, image, load, filter, func() (*payload.Payload, error) { return o.running(ctx, c, load) })
	if err != nil {
		return nil, err
	}
	if enables != "" {
		out.notes = append(out.notes, enables)
	}
	out.options.Running = func(ctx context.Context) ([]*manifest.Manifest, error) {
		running, err := o.running(ctx, c, load)
		if err != nil {
			return nil, err
		}
		return running.Manifests, nil
	}
	out.payload = update.Payload
	out.images = func(ctx context.Context) (images.Found, error) {
		running, err := o.running(ctx, c, load)
		if err != nil {
			return images.Found{}, err // all images would count as new
		}
		lookup := func(ctx context.Context, asked []release.Image) ([]error, error) {
			opened, err := c.outside(ctx)
			if err != nil {
				return nil, err
			}
			return opened.Exist(ctx, asked), nil
		}
		return images.Find(ctx, release.Pullspec(image), out.payload.Manifests, running.Manifests, lookup), nil
	}
	return out, nil
}

// inventory reads the inventory of applied objects. Without it, the rest of the report is still complete.
func (o *options) inventory(ctx context.Context, cfg *rest.Config) (inv inventory.Inventory, notes []string, err error) {
	configMaps, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return inv, nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	inv, err = inventory.NewStore(configMaps, o.namespace, o.cluster.Name).Load(ctx)
	switch {
	case ctx.Err() != nil:
		return inv, nil, ctx.Err()
	case err != nil:
		notes = append(notes, "The list of objects dropped by this release is incomplete: "+err.Error())
	case len(inv.Records) == 0:
		notes = append(notes, "Objects dropped by this release are not listed: the cluster has no inventory in namespace "+o.namespace)
	}
	return inv, notes, nil
}

// open returns the files of the release and its name for templates. It opens an image only if its signature is trusted.
func (o *options) open(ctx context.Context, streams command.Streams, c *examined, load payload.Options) (fs.FS, string, error) {
	dir := strings.TrimPrefix(o.ref, "file://")
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		files, err := folder.Open(dir)
		return files, dir, err
	case err != nil && dir != o.ref:
		return nil, "", err
	}
	if err := registries.CheckImages(dir); err != nil {
		return nil, "", err
	}
	images, err := c.outside(ctx)
	if err != nil {
		return nil, "", err
	}
	img, err := images.Resolve(ctx, o.ref)
	if err != nil {
		return nil, "", err
	}
	err = nil
	if !o.completed {
		err = o.verify(ctx, streams, c, images, img, load)
	}
	switch {
	case err != nil && o.unverified && ctx.Err() == nil:
		streams.Warnf("reading %s without verification because of --force-unverified: %s", img.ByDigest(), err.Error())
	case err != nil:
		return nil, "", err
	}
	files, err := images.Manifests(ctx, img)
	if err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", img.ByDigest(), err)
	}
	return files, img.ByDigest(), nil
}

// verify checks the signatures of the image as the operator would: against --trust, the trust policy of the cluster, or the keys of the
// running release.
func (o *options) verify(
	ctx context.Context, streams command.Streams, c *examined, images *outside.Outside, img release.Image, load payload.Options,
) error {
	verifier, err := images.Verifier(ctx, img, nil)
	if errors.Is(err, policy.ErrNone) {
		var running *payload.Payload
		if running, err = o.running(ctx, c, load); err == nil {
			verifier, err = images.Verifier(ctx, img, running)
		}
		if err != nil {
			return fmt.Errorf("reading the keys of the running release: %w: if the operator was started with --trust, use the same file here: "+
				"with another, the result differs from the operator's", err)
		}
	}
	if err != nil {
		return err
	}
	return verifying.Signed(ctx, streams, verifier, img)
}

// running returns the release that the cluster runs.
func (o *options) running(ctx context.Context, c *examined, load payload.Options) (*payload.Payload, error) {
	if c.running != nil {
		return c.running, nil
	}
	images, err := c.outside(ctx)
	if err != nil {
		return nil, err
	}
	c.running, err = reading.LoadRunning(ctx, images.Reader, c.version.Status.Desired.Image, load)
	return c.running, err
}

// examined is the cluster for which the command previews an update.
type examined struct {
	reader  client.Reader
	version *configv1.ClusterVersion
	options outside.Options
	// running is the release that the cluster runs; nil until it is read.
	running *payload.Payload
}

// outside returns the access to release images with the configuration of the cluster's operator.
func (c *examined) outside(ctx context.Context) (*outside.Outside, error) {
	return outside.Open(ctx, clock.RealClock{}, c.reader, c.version, c.options)
}

// progressOn returns a function that shows progress on a terminal, and a function that clears the progress line. If w is not a terminal,
// progress is nil.
func progressOn(w io.Writer) (progress func(done, total int), wipe func()) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, func() {}
	}
	const wiped = "\r\x1b[K"
	return func(done, total int) { fmt.Fprintf(w, "%s%d of %d manifests", wiped, done, total) }, func() { fmt.Fprint(w, wiped) }
}
