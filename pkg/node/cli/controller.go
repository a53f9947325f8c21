//go:build linux

package cli

import (
	"context"
	"os"
	"path"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
	"github.com/cluster-version/cvo/pkg/kube/events"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/kube/replica"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/controlplane"
	"github.com/cluster-version/cvo/pkg/node/evict"
	"github.com/cluster-version/cvo/pkg/node/generate"
	"github.com/cluster-version/cvo/pkg/node/kubelet"
	"github.com/cluster-version/cvo/pkg/node/metrics"
	"github.com/cluster-version/cvo/pkg/node/report"
	"github.com/cluster-version/cvo/pkg/node/update"
	prometheus "github.com/cluster-version/cvo/pkg/update/metrics"
)

type controllerOptions struct {
	processOptions
	endpointOptions
	namespace string
	update    update.Options
	report    report.Options
	evict     evict.Options
	kubelet   kubelet.Options
	metrics   prometheus.Source
}

func newControllerCmd(streams command.Streams) *cobra.Command {
	o := &controllerOptions{}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Render configs, choose nodes and drain them",
		Long: `Run the controller of the node stage until it is stopped. It renders the MachineConfigs of each MachineConfigPool, assigns the
result to as many nodes as the pool's maxUnavailable allows, and drains each node before its daemon changes it. Several
replicas may run: one leads.`,
		Example: `  # Run outside the cluster, against the cluster of a kubeconfig
  cvo-node controller --kubeconfig admin.kubeconfig --release-version 1.0.0`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.processOptions.add(f)
	o.endpointOptions.add(f)
	f.StringVar(&o.namespace, "namespace", command.EnvOr("POD_NAMESPACE", api.MachineConfigNamespace), "`namespace` of the controller's Lease")
	f.StringVar(&o.update.Release, "release-version", os.Getenv("RELEASE_VERSION"), "`version` of the release that contains the stage (required); while ControllerConfig names another, nothing is rendered or assigned")
	f.StringVar(&o.update.OSImage, "os-image", "", "`pullspec` of the release's image of the operating system; default none")
	f.DurationVar(&o.update.Settle, "settle", update.DefaultSettle, "time without changes before MachineConfigs are rendered")
	f.IntVar(&o.evict.PerSecond, "evictions-per-second", evict.DefaultPerSecond, "maximum `number` of evictions per second of all nodes together; -1 for no limit")
	f.StringVar(&o.kubelet.Folder, "kubelet-config-dir", kubelet.DefaultFolder, "`folder` on nodes for the files of KubeletConfigs, the same as --config-dir of the kubelets")
	f.StringVar(&o.metrics.URL, "metrics-url", "", "`URL` of the Prometheus that evaluates the health of pools; default "+prometheus.DefaultURL)
	f.StringVar(&o.metrics.CAFile, "metrics-ca-bundle-file", "", "`file` with the CAs of the certificate of that Prometheus, reloaded when it changes; default the system's CAs, or for a service the cluster's service CA if the pod has it")
	f.StringVar(&o.metrics.TokenFile, "metrics-token-file", "", "`file` with the token for that Prometheus, reloaded when it changes; default none, or the pod's own token for a service over https")
	f.BoolVar(&o.update.WaitForReady, "updated-requires-ready", false, "count a pool as updated only while all its nodes are schedulable and ready, as OpenShift does")
	f.StringVar(&o.report.Image, "image", os.Getenv("OPERATOR_IMAGE"), "`pullspec` of this image, which the ClusterOperator reports")
	f.BoolVar(&o.report.DegradedPoolsGate, "degraded-pools-gate", false, "let every degraded pool hold the release's version back, as OpenShift does; otherwise only required pools do")
	return cmd
}

func (o *controllerOptions) run(ctx context.Context, streams command.Streams) error {
	if (o.certFile == "") != (o.keyFile == "") {
		return command.Usagef("--serving-cert-file and --serving-key-file must be set together")
	}
	if o.update.Release == "" {
		return command.Usagef("--release-version is missing: set it to the release that ControllerConfig %s names", api.MachineConfigController)
	}
	if o.evict.PerSecond == 0 {
		return command.Usagef("--evictions-per-second is 0: set a positive number, or -1 for no limit")
	}
	if !path.IsAbs(o.kubelet.Folder) {
		return command.Usagef("--kubelet-config-dir is %q: set an absolute path", o.kubelet.Folder)
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg = apiserver.Tune(cfg)
	log := telemetry.NewLogger(streams.Err, o.verbosity)
	ctx = logr.NewContext(ctx, log)
	scheme, err := cluster.NewScheme()
	if err != nil {
		return err
	}
	endpoint, err := o.open(ctx, o.namespace)
	if err != nil {
		return err
	}
	defer endpoint.Close() // in case of an error before the manager serves it
	identity, err := leader.NewIdentity(os.Getenv("POD_NAME"), endpoint.Certificate().Fingerprint())
	if err != nil {
		return err
	}
	pod := client.ObjectKey{Namespace: o.namespace, Name: os.Getenv("POD_NAME")}
	o.update.Pod, o.evict.Pod = pod, pod
	r, err := replica.New(ctx, cfg, replica.Options{
		UserAgent: "cvo-node-controller/" + version, Metrics: "node_controller",
		Namespace: o.namespace, Lease: api.MachineConfigController, Identity: identity, Scheme: scheme, Cache: cluster.CacheOptions(pod), Log: log,
	})
	if err != nil {
		return replica.End(log, err)
	}
	o.update.Version = version
	o.metrics.UseDNS = true // the pod is not in the network of the host, and may not read Services
	if o.update.Metrics, err = o.metrics.Connect(nil); err != nil {
		return err
	}
	recorder, err := events.NewRecorder(r.Manager, "machineconfigcontroller")
	if err != nil {
		return err
	}
	caughtUp, err := cluster.NewCatchUp(r.Manager)
	if err != nil {
		return err
	}
	guard := controlplane.New(r.Manager.GetClient(), r.Manager.GetAPIReader(), r.Manager.GetConfig(), clock.RealClock{})
	if err := update.Add(ctx, r.Manager, caughtUp, guard, clock.RealClock{}, recorder, o.update); err != nil {
		return err
	}
	if err := evict.Add(ctx, r.Manager, caughtUp, guard, clock.RealClock{}, recorder, o.evict); err != nil {
		return err
	}
	o.kubelet.Version = version
	if err := generate.Add(r.Manager, caughtUp, clock.RealClock{}, o.update.Release, o.kubelet); err != nil {
		return err
	}
	o.report.Version, o.report.Release, o.report.OSImage = version, o.update.Release, o.update.OSImage
	if err := report.Add(r.Manager, clock.RealClock{}, recorder, o.report); err != nil {
		return err
	}
	if err := metrics.Add(ctx, r.Manager, clock.RealClock{}, r.Registry); err != nil {
		return err
	}
	if err := serveMetrics(ctx, r, endpoint); err != nil {
		return err
	}
	return r.Run(ctx, nil, nil)
}
