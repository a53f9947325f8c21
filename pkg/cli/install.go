package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/operator"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/updategraph"
	"github.com/cluster-version/cvo/pkg/verify"
)

type installOptions struct {
	versionFlags
	releaseImage string
	payloadCache string
	trust        string
	pullSecret   string
	namespace    string
	noOperator   bool
	ownNetwork   bool
	// podNetwork: the opposite was said, not only left out.
	podNetwork   bool
	clusterAdmin bool
	retrieval    string
	channel      string
	upstream     string
	clusterID    string
	render       string
	wait         string
	timeout      time.Duration
	quiet        bool
	output       string
	registry     imageFlags
	cluster      clusterFlags
}

func newInstallCmd(streams Streams) *cobra.Command {
	o := &installOptions{}
	cmd := &cobra.Command{
		Use:   "install --release-image REF --trust FILE",
		Short: "Install the version operator, and with it a platform, on a bare cluster",
		Long: `Install the version operator on a bare cluster, which then installs the release.

The release is verified first: nothing is created unless somebody signed it whom the trust file names. Then the operator's
own part of the release is applied, in this order: namespaces; the trust policy and the pull secret, which the operator
goes by from then on; CRDs; the guard that keeps the ClusterVersion from being deleted by accident; the operator's account
with its rights; services; the ClusterVersion; and the operator's Deployment. All of it comes from the release, so that the
operator finds what it would have applied itself. Running the command again changes nothing, or repairs what is missing.

It waits until the operator runs, and says at once what keeps it from running, such as an image that cannot be pulled. With
--wait it also waits until the platform is installed. An operator that is there already is updated by 'cvo upgrade', not by
another install.

--render writes what would be applied into a folder instead, and touches no cluster. --no-operator only prepares a cluster
for an operator that 'cvo start' runs elsewhere.

Exit codes: 0 it has got so far; 1 something went wrong; 2 the command line cannot be understood; 3 refused, such as a
release that is not signed, or a cluster that has another one; 5 --timeout is over; 6 --timeout is over, and something keeps
the operator from running; 130 interrupted.`,
		Example: `  # From a bare cluster to a platform
  cvo install --release-image registry.example/platform/release:1.0.0 --trust trust.yaml --pull-secret pull-secret.json --wait

  # The platform brings the cluster's network
  cvo install --release-image registry.example/platform/release:1.0.0 --trust trust.yaml --bring-your-own-network

  # Look at it first, or leave it to somebody else to apply it
  cvo install --release-image registry.example/platform/release:1.0.0 --trust trust.yaml --render ./install
  for f in ./install/*.yaml; do kubectl apply --server-side -f "$f"; done

  # Prepare the cluster of the current kubeconfig, and run the operator here
  cvo install --no-operator --release-image registry.example/platform/release:1.0.0 --trust trust.yaml
  cvo start --release-image registry.example/platform/release:1.0.0 --trust trust.yaml`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			o.podNetwork = cmd.Flags().Changed("bring-your-own-network") && !o.ownNetwork
			return o.run(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	o.versionFlags.add(f)
	f.StringVar(&o.releaseImage, "release-image", "", "`pullspec` of the release (required)")
	f.StringVar(&o.payloadCache, "payload-cache", "", "`folder` that keeps what was pulled, as an OCI layout; default none")
	f.StringVar(&o.trust, "trust", "", "`file` that says whose signatures are accepted, now and by the cluster from then on (required)")
	f.StringVar(&o.pullSecret, "pull-secret", "", "`file` with the cluster's credentials for registries, as docker login writes it; also used to pull the release unless --registry-config is given")
	f.StringVar(&o.namespace, "namespace", envOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator")
	f.BoolVar(&o.noOperator, "no-operator", false, "only prepare the cluster; the operator is started by hand")
	f.BoolVar(&o.ownNetwork, "bring-your-own-network", false, "the release installs the cluster's pod network: run the operator on the network of its node, which need not be ready")
	f.BoolVar(&o.clusterAdmin, "cluster-admin", false, "give the operator all rights, instead of those that the release needs")
	f.StringVar(&o.retrieval, "payload-retrieval", "", "`way` in which the operator gets releases: registry (default) or job, which leaves pulling to the nodes")
	f.StringVar(&o.channel, "channel", "", "`channel` that updates are recommended from")
	f.StringVar(&o.upstream, "upstream", "", "`URL` of the update service")
	f.StringVar(&o.clusterID, "cluster-id", "", "`UUID` that identifies the cluster; default a new one")
	f.StringVar(&o.render, "render", "", "write the objects into this `folder`, touch no cluster")
	f.StringVar(&o.wait, "wait", waitDeployed, "`goal` to wait for: deployed, completed (also without a value), or none")
	f.Lookup("wait").NoOptDefVal = goalCompleted
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "how `long` to wait in all; 0 is without end")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no progress")
	addOutput(cmd, &o.output)
	o.registry.add(f)
	o.cluster.add(f)
	_ = cmd.RegisterFlagCompletionFunc("payload-retrieval", cobra.FixedCompletions(retrievals(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("wait", cobra.FixedCompletions([]string{waitDeployed, goalCompleted, waitNone}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// What an install waits for, beside goalCompleted.
const (
	waitDeployed = "deployed"
	waitNone     = "none"
)

func retrievals() []string { return []string{"registry", "job"} }

func (o *installOptions) validate() error {
	switch {
	case o.releaseImage == "":
		return usageErrorf("--release-image is missing: give the pullspec of the release to install")
	case o.trust == "":
		return usageErrorf("--trust is missing: the first release of a cluster must be signed by someone it names; 'cvo release keygen' writes such a file")
	case o.retrieval != "" && !slices.Contains(retrievals(), o.retrieval):
		return usageErrorf("--payload-retrieval=%q: want one of %s", o.retrieval, strings.Join(retrievals(), ", "))
	case !slices.Contains([]string{waitDeployed, goalCompleted, waitNone}, o.wait):
		return usageErrorf("--wait=%q: want %s, %s or %s", o.wait, waitDeployed, goalCompleted, waitNone)
	case o.timeout < 0:
		return usageErrorf("--timeout %s: it is over before it begins", o.timeout)
	case o.noOperator && o.render != "":
		return usageErrorf("--no-operator prepares a cluster and --render touches none: give one or the other")
	}
	if err := updategraph.CheckService(o.upstream); o.upstream != "" && err != nil {
		return usageErrorf("--upstream: %w", err)
	}
	return checkOutput(&o.output)
}

func (o *installOptions) run(ctx context.Context, streams Streams) error {
	settings, err := o.settings()
	if err != nil {
		return err
	}
	img, images, err := o.verified(ctx, streams)
	if err != nil {
		return err
	}
	if o.render != "" {
		return o.runRender(ctx, streams, img, images, settings)
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.UserAgent = "cvo-install"
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	if o.noOperator {
		return o.prepare(ctx, streams, cfg, img, images)
	}
	return o.deploy(ctx, streams, cfg, img, images, settings)
}

// settings are what the flags say about the installation.
func (o *installOptions) settings() (install.Settings, error) {
	s := install.Settings{
		Namespace: o.namespace, Name: o.name, ClusterAdmin: o.clusterAdmin, Retrieval: o.retrieval,
		Channel: o.channel, Upstream: o.upstream, ClusterID: o.clusterID,
	}
	var err error
	if s.Trust, s.TrustBinary, err = verify.TrustData(o.trust); err != nil {
		return s, err
	}
	if o.pullSecret != "" {
		if s.PullSecret, err = os.ReadFile(o.pullSecret); err != nil {
			return s, fmt.Errorf("reading --pull-secret: %w", err)
		}
		if err := install.CheckPullSecret(s.PullSecret); err != nil {
			return s, fmt.Errorf("--pull-secret %s: %w", o.pullSecret, err)
		}
		if o.registry.config == "" {
			o.registry.config = o.pullSecret
		}
	}
	if o.registry.authority != "" {
		if s.Authorities, err = os.ReadFile(o.registry.authority); err != nil {
			return s, fmt.Errorf("reading --certificate-authority: %w", err)
		}
	}
	s.Capabilities, err = o.cluster.spec()
	return s, err
}

// spec is what a ClusterVersion asks for with these capabilities; nil for the default.
func (f *clusterFlags) spec() (*configv1.ClusterVersionCapabilitiesSpec, error) {
	filter, err := f.filter()
	if err != nil || len(f.capabilities) == 0 {
		return nil, err
	}
	spec := &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone}
	baselines := 0
	for _, c := range f.capabilities {
		if set := configv1.ClusterVersionCapabilitySet(c); configv1.ClusterVersionCapabilitySets[set] != nil {
			baselines++
			spec.BaselineCapabilitySet = set
		} else {
			spec.AdditionalEnabledCapabilities = append(spec.AdditionalEnabledCapabilities, configv1.ClusterVersionCapability(c))
		}
	}
	if baselines > 1 { // a ClusterVersion has room for one
		spec.BaselineCapabilitySet = configv1.ClusterVersionCapabilitySetNone
		spec.AdditionalEnabledCapabilities = sets.List(filter.Capabilities.Enabled)
	}
	return spec, nil
}

// verified finds the release, and checks its signature.
func (o *installOptions) verified(ctx context.Context, streams Streams) (release.Image, *image.Reader, error) {
	policy, err := readTrust(o.trust)
	if err != nil {
		return release.Image{}, nil, err
	}
	images, err := o.registry.images(o.payloadCache)
	if err != nil {
		return release.Image{}, nil, err
	}
	img, err := images.Resolve(ctx, o.releaseImage)
	if err != nil {
		return release.Image{}, nil, err
	}
	return img, images, verifySigned(ctx, streams, *policy, images, img)
}

// load reads the payload of a release that was verified.
func (o *installOptions) load(ctx context.Context, img release.Image, images *image.Reader) (*payload.Payload, error) {
	filter, err := o.cluster.filter()
	if err != nil {
		return nil, err
	}
	files, err := images.Manifests(ctx, img)
	if err != nil {
		return nil, err
	}
	return payload.Load(files, img.ByDigest(), payload.Options{Filter: filter, BringYourOwnNetwork: o.ownNetwork})
}

// prepare leaves the operator to 'cvo start'.
func (o *installOptions) prepare(ctx context.Context, streams Streams, cfg *rest.Config, img release.Image, images *image.Reader) error {
	p, err := o.load(ctx, img, images)
	if err != nil {
		return err
	}
	there, err := install.Look(ctx, cfg, o.namespace, o.name)
	if err == nil {
		err = there.Ending()
	}
	if err == nil {
		err = o.reclaim(ctx, streams, cfg)
	}
	if err != nil {
		return refused(err)
	}
	options := install.Options{Namespace: o.namespace, Name: o.name, Progress: func(what string) {
		o.tell(streams, "%s is there", what)
	}}
	if err := install.Prepare(ctx, cfg, p, options); err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "The cluster is ready for release %s. Next:\n  cvo start --release-image %s --trust %s\n", p.Release.Version, o.releaseImage, o.trust)
	return nil
}

// reclaim has an operator start at once that an uninstall has stopped.
func (o *installOptions) reclaim(ctx context.Context, streams Streams, cfg *rest.Config) error {
	return install.Reclaim(ctx, clock.RealClock{}, cfg, o.namespace, o.name, func(text string) { o.tell(streams, "%s", text) })
}

// plan says what there is to install, unless the release brings no operator that would run.
func (o *installOptions) plan(ctx context.Context, img release.Image, images *image.Reader, settings install.Settings) (install.Plan, error) {
	p, err := o.load(ctx, img, images)
	if err != nil {
		return install.Plan{}, err
	}
	plan, err := install.NewPlan(p, settings)
	if err == nil {
		err = p.CheckOperator(plan.Deployment(), func() ([]string, error) { return images.Entrypoint(ctx, img) })
	}
	if errors.Is(err, install.ErrNoOperator) || errors.Is(err, payload.ErrOtherOperator) {
		err = &RefusedError{fmt.Errorf("%w; 'cvo install --no-operator' prepares the cluster for one that 'cvo start' runs outside of it", err)}
	}
	return plan, err
}

// installReport is the outcome for scripts.
type installReport struct {
	Release string           `json:"release"`
	Image   string           `json:"image"`
	Objects []install.Result `json:"objects,omitempty"`
	Files   []string         `json:"files,omitempty"`
	// Reached is how far it got: applied, deployed or completed.
	Reached  string   `json:"reached,omitempty"`
	Troubles []string `json:"troubles,omitempty"`
	Message  string   `json:"message,omitempty"`
}

func (o *installOptions) runRender(ctx context.Context, streams Streams, img release.Image, images *image.Reader, settings install.Settings) error {
	plan, err := o.plan(ctx, img, images, settings)
	if err != nil {
		return err
	}
	o.warn(streams)
	files, err := install.Render(plan, o.render)
	if err != nil {
		return refused(err)
	}
	if o.output != "" {
		return printStructured(streams, o.output, installReport{Release: plan.Release, Image: plan.Image, Files: files})
	}
	fmt.Fprintf(streams.Out, "%d files are in %s. Apply them in order:\n  for f in %s/*.yaml; do kubectl apply --server-side -f \"$f\"; done\n", len(files), o.render, o.render)
	return nil
}

// tell prints a line of progress.
func (o *installOptions) tell(streams Streams, format string, args ...any) {
	if !o.quiet {
		fmt.Fprintf(streams.Err, "info: "+format+"\n", args...)
	}
}

// warn says what works here and may not work in the cluster.
func (o *installOptions) warn(streams Streams) {
	policy, err := verify.ReadTrust(o.trust)
	if err != nil {
		return // it was read before
	}
	for _, store := range policy.Stores {
		if strings.HasPrefix(store, "file:") {
			fmt.Fprintf(streams.Err, "warning: signatures in %s are found here, not by the operator in the cluster: keep them where it reaches them, or in ConfigMaps\n", printable(store))
		}
	}
	if !strings.Contains(o.releaseImage, "@") {
		o.tell(streams, "the operator runs the release by the digest that was verified, whatever the tag stands for later")
	}
}

func (o *installOptions) deploy(ctx context.Context, streams Streams, cfg *rest.Config, img release.Image, images *image.Reader, settings install.Settings) error {
	there, err := install.Look(ctx, cfg, o.namespace, o.name)
	if err != nil {
		return err
	}
	if err := there.Refuse(img.ByDigest()); err != nil {
		return refused(err)
	}
	if err := o.reclaim(ctx, streams, cfg); err != nil {
		return refused(err)
	}
	if o.podNetwork && there.Network() {
		return &RefusedError{errors.New("the operator was installed with --bring-your-own-network, and would set back what takes it out of its node's network: remove it with 'cvo uninstall', which leaves the platform as it is, and install it again")}
	}
	o.ownNetwork = o.ownNetwork || there.Network()
	settings.ExistingPullSecret = there.PullSecret
	plan, err := o.plan(ctx, img, images, settings)
	if err != nil {
		return err
	}
	o.warn(streams)
	if distrusts := there.Distrusts(settings); distrusts != "" {
		fmt.Fprintf(streams.Err, "warning: %s\n", oneLine(distrusts))
	}
	for _, unlike := range there.Unlike(settings) {
		fmt.Fprintf(streams.Err, "warning: ClusterVersion %s is there already, and stays as it is: %s\n", o.name, oneLine(unlike))
	}
	injection, err := clusterInjection(ctx, cfg)
	if err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errWaitOver)
		defer cancel()
	}
	report := installReport{Release: plan.Release, Image: plan.Image}
	report.Objects, err = install.Deploy(ctx, cfg, plan, injection, func(r install.Result) {
		o.tell(streams, "%s %s", r, r.Outcome)
	})
	switch {
	case err != nil && ctx.Err() != nil:
		report.Message = err.Error()
		return o.finish(ctx, streams, report, err)
	case err != nil:
		return refused(err)
	}
	report.Reached = "applied"
	err = o.follow(ctx, streams, cfg, &report)
	return o.finish(ctx, streams, report, err)
}

// clusterInjection is what the operator would put into its own Deployment.
func clusterInjection(ctx context.Context, cfg *rest.Config) (apply.Injection, error) {
	scheme, err := operator.NewScheme()
	if err != nil {
		return apply.Injection{}, err
	}
	reader, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return apply.Injection{}, fmt.Errorf("connecting to the API server: %w", err)
	}
	return operator.ClusterInjection(ctx, reader)
}

// follow waits for what was asked for.
func (o *installOptions) follow(ctx context.Context, streams Streams, cfg *rest.Config, report *installReport) error {
	if o.wait == waitNone {
		return nil
	}
	told := map[string]bool{}
	last, err := install.Await(ctx, cfg, o.namespace, func(s install.State) {
		o.tell(streams, "%s", oneLine(s.Message))
		for _, trouble := range s.Troubles {
			if !told[trouble] {
				told[trouble] = true
				fmt.Fprintf(streams.Err, "warning: %s\n", oneLine(trouble))
			}
		}
	})
	report.Troubles, report.Message = last.Troubles, last.Message
	if err != nil || !last.Running {
		return err
	}
	report.Reached = waitDeployed
	if o.wait != goalCompleted {
		return nil
	}
	source := &statusSource{clock: clock.RealClock{}, cfg: cfg, namespace: o.namespace, name: o.name}
	defer source.close()
	follower := &updateFollower{config: cfg, name: o.name, account: source.rollout, print: func(line string) {
		o.tell(streams, "%s", oneLine(line))
	}}
	verdict, err := follower.follow(ctx, waitGoal{completed: true})
	report.Message, report.Troubles = verdict.message, nil
	switch {
	case verdict.state == waitRefused:
		return &RefusedError{errors.New(verdict.message)}
	case err == nil:
		report.Reached = goalCompleted
	}
	return err
}

// finish prints the outcome and makes an exit code of it.
func (o *installOptions) finish(ctx context.Context, streams Streams, report installReport, err error) error {
	switch {
	case err == nil:
	case ctx.Err() != nil:
		code, what := ExitInterrupted, "interrupted"
		if errors.Is(context.Cause(ctx), errWaitOver) {
			code, what = ExitUpdating, fmt.Sprintf("not %s within %s", o.wait, o.timeout)
		}
		if code == ExitUpdating && len(report.Troubles) > 0 {
			code = ExitAttention
		}
		report.Message = what + ": " + strings.Join(append([]string{report.Message}, report.Troubles...), "; ")
		err = &StateError{Code: code, Err: errors.New(report.Message)}
	default:
		report.Message = err.Error()
	}
	if o.output != "" {
		if err := printStructured(streams, o.output, report); err != nil {
			return err
		}
		return err
	}
	if state, ok := errors.AsType[*StateError](err); ok {
		PrintError(streams.Err, state.Err) // main leaves states to those who print them
	}
	if err == nil {
		o.printNext(streams.Out, report)
	}
	return err
}

// printNext says where the cluster stands and what to do about it.
func (o *installOptions) printNext(out io.Writer, report installReport) {
	switch report.Reached {
	case goalCompleted:
		fmt.Fprintf(out, "Release %s is installed. Next:\n  cvo status                  what runs\n  cvo upgrade                 updates of this cluster\n", printable(report.Release))
	case waitDeployed:
		fmt.Fprintf(out, "The operator runs and installs release %s. Next:\n  cvo upgrade wait            until it is installed\n  cvo status --watch          how it goes\n", printable(report.Release))
	default:
		fmt.Fprintf(out, "Everything is applied that installs release %s. Next:\n  kubectl rollout status -n %s deployment/%s\n  cvo upgrade wait\n", printable(report.Release), o.namespace, install.Operator)
	}
}

// refused makes an exit code of a refusal.
func refused(err error) error {
	if _, ok := errors.AsType[*install.Refusal](err); ok {
		return &RefusedError{err}
	}
	return err
}
