package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cluster-version/cvo/internal/folder"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/cli/verifying"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/outside"
	"github.com/cluster-version/cvo/pkg/kube/lead"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/retrieve"
	"github.com/cluster-version/cvo/pkg/operator"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
	"github.com/cluster-version/cvo/pkg/update/metrics"
	"github.com/cluster-version/cvo/pkg/update/service"
	"github.com/cluster-version/cvo/pkg/verify/reference"
)

type startOptions struct {
	kubeconfig   string
	releaseImage string
	payloadDir   string
	payloadCache string
	retrieval    string
	cacheLimit   string
	listen       string
	certFile     string
	keyFile      string
	certOptional bool
	minTLS       string
	cipherSuites []string
	namespace    string
	name         string
	trust        string
	verbosity    int
	lease        time.Duration
	renew        time.Duration
	retry        time.Duration
	capabilities string
	ownNetwork   bool
	metrics      metrics.Source
	service      string
	registry     registries.Flags
	compat       compatFlags
}

// startCommand is the name of the command that runs and logs until it is stopped.
const startCommand = "start"

func newStartCmd(streams command.Streams) *cobra.Command {
	o := &startOptions{}
	cmd := &cobra.Command{
		Use:   startCommand + " --release-image REF [--kubeconfig FILE]",
		Short: "Run the version operator",
		Long: `Run the version operator until it is stopped. On a cluster without a release, the operator installs the release given by
--release-image. After that it follows spec.desiredUpdate of the ClusterVersion.

The operator pulls the release from its registry. The release must be signed by a key in the file of --trust. With
--payload-dir the operator reads the files of the release from a local folder instead, as in a pod that runs the release
image.`,
		Example: `  # Install a release on the cluster of the current kubeconfig, prepared by 'cvo install --no-operator'
  cvo start --release-image registry.example/platform/release:1.0.0 --trust trust.yaml

  # Keep a cache across restarts
  cvo start --release-image registry.example/platform/release:1.0.0 --trust trust.yaml --payload-cache /var/cache/cvo

  # Fetch later releases with Jobs, in a cluster where only nodes can reach the registry
  cvo start --release-image registry.example/platform/release@sha256:… --payload-dir=/ --payload-retrieval=job

  # Run a release from a folder written by 'cvo release extract --layout=image'
  cvo start --release-image registry.example/platform/release@sha256:… --payload-dir ./release`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", cluster.KubeconfigUsage)
	f.StringVar(&o.releaseImage, "release-image", "", "`pullspec` of the operator's own release (required)")
	f.StringVar(&o.payloadDir, "payload-dir", os.Getenv("PAYLOAD_OVERRIDE"), "`folder` with the files of the operator's own release, which is then not pulled")
	f.StringVar(&o.payloadCache, "payload-cache", "", "`folder` that caches pulled content, as an OCI layout; default none")
	f.StringVar(&o.retrieval, "payload-retrieval", command.EnvOr("CVO_PAYLOAD_RETRIEVAL", string(retrieve.FromRegistry)), "`method` to read release images: registry (the operator reads the registry) or job (the nodes pull the image for a Job, in clusters where only nodes can reach the registry)")
	_ = cmd.RegisterFlagCompletionFunc("payload-retrieval", cobra.FixedCompletions(retrieve.Methods(), cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&o.cacheLimit, "payload-cache-limit", "4Gi", "`size` of the cache after each accepted release, as a Kubernetes quantity; 0 for no limit")
	f.StringVar(&o.listen, "listen", "127.0.0.1:9099", "`address` of /metrics, /debug/rollout, /healthz and /readyz, over TLS; empty for none")
	f.StringVar(&o.certFile, "serving-cert-file", "", "`file` with the serving certificate, reloaded when it changes; default a certificate created at start")
	f.StringVar(&o.keyFile, "serving-key-file", "", "`file` with the private key of that certificate")
	f.BoolVar(&o.certOptional, "serving-cert-optional", false, "until those files exist, serve with a certificate of the operator's own CA, which is stored in its namespace")
	f.StringVar(&o.minTLS, "tls-min-version", "", "minimum TLS `version` of the server; default the cluster's TLS profile if it applies to all components, else "+string(configv1.VersionTLS12))
	f.StringSliceVar(&o.cipherSuites, "tls-cipher-suites", nil, "comma-separated cipher `suites` of the server below TLS 1.3, by IANA name; default the cluster's TLS profile if it applies to all components, else the secure suites")
	_ = cmd.RegisterFlagCompletionFunc("tls-min-version", cobra.FixedCompletions(serve.TLSVersions(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("tls-cipher-suites", cobra.FixedCompletions(serve.TLSCipherSuites(), cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&o.namespace, "namespace", command.EnvOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator and its Lease")
	f.StringVar(&o.name, "name", command.EnvOr("CVO_NAME", api.ClusterVersionName), "`name` of the ClusterVersion")
	f.StringVar(&o.trust, "trust", "", "`file` with the accepted signers, instead of the keys in the running release; required without --payload-dir")
	f.IntVarP(&o.verbosity, "v", "v", 0, "log `level`: 0 logs changes to the cluster, 1 and higher are for debugging")
	f.DurationVar(&o.lease, "leader-elect-lease-duration", lead.DefaultLeaseDuration, "how long standbys wait after the last renewal before they take over")
	f.DurationVar(&o.renew, "leader-elect-renew-deadline", lead.DefaultRenewDeadline, "how long the leader tries to renew before it gives up")
	f.DurationVar(&o.retry, "leader-elect-retry-period", lead.DefaultRetryPeriod, "how often the leader renews")
	f.StringVar(&o.capabilities, "always-enable-capabilities", "", "comma-separated capabilities that are always enabled, regardless of the ClusterVersion")
	f.BoolVar(&o.ownNetwork, "bring-your-own-network", command.EnvTrue("CVO_BRING_YOUR_OWN_NETWORK"), "the release installs the cluster's pod network: run its operator on the node's network")
	f.StringVar(&o.service, "update-service", "", "`URL` of the update service; overrides spec.upstream of the ClusterVersion"+defaultServiceUsage())
	addMetricsFlags(f, &o.metrics)
	o.registry.Add(f)
	o.compat.add(f)
	command.LowMemory(cmd) // it loads releases rarely and does little else
	return cmd
}

// updateService is the default update service if neither the flag nor the ClusterVersion names one. The linker sets it in the binaries of a
// platform with an update service (-X, like version); the program never writes it.
var updateService string

func defaultServiceUsage() string {
	if updateService == "" {
		return ""
	}
	return "; without either, " + updateService
}

// addMetricsFlags adds the flags for the Prometheus that evaluates update risks.
func addMetricsFlags(f *pflag.FlagSet, source *metrics.Source) {
	f.StringVar(&source.URL, "metrics-url", "", "`URL` of the Prometheus that evaluates the risks of updates; default "+metrics.DefaultURL+" if that service exists, else the operator's own metrics")
	f.StringVar(&source.CAFile, "metrics-ca-bundle-file", "", "`file` with the CAs of the certificate of that Prometheus, reloaded when it changes; default the system's CAs, or for a service the cluster's service CA if the pod has it")
	f.StringVar(&source.TokenFile, "metrics-token-file", "", "`file` with the token for that Prometheus, reloaded when it changes; default none, or the pod's own token for a service over https")
	f.StringVar(&source.Namespace, "metrics-namespace", "", "`namespace` of the Prometheus service; the operator connects to the service's cluster IP; default from the URL")
	f.StringVar(&source.Service, "metrics-service", "", "`name` of that service; default from the URL")
	f.BoolVar(&source.UseDNS, "use-dns-for-services", false, "resolve the host of --metrics-url by DNS instead")
}

func (o *startOptions) run(ctx context.Context, streams command.Streams) error {
	if o.releaseImage == "" {
		return &command.UsageError{Err: errors.New("--release-image is missing: set it to the pullspec of the release to run")}
	}
	if _, err := reference.ParsePullspec(o.releaseImage); err != nil {
		return command.Usagef("--release-image is no pullspec such as registry.example/release:1.0.0: %w", err)
	}
	if (o.certFile == "") != (o.keyFile == "") {
		return &command.UsageError{Err: errors.New("--serving-cert-file and --serving-key-file must be set together")}
	}
	if o.certOptional && o.certFile == "" {
		return &command.UsageError{Err: errors.New("--serving-cert-optional requires --serving-cert-file and --serving-key-file: set them, even if the files do not exist yet")}
	}
	if err := updategraph.CheckService(o.service); o.service != "" && err != nil {
		return &command.UsageError{Err: fmt.Errorf("--update-service: %w", err)}
	}
	retrieval, err := retrieve.ParseMethod(o.retrieval)
	if err != nil {
		return &command.UsageError{Err: fmt.Errorf("--payload-retrieval: %w", err)}
	}
	handshakes, err := serve.ParseTLS(o.minTLS, o.cipherSuites)
	if err != nil {
		return &command.UsageError{Err: err}
	}
	log := telemetry.NewLogger(streams.Err, o.verbosity)
	o.compat.warn(log)
	options, err := o.operatorOptions(log)
	if err != nil {
		return err
	}
	options.TLS, options.Retrieval = handshakes, retrieval
	return operator.Run(ctx, options)
}

func (o *startOptions) operatorOptions(log logr.Logger) (operator.Options, error) {
	cfg, err := cluster.RESTConfig(o.kubeconfig)
	if err != nil {
		return operator.Options{}, err
	}
	access, err := o.registry.Options()
	if err != nil {
		return operator.Options{}, err
	}
	limit, err := resource.ParseQuantity(o.cacheLimit)
	if err != nil || limit.Sign() < 0 {
		return operator.Options{}, &command.UsageError{Err: fmt.Errorf("--payload-cache-limit %q is not a size such as 4Gi", o.cacheLimit)}
	}
	policy, err := verifying.ReadTrust(o.trust)
	if err != nil {
		return operator.Options{}, err
	}
	var local fs.FS
	if o.payloadDir != "" {
		if local, err = folder.Open(o.payloadDir); err == nil {
			_, err = fs.Stat(local, "release-manifests")
		}
		if err != nil {
			return operator.Options{}, fmt.Errorf("--payload-dir %s does not have the layout of a release image: %w", o.payloadDir, err)
		}
	} else if policy == nil {
		return operator.Options{}, &command.UsageError{Err: errors.New("--trust is missing: name a file with the keys that must sign a pulled release ('cvo release keygen' writes one), or use --payload-dir")}
	}
	return operator.Options{
		Config: cfg, Version: binaryVersion(), Log: log, ReleaseImage: o.releaseImage, Local: local, Name: o.name, Namespace: o.namespace,
		Listen: o.listen, ServingCertFile: o.certFile, ServingKeyFile: o.keyFile, ServingCertOptional: o.certOptional, PodIP: os.Getenv("POD_IP"),
		Outside: outside.Options{Access: access, Images: image.Options{CacheDir: o.payloadCache, CacheLimitBytes: limit.Value()}, Policy: policy},
		Settings: accept.Settings{
			Profile: os.Getenv("CLUSTER_PROFILE"), ExcludeID: os.Getenv("EXCLUDE_MANIFESTS"),
			BringYourOwnNetwork: o.ownNetwork, AlwaysEnable: cluster.CapabilityList(o.capabilities),
		},
		Metrics:       o.metrics,
		UpdateService: service.Options{URL: o.service, Default: updateService, UserAgent: "ClusterVersionOperator/" + binaryVersion()},
		PodNamespace:  os.Getenv("POD_NAMESPACE"), PodName: os.Getenv("POD_NAME"), NodeName: os.Getenv("NODE_NAME"),
		LeaseDuration: o.lease, RenewDeadline: o.renew, RetryPeriod: o.retry,
		Seed: uint64(time.Now().UnixNano()),
	}, nil
}
