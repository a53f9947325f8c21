// Package install provides the commands 'cvo install' and 'cvo uninstall'. Package pkg/install implements their steps. This package reads
// flags, verifies the release, waits, and prints.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/leader"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/reading"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/cli/verifying"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/outside"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/install/plan"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
	"github.com/cluster-version/cvo/pkg/oci/egress"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/follow"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
)

type options struct {
	cluster.VersionFlags
	releaseImage string
	payloadCache string
	trust        string
	pullSecret   string
	namespace    string
	noOperator   bool
	ownNetwork   bool
	// podNetwork reports whether --bring-your-own-network=false was given explicitly.
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
	registry     registries.Flags
	cluster      reading.ClusterFlags
}

// New returns the command 'cvo install'.
func New(streams command.Streams) *cobra.Command {
	o := &options{registry: registries.Flags{NoPlainCredentials: true}}
	cmd := &cobra.Command{
		Use:   "install --release-image REF --trust FILE",
		Short: "Install the version operator and a platform on a bare cluster",
		Long: `Install the version operator on a bare cluster. The operator then installs the release.

The command verifies the release first. It creates nothing unless the release is signed by the keys in the trust file and
satisfies every ClusterImagePolicy of the cluster that matches its pullspec. Then it applies the operator's own part of the
release in this order: namespaces; the trust policy, the pull secret, and the registries of --insecure-registry and
--idms-file, which the operator uses from then on; CRDs; the guard that prevents an accidental deletion of the
ClusterVersion; the operator's account and its permissions; services; the ClusterVersion; and the operator's Deployment. All
objects come from the release, so they match the objects that the operator applies itself. Running the command again
repairs these objects: it creates missing ones, restores the release's fields, and replaces the trust policy, the pull
secret and the registries that its flags name.

The command waits until the operator runs. It reports at once if something blocks the operator, such as an image that
cannot be pulled. With --wait it also waits until the platform is installed. If the cluster already has an operator, update
it with 'cvo upgrade' instead.

--render writes the objects to a folder and uses no cluster. --no-operator only prepares a cluster for an operator
that 'cvo start' runs elsewhere: namespaces, CRDs, the pull secret, registries, certificates and the ClusterVersion with its
channel, update service, identity and capabilities. The trust file then applies to this release only; give it to 'cvo start' again.

Exit codes: 0 goal reached; 1 failure; 2 invalid command line; 3 refused, such as an unsigned release or a cluster with
another release; 5 timeout (--timeout); 6 timeout, and something blocks the operator; 130 interrupted.`,
		Example: `  # Install a platform on a bare cluster
  cvo install --release-image registry.example/platform/release:1.0.0 --trust trust.yaml --pull-secret pull-secret.json --wait

  # Install a platform that contains the cluster's network
  cvo install --release-image registry.example/platform/release:1.0.0 --trust trust.yaml --bring-your-own-network

  # Install from the registry of a kind cluster, which pods reach over HTTP under another name
  cvo install --release-image localhost:5001/platform/release:1.0.0 --trust trust.yaml \
    --idms-file mirrors.yaml --insecure-registry kind-registry:5000

  # Write the objects to a folder, to review or apply them separately
  cvo install --release-image registry.example/platform/release:1.0.0 --trust trust.yaml --render ./install
  for f in ./install/*.yaml; do kubectl apply --server-side -f "$f"; done

  # Prepare the cluster of the current kubeconfig, and run the operator on this host
  cvo install --no-operator --release-image registry.example/platform/release:1.0.0 --trust trust.yaml
  cvo start --release-image registry.example/platform/release:1.0.0 --trust trust.yaml`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.Flags().Changed); err != nil {
				return err
			}
			o.podNetwork = cmd.Flags().Changed("bring-your-own-network") && !o.ownNetwork
			return o.run(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	o.VersionFlags.Add(f)
	f.StringVar(&o.releaseImage, "release-image", "", "`pullspec` of the release (required)")
	f.StringVar(&o.payloadCache, "payload-cache", "", "`folder` that caches pulled content, as an OCI layout; default none")
	f.StringVar(&o.trust, "trust", "", "`file` with the accepted signers, for this install and for later updates (required)")
	f.StringVar(&o.pullSecret, "pull-secret", "", "`file` with the cluster's registry credentials, in the format of docker login; also used to pull the release unless --registry-config is given")
	f.StringVar(&o.namespace, "namespace", command.EnvOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator")
	f.BoolVar(&o.noOperator, "no-operator", false, "only prepare the cluster; start the operator with 'cvo start'")
	f.BoolVar(&o.ownNetwork, "bring-your-own-network", false, "the release installs the cluster's pod network: run the operator on its node's network, even before the node is ready")
	f.BoolVar(&o.clusterAdmin, "cluster-admin", false, "grant the operator all permissions instead of only the ones that the release needs")
	f.StringVar(&o.retrieval, "payload-retrieval", "", "`method` by which the operator gets releases: registry (default) or job (the nodes pull them)")
	f.StringVar(&o.channel, "channel", "", "update `channel`")
	f.StringVar(&o.upstream, "upstream", "", "`URL` of the update service")
	f.StringVar(&o.clusterID, "cluster-id", "", "`UUID` that identifies the cluster; default a new one")
	f.StringVar(&o.render, "render", "", "write the objects to this `folder`, without a cluster")
	f.StringVar(&o.wait, "wait", waitDeployed, "`goal` to wait for: deployed, completed (also without a value), or none")
	f.Lookup("wait").NoOptDefVal = follow.GoalCompleted
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "total `time` to wait; 0 waits forever")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress")
	printing.AddFlag(cmd, &o.output)
	o.registry.Add(f)
	o.cluster.Add(f)
	registries.LimitLookups(f)
	_ = cmd.RegisterFlagCompletionFunc("payload-retrieval", cobra.FixedCompletions(retrievals(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("wait", cobra.FixedCompletions([]string{waitDeployed, follow.GoalCompleted, waitNone}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// Values of --wait, in addition to GoalCompleted.
const (
	waitDeployed = "deployed"
	waitNone     = "none"
)

// Values of installReport.Reached for the stages before the operator runs.
const (
	reachedPrepared = "prepared"
	reachedApplied  = "applied"
)

func retrievals() []string { return []string{"registry", "job"} }

func (o *options) validate(given func(flag string) bool) error {
	switch {
	case o.releaseImage == "":
		return command.Usagef("--release-image is missing: set it to the pullspec of the release to install")
	case o.trust == "":
		return command.Usagef("--trust is missing: name a file with the keys that must sign the first release of a cluster; 'cvo release keygen' writes one")
	case o.retrieval != "" && !slices.Contains(retrievals(), o.retrieval):
		return command.Usagef("--payload-retrieval=%q: use one of %s", o.retrieval, strings.Join(retrievals(), ", "))
	case !slices.Contains([]string{waitDeployed, follow.GoalCompleted, waitNone}, o.wait):
		return command.Usagef("--wait=%q: use %s, %s or %s", o.wait, waitDeployed, follow.GoalCompleted, waitNone)
	case o.timeout < 0:
		return command.Usagef("--timeout %s: use a positive duration", o.timeout)
	case o.noOperator && o.render != "":
		return command.Usagef("use either --no-operator, which prepares a cluster, or --render, which only writes files")
	case !o.noOperator && layout.IsReference(o.releaseImage):
		return command.Usagef("--release-image %s is a folder on this machine, and nodes cannot pull from it: push the release to a registry, or prepare the cluster with --no-operator",
			o.releaseImage)
	}
	if err := o.checkUnused(given); err != nil {
		return err
	}
	if o.clusterID != "" && !request.IsClusterID(o.clusterID) {
		return command.Usagef("--cluster-id=%q: want a random (version 4) UUID such as 11111111-2222-4333-8444-555555555555, or omit the flag", o.clusterID)
	}
	if err := updategraph.CheckService(o.upstream); o.upstream != "" && err != nil {
		return command.Usagef("--upstream: %w", err)
	}
	return printing.Check(&o.output)
}

// checkUnused rejects flags that have no effect with --no-operator or --render.
func (o *options) checkUnused(given func(flag string) bool) error {
	for _, unused := range []struct {
		mode    bool
		flag    string
		because string
	}{
		{o.noOperator, "cluster-admin", "--no-operator creates no account for the operator: 'cvo start' uses the permissions of its kubeconfig"},
		{o.noOperator, "payload-retrieval", "--no-operator starts no operator: pass the flag to 'cvo start'"},
		{o.noOperator, "bring-your-own-network", "--no-operator starts no operator: pass the flag to 'cvo start'"},
		{o.noOperator && o.wait != waitNone, "wait", "--no-operator starts no operator to wait for: use 'cvo upgrade wait' after 'cvo start'"},
		{o.render != "", "wait", "--render applies nothing to wait for: omit the flag"},
		{o.render != "", "timeout", "--render applies nothing to wait for: omit the flag"},
		{o.render != "", "kubeconfig", "--render uses no cluster: omit the flag"},
		{o.render != "", "context", "--render uses no cluster: omit the flag"},
	} {
		if unused.mode && given(unused.flag) {
			return command.Usagef("--%s: %s", unused.flag, unused.because)
		}
	}
	return nil
}

func (o *options) run(ctx context.Context, streams command.Streams) error {
	settings, err := o.settings()
	if err != nil {
		return err
	}
	if o.render != "" {
		request, err := o.verified(ctx, streams, nil, settings)
		if err != nil {
			return err
		}
		return o.runRender(ctx, streams, request)
	}
	cfg, err := o.ConfigFor("cvo-install")
	if err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, command.ErrTimeout)
		defer cancel()
	}
	installation, err := o.prepare(ctx, streams, cfg, settings)
	switch {
	case err != nil && ctx.Err() != nil:
		return o.finish(ctx, streams, installReport{Image: o.releaseImage, Message: err.Error()}, err)
	case err != nil:
		return refused(err)
	}
	return o.apply(ctx, streams, cfg, installation)
}

// prepare verifies the release and plans its installation.
func (o *options) prepare(ctx context.Context, streams command.Streams, cfg *rest.Config, settings plan.Settings) (*install.Installation, error) {
	logLine := func(text string) { o.inform(streams, "%s", text) }
	retrying := apiserver.Retrying(cfg, logLine)
	request, err := o.verified(ctx, streams, retrying, settings)
	if err != nil {
		return nil, err
	}
	installation, err := request.Prepare(ctx, clock.RealClock{}, retrying, logLine)
	if installation != nil {
		o.warnNothing(streams, installation.Plan)
	}
	if err != nil {
		return nil, err
	}
	if !o.noOperator {
		o.warn(streams)
	}
	for _, warning := range installation.Warnings {
		streams.Warnf("%s", warning)
	}
	return installation, nil
}

// settings returns the installation settings from the flags.
func (o *options) settings() (plan.Settings, error) {
	s := plan.Settings{
		Namespace: o.namespace, Name: o.Name, ClusterAdmin: o.clusterAdmin, Retrieval: o.retrieval,
		Channel: o.channel, Upstream: o.upstream, ClusterID: o.clusterID,
	}
	var err error
	if s.Trust, s.TrustBinary, err = policy.ConfigMapData(o.trust); err != nil {
		return s, err
	}
	if o.pullSecret != "" {
		if s.PullSecret, err = inputfile.Read(o.pullSecret); err != nil {
			return s, fmt.Errorf("reading --pull-secret: %w", err)
		}
		if err := plan.CheckPullSecret(s.PullSecret); err != nil {
			return s, fmt.Errorf("--pull-secret %s: %w", o.pullSecret, err)
		}
		if o.registry.Config == "" {
			o.registry.Config = o.pullSecret
		}
	}
	if s.Registries, err = o.registries(); err != nil {
		return s, err
	}
	if o.registry.Authority != "" {
		if s.Authorities, err = inputfile.Read(o.registry.Authority); err != nil {
			return s, fmt.Errorf("reading --certificate-authority: %w", err)
		}
	}
	s.Capabilities, err = o.cluster.Spec()
	return s, err
}

// registries returns the registries and mirrors that the operator gets.
func (o *options) registries() (map[string]string, error) {
	mirrorSets, err := o.registry.MirrorSets()
	if err != nil {
		return nil, err
	}
	return egress.Registries{Insecure: o.registry.InsecureAt, MirrorSets: mirrorSets}.Data(), nil
}

// verified resolves the release and checks its signatures against the trust policy and against the matching ClusterImagePolicies of the
// cluster. It returns the request to install the release. cfg is nil if there is no cluster yet.
func (o *options) verified(ctx context.Context, streams command.Streams, cfg *rest.Config, settings plan.Settings) (install.Request, error) {
	if err := registries.CheckImages(o.releaseImage); err != nil {
		return install.Request{}, err
	}
	policy, err := verifying.ReadTrust(o.trust)
	if err != nil {
		return install.Request{}, err
	}
	images, err := o.registry.Images(o.payloadCache)
	if err != nil {
		return install.Request{}, err
	}
	img, err := images.Resolve(ctx, o.releaseImage)
	if err != nil {
		return install.Request{}, err
	}
	if cfg != nil {
		reader, err := cluster.OperatorReader(cfg)
		if err != nil {
			return install.Request{}, err
		}
		if policy.Additional, err = outside.MatchingImagePolicies(ctx, reader, o.releaseImage); err != nil {
			return install.Request{}, err
		}
	}
	verifier, err := verify.New(*policy, verifying.Sources(images), clock.RealClock{})
	if err != nil {
		return install.Request{}, err
	}
	if err := verifying.Signed(ctx, streams, verifier, img); err != nil {
		return install.Request{}, err
	}
	filter, err := o.cluster.Filter()
	return install.Request{
		Image: img, Source: images, Load: payload.Options{Filter: filter, BringYourOwnNetwork: o.ownNetwork}, PodNetwork: o.podNetwork,
		NoOperator: o.noOperator, Settings: settings,
	}, err
}

// apply applies the plan of an installation, waits for the goal of --wait and prints the outcome.
func (o *options) apply(ctx context.Context, streams command.Streams, cfg *rest.Config, installation *install.Installation) error {
	report := installReport{Release: installation.Plan.Release, Image: installation.Plan.Image}
	var err error
	report.Objects, err = installation.Deploy(ctx, func(r target.Result) { o.inform(streams, "%s %s", r, r.Outcome) })
	switch {
	case err != nil && ctx.Err() != nil:
		report.Message = err.Error()
		return o.finish(ctx, streams, report, err)
	case err != nil:
		return refused(err)
	}
	report.Reached = reachedApplied
	if o.noOperator {
		report.Reached = reachedPrepared
	} else {
		err = o.follow(ctx, streams, cfg, &report)
	}
	return o.finish(ctx, streams, report, err)
}

// warnNothing warns if the release has no manifest for the cluster.
func (o *options) warnNothing(streams command.Streams, p plan.Plan) {
	if p.Nothing != "" {
		streams.Warnf("the cluster gets no component: %s: check --profile", p.Nothing)
	}
}

// installReport is the outcome that --output prints.
type installReport struct {
	Release string          `json:"release"`
	Image   string          `json:"image"`
	Objects []target.Result `json:"objects,omitempty"`
	Files   []string        `json:"files,omitempty"`
	// Reached is the last completed stage: prepared, applied, deployed or completed.
	Reached  string   `json:"reached,omitempty"`
	Troubles []string `json:"troubles,omitempty"`
	Message  string   `json:"message,omitempty"`
}

func (o *options) runRender(ctx context.Context, streams command.Streams, request install.Request) error {
	p, err := request.Plan(ctx)
	o.warnNothing(streams, p)
	if err != nil {
		return refused(err)
	}
	o.warn(streams)
	files, err := plan.Render(p, o.render)
	if err != nil {
		return refused(err)
	}
	if o.output != "" {
		return printing.Structured(streams, o.output, installReport{Release: p.Release, Image: p.Image, Files: files})
	}
	fmt.Fprintf(streams.Out, "Wrote %d files to %s. Apply them in order:\n  for f in %s/*.yaml; do kubectl apply --server-side -f \"$f\"; done\n", len(files), o.render, o.render)
	return nil
}

// inform prints a progress line, unless --quiet is set.
func (o *options) inform(streams command.Streams, format string, args ...any) {
	if !o.quiet {
		streams.Infof(format, args...)
	}
}

// warn warns about settings that work on this host but may not work in the cluster.
func (o *options) warn(streams command.Streams) {
	trust, err := policy.Read(o.trust)
	if err != nil {
		return // an earlier check has reported any error
	}
	for _, warning := range trust.Warnings() {
		streams.Warnf("%s: give each member its own key or identity", warning)
	}
	if o.registry.Insecure {
		streams.Warnf("--insecure applies to this command only: if the operator needs a registry without TLS, name it with --insecure-registry")
	}
	for _, store := range trust.Stores {
		if strings.HasPrefix(store, "file:") {
			streams.Warnf("the operator in the cluster cannot read the signatures in %s: put them into a store that it can reach, or into ConfigMaps", store)
		}
	}
	if !release.Pullspec(o.releaseImage).HasDigest() {
		o.inform(streams, "the operator runs the verified digest, even if the tag moves later")
	}
}

// follow waits for the goal of --wait and records the last completed stage in report.
func (o *options) follow(ctx context.Context, streams command.Streams, cfg *rest.Config, report *installReport) error {
	if o.wait == waitNone {
		return nil
	}
	reported := map[string]bool{}
	last, err := install.Await(ctx, cfg, o.namespace, func(s install.State) {
		o.inform(streams, "%s", s.Message)
		for _, trouble := range s.Troubles {
			if !reported[trouble] {
				reported[trouble] = true
				streams.Warnf("%s", trouble)
			}
		}
	})
	report.Troubles, report.Message = last.Troubles, last.Message
	if err != nil || !last.Running {
		return err
	}
	report.Reached = waitDeployed
	if o.wait != follow.GoalCompleted {
		return nil
	}
	source := &leader.Connection{Clock: clock.RealClock{}, Config: cfg, Namespace: o.namespace, Name: o.Name}
	defer source.Close()
	follower := &follow.Follower{Clock: clock.RealClock{}, Patience: accept.RecheckWithin, Config: cfg, Name: o.Name, Progress: source.Progress, Print: func(line string) {
		o.inform(streams, "%s", line)
	}}
	verdict, err := follower.Wait(ctx, follow.Goal{Completed: true})
	report.Message, report.Troubles = verdict.Message, nil
	switch {
	case verdict.State == follow.Refused:
		return &command.RefusedError{Err: errors.New(verdict.Message)}
	case err == nil:
		report.Reached = follow.GoalCompleted
	}
	return err
}

// finish prints the outcome and returns the error that sets the exit code.
func (o *options) finish(ctx context.Context, streams command.Streams, report installReport, err error) error {
	switch {
	case err == nil:
	case ctx.Err() != nil:
		code, what := command.ExitInterrupted, "interrupted"
		if errors.Is(context.Cause(ctx), command.ErrTimeout) {
			goal := o.wait
			if o.noOperator {
				goal = reachedPrepared
			}
			code, what = command.ExitUpdating, fmt.Sprintf("not %s within %s", goal, o.timeout)
		}
		if code == command.ExitUpdating && len(report.Troubles) > 0 {
			code = command.ExitAttention
		}
		report.Message = what + ": " + strings.Join(append([]string{report.Message}, report.Troubles...), "; ")
		err = &command.StateError{Code: code, Err: errors.New(report.Message)}
	default:
		report.Message = err.Error()
	}
	if o.output != "" {
		if err := printing.Structured(streams, o.output, report); err != nil {
			return err
		}
		return err
	}
	if state, ok := errors.AsType[*command.StateError](err); ok {
		command.PrintError(streams.Err, state.Err) // main does not print StateErrors
	}
	if err == nil {
		o.printNext(streams.Out, report)
	}
	return err
}

// printNext prints the state of the cluster and the commands to run next.
func (o *options) printNext(out io.Writer, report installReport) {
	switch report.Reached {
	case follow.GoalCompleted:
		fmt.Fprintf(out, "Release %s is installed. Next:\n  cvo status                  show the running release\n  cvo upgrade                 list the updates of this cluster\n", printable.Text(report.Release))
	case waitDeployed:
		fmt.Fprintf(out, "The operator runs and installs release %s. Next:\n  cvo upgrade wait            wait until it is installed\n  cvo status --watch          follow its progress\n", printable.Text(report.Release))
	case reachedPrepared:
		fmt.Fprintf(out, "The cluster has all objects that the operator of release %s needs to run outside it. Next:\n  cvo start --release-image %s --trust %s%s\n",
			printable.Text(report.Release), command.Quote(report.Image), command.Quote(o.trust), api.PlaceFlags(o.namespace, o.Name))
	default:
		fmt.Fprintf(out, "Applied the manifests that install release %s. Next:\n  kubectl rollout status -n %s deployment/%s\n  cvo upgrade wait\n", printable.Text(report.Release), o.namespace, target.Operator)
	}
}

// refused turns a target.Refusal into a RefusedError, which sets the exit code.
func refused(err error) error {
	if _, ok := errors.AsType[*target.Refusal](err); ok {
		return &command.RefusedError{Err: err}
	}
	return err
}
