package cli

import (
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
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/operator"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/preview"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

type upgradeDiffOptions struct {
	ref          string
	cluster      contextFlags
	namespace    string
	name         string
	profile      string
	capabilities string
	ownNetwork   bool
	trust        string
	unverified   bool
	payloadCache string
	registry     imageFlags
	output       string
	full         bool
}

func newUpgradeDiffCmd(streams Streams) *cobra.Command {
	o := &upgradeDiffOptions{}
	cmd := &cobra.Command{
		Use:   "diff REF|DIR",
		Short: "Print what an update to a release would change, without touching the cluster",
		Long: `Print what an update to a release would change, without touching the cluster.

Every manifest that the cluster would get is sent to the API server as a dry run: schema, defaults, validation and
admission have their say, and nothing is stored. Printed is what would be created, changed field by field (~ another
value, + new, - gone), deleted, recreated and refused; values of Secrets are never printed.

The release is an image in a registry, which must be signed as for an update: by someone that --trust names or, without
it, with the keys that the running release brings. Or it is a folder that holds manifests/ and release-manifests/.

It works with the rights of the kubeconfig's user, who needs to get, list, create, patch and delete what the release
holds. The exit code is 3 if something would be refused, 1 if something could not be looked at.`,
		Example: `  # What would this update do?
  cvo upgrade diff registry.example/platform/release:1.1.0

  # A release that is not built yet, with all values in full
  cvo upgrade diff ./release --full

  # What would be refused, for a script
  cvo upgrade diff ./release -o json | jq '.objects[] | select(.verdict == "refused")'`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.ref = args[0]
			return o.run(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	o.cluster.add(f)
	f.StringVar(&o.namespace, "namespace", envOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator")
	f.StringVar(&o.name, "name", envOr("CVO_NAME", api.ClusterVersionName), "`name` of the ClusterVersion")
	f.StringVar(&o.profile, "profile", envOr("CLUSTER_PROFILE", api.DefaultProfile), "cluster profile that the operator was started with")
	f.StringVar(&o.capabilities, "always-enable-capabilities", "", "comma-separated capabilities that the operator was started with")
	f.BoolVar(&o.ownNetwork, "bring-your-own-network", false, "the operator was started with it; default what its Deployment in the cluster says")
	f.StringVar(&o.trust, "trust", "", "`file` that says whose signatures are accepted, instead of the keys in the running release")
	f.BoolVar(&o.unverified, "force-unverified", false, "look at a release that nobody trusted has signed")
	f.StringVar(&o.payloadCache, "payload-cache", "", "`folder` that keeps what was pulled, as an OCI layout; default none")
	addOutput(cmd, &o.output)
	cmd.ValidArgsFunction = completeFolders
	f.BoolVar(&o.full, "full", false, "do not shorten long values")
	o.registry.add(f)
	return cmd
}

func (o *upgradeDiffOptions) run(ctx context.Context, streams Streams) error {
	write, err := o.writer()
	if err != nil {
		return &UsageError{Err: err}
	}
	cfg, err := o.cluster.config()
	if err != nil {
		return err
	}
	cfg.QPS = -1 // priority and fairness on the server decides
	cfg.UserAgent = "cvo-upgrade-diff"
	target, err := o.read(ctx, streams, cfg)
	if err != nil {
		return err
	}
	for _, w := range target.payload.Warnings {
		fmt.Fprintf(streams.Err, "warning: %s\n", printable(w))
	}
	progress, done := progressOn(streams.Err)
	target.options.Progress = progress
	report, err := preview.Run(ctx, cfg, target.payload, target.options)
	done()
	if err != nil {
		return err
	}
	report.Notes = append(report.Notes, target.notes...)
	if err := write(streams.Out, report); err != nil {
		return err
	}
	switch t := report.Totals; {
	case t.Refused > 0:
		return &RefusedError{Err: fmt.Errorf("the cluster would refuse %d manifests of release %s", t.Refused, report.Version)}
	case t.NotAsked > 0:
		return fmt.Errorf("%d manifests of release %s could not be looked at", t.NotAsked, report.Version)
	}
	return nil
}

func (o *upgradeDiffOptions) writer() (func(io.Writer, *preview.Report) error, error) {
	switch o.output {
	case "text":
		return func(w io.Writer, r *preview.Report) error { return preview.WriteText(w, r, o.full) }, nil
	case "json":
		return func(w io.Writer, r *preview.Report) error { return writeJSON(w, r) }, nil
	case "yaml":
		return func(w io.Writer, r *preview.Report) error { return writeYAML(w, r) }, nil
	}
	return nil, fmt.Errorf("unknown output %q: use text, json or yaml", o.output)
}

// diffTarget is what is previewed, and for which cluster.
type diffTarget struct {
	payload *payload.Payload
	options preview.Options
	notes   []string
}

// read finds out what the cluster is like, and loads of the release what the cluster would get.
func (o *upgradeDiffOptions) read(ctx context.Context, streams Streams, cfg *rest.Config) (*diffTarget, error) {
	scheme, err := operator.NewScheme()
	if err != nil {
		return nil, err
	}
	reader, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	c := &diffCluster{reader: reader, version: &configv1.ClusterVersion{}}
	err = reader.Get(ctx, client.ObjectKey{Name: o.name}, c.version)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, fmt.Errorf("the cluster has no ClusterVersion %s, so no release runs on it (see 'cvo install'): %w", o.name, err)
	case err != nil:
		return nil, fmt.Errorf("reading ClusterVersion %s: %w", o.name, err)
	}
	c.options = operator.Options{
		Profile: o.profile, ExcludeID: os.Getenv("EXCLUDE_MANIFESTS"), AlwaysEnable: capabilityList(o.capabilities),
		Images: image.Options{CacheDir: o.payloadCache},
	}
	if c.options.Access, err = o.registry.options(); err != nil {
		return nil, err
	}
	if c.options.Policy, err = readTrust(o.trust); err != nil {
		return nil, err
	}
	filter, err := operator.ClusterFilter(ctx, reader, c.version, c.options)
	if err != nil {
		return nil, err
	}
	out := &diffTarget{}
	if out.options, err = operator.PreviewOptions(ctx, reader, c.version, o.namespace); err != nil {
		return nil, err
	}
	out.options.Inventory, out.notes, err = o.inventory(ctx, cfg)
	if err != nil {
		return nil, err
	}
	load := payload.Options{Filter: filter}
	if load.BringYourOwnNetwork, err = o.network(ctx, reader); err != nil {
		return nil, err
	}
	files, image, err := o.open(ctx, streams, c, load)
	if err != nil {
		return nil, err
	}
	out.payload, err = payload.Load(files, image, load)
	return out, err
}

// network reports whether the operator was started for a release that installs the cluster's network, so that its manifests
// are rendered as it does. An operator that runs elsewhere has no Deployment.
func (o *upgradeDiffOptions) network(ctx context.Context, reader client.Reader) (bool, error) {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: o.namespace, Name: install.Operator}
	err := reader.Get(ctx, key, deployment)
	switch {
	case o.ownNetwork, apierrors.IsNotFound(err):
		return o.ownNetwork, nil
	case err != nil:
		return false, fmt.Errorf("reading Deployment %s, which says how the operator was started: %w", key, err)
	}
	return install.Existing{Deployment: deployment}.Network(), nil
}

// inventory reads what releases have brought to the cluster. Without it the rest can be told all the same.
func (o *upgradeDiffOptions) inventory(ctx context.Context, cfg *rest.Config) (inv inventory.Inventory, notes []string, err error) {
	configMaps, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return inv, nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	inv, err = inventory.NewStore(configMaps, o.namespace, o.name).Load(ctx)
	switch {
	case ctx.Err() != nil:
		return inv, nil, ctx.Err()
	case err != nil:
		notes = append(notes, "not every object that is no longer part of the release is told: "+err.Error())
	case len(inv.Records) == 0:
		notes = append(notes, "no object that is no longer part of the release is told: the cluster has no inventory in namespace "+o.namespace)
	}
	return inv, notes, nil
}

// open gives the files of the release, of an image only if it may be trusted, and the name that templates are given.
func (o *upgradeDiffOptions) open(ctx context.Context, streams Streams, c *diffCluster, load payload.Options) (fs.FS, string, error) {
	dir := strings.TrimPrefix(o.ref, "file://")
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return os.DirFS(dir), dir, nil
	case err == nil:
		return nil, "", &UsageError{Err: fmt.Errorf("%q is a file: name a folder with manifests/ and release-manifests/, or an image", dir)}
	case dir != o.ref || strings.HasPrefix(dir, "/") || strings.HasPrefix(dir, "."):
		return nil, "", err
	}
	outside, err := c.outside(ctx)
	if err != nil {
		return nil, "", err
	}
	img, err := outside.Resolve(ctx, o.ref)
	if err != nil {
		return nil, "", fmt.Errorf("resolving %s (which is no folder here): %w", o.ref, err)
	}
	switch err := o.verify(ctx, streams, c, outside, img, load); {
	case err != nil && o.unverified && ctx.Err() == nil:
		fmt.Fprintf(streams.Err, "warning: %s is not verified, but looked at all the same (--force-unverified): %v\n", img.ByDigest(), err)
	case err != nil:
		return nil, "", err
	}
	files, err := outside.Manifests(ctx, img)
	if err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", img.ByDigest(), err)
	}
	return files, img.ByDigest(), nil
}

// verify checks who signed the image, as the operator would: by --trust, or with the keys of the running release.
func (o *upgradeDiffOptions) verify(
	ctx context.Context, streams Streams, c *diffCluster, outside *operator.Outside, img release.Image, load payload.Options,
) error {
	verifier, err := outside.Verifier(ctx, img, nil)
	if errors.Is(err, verify.ErrNoPolicy) {
		var running *payload.Payload
		if running, err = o.running(ctx, c, outside, load); err != nil {
			return fmt.Errorf("reading the keys of the running release: %w (--trust names others)", err)
		}
		verifier, err = outside.Verifier(ctx, img, running)
	}
	if err != nil {
		return err
	}
	evidence, err := verifier.Verify(ctx, img)
	if errors.Is(err, verify.ErrUnverified) {
		return &RefusedError{Err: err}
	}
	if err != nil {
		return err
	}
	tellSigners(streams, img.ByDigest(), evidence)
	return nil
}

// running pulls the release that the cluster runs. Its digest was verified when it was accepted.
func (o *upgradeDiffOptions) running(ctx context.Context, c *diffCluster, outside *operator.Outside, load payload.Options) (*payload.Payload, error) {
	pullspec := c.version.Status.Desired.Image
	if _, digest, _ := strings.Cut(pullspec, "@"); digest == "" {
		return nil, errors.New("the ClusterVersion's status names no release by digest")
	}
	img, err := outside.Resolve(ctx, pullspec)
	if err != nil {
		return nil, err
	}
	files, err := outside.Manifests(ctx, img)
	if err != nil {
		return nil, err
	}
	return payload.Load(files, img.ByDigest(), load)
}

// diffCluster is the cluster that is looked at.
type diffCluster struct {
	reader  client.Reader
	version *configv1.ClusterVersion
	options operator.Options
}

// outside is the way to release images that the operator of the cluster has.
func (c *diffCluster) outside(ctx context.Context) (*operator.Outside, error) {
	return operator.OpenOutside(ctx, clock.RealClock{}, c.reader, c.version, c.options)
}

// progressOn returns what tells a terminal how far the work is, and what wipes that away. Anything else than a terminal
// is told nothing.
func progressOn(w io.Writer) (progress func(done, total int), wipe func()) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, func() {}
	}
	const wiped = "\r\x1b[K"
	return func(done, total int) { fmt.Fprintf(w, "%s%d of %d manifests", wiped, done, total) }, func() { fmt.Fprint(w, wiped) }
}
