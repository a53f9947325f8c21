package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/operator"
	"github.com/cluster-version/cvo/pkg/updategraph"
	"github.com/cluster-version/cvo/pkg/verify"
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
	metrics      operator.MetricsSource
	service      string
	registry     imageFlags
	compat       compatFlags
}

// startCommand is the command that goes on until it is stopped, and logs.
const startCommand = "start"

func newStartCmd(streams Streams) *cobra.Command {
	o := &startOptions{}
	cmd := &cobra.Command{
		Use:   startCommand + " --release-image REF [--kubeconfig FILE]",
		Short: "Run the version operator",
		Long: `Run the version operator until it is stopped. It installs the release given by --release-image on a cluster that has
none yet, and from then on follows spec.desiredUpdate of the ClusterVersion.

The release is pulled from its registry and must be signed by someone that --trust names, unless --payload-dir says
that its files are here already, as they are in a pod that runs the release image.`,
		Example: `  # Install a release on the cluster of the current kubeconfig, prepared by 'cvo install --no-operator'
  cvo start --release-image registry.example/platform/release:1.0.0 --trust trust.yaml

  # The same with a cache that survives restarts
  cvo start --release-image registry.example/platform/release:1.0.0 --trust trust.yaml --payload-cache /var/cache/cvo

  # Have Jobs fetch later releases, in a cluster where only nodes reach the registry
  cvo start --release-image registry.example/platform/release@sha256:… --payload-dir=/ --payload-retrieval=job

  # Run a release from a folder, such as 'cvo release extract --layout=image' writes
  cvo start --release-image registry.example/platform/release@sha256:… --payload-dir ./release`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", kubeconfigUsage)
	f.StringVar(&o.releaseImage, "release-image", "", "`pullspec` of the operator's own release (required)")
	f.StringVar(&o.payloadDir, "payload-dir", os.Getenv("PAYLOAD_OVERRIDE"), "`folder` with the files of the operator's own release, instead of pulling it")
	f.StringVar(&o.payloadCache, "payload-cache", "", "`folder` that keeps what was pulled, as an OCI layout; default none")
	f.StringVar(&o.retrieval, "payload-retrieval", envOr("CVO_PAYLOAD_RETRIEVAL", string(operator.RetrievalRegistry)), "`way` to read release images: registry asks the registry; job has a Job do it, for clusters where only nodes reach the registry")
	_ = cmd.RegisterFlagCompletionFunc("payload-retrieval", cobra.FixedCompletions(operator.Retrievals(), cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&o.cacheLimit, "payload-cache-limit", "4Gi", "`size` that the cache is cut back to after each accepted release, as Kubernetes writes it; 0 for none")
	f.StringVar(&o.listen, "listen", "127.0.0.1:9099", "`address` of /metrics, /debug/rollout, /healthz and /readyz, over TLS; empty for none")
	f.StringVar(&o.certFile, "serving-cert-file", "", "`file` with the certificate to serve with, read again when it changes; default one made at start")
	f.StringVar(&o.keyFile, "serving-key-file", "", "`file` with the key of that certificate")
	f.BoolVar(&o.certOptional, "serving-cert-optional", false, "where those files are missing, serve with a certificate of the operator's own CA, which it keeps in its namespace, until they appear")
	f.StringVar(&o.minTLS, "tls-min-version", "", "least `version` of TLS to serve with; default the cluster's TLS profile if it is for all components, else "+string(configv1.VersionTLS12))
	f.StringSliceVar(&o.cipherSuites, "tls-cipher-suites", nil, "comma-separated `suites` to serve with below TLS 1.3, by their IANA names; default the cluster's TLS profile if it is for all components, else the safe ones")
	_ = cmd.RegisterFlagCompletionFunc("tls-min-version", cobra.FixedCompletions(operator.TLSVersions(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("tls-cipher-suites", cobra.FixedCompletions(operator.TLSCipherSuites(), cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&o.namespace, "namespace", envOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator and its Lease")
	f.StringVar(&o.name, "name", envOr("CVO_NAME", api.ClusterVersionName), "`name` of the ClusterVersion")
	f.StringVar(&o.trust, "trust", "", "`file` that says whose signatures are accepted, instead of the keys in the running release")
	f.IntVarP(&o.verbosity, "v", "v", 0, "log `level`: 0 what changes the cluster, 1 and more for debugging")
	f.DurationVar(&o.lease, "leader-elect-lease-duration", operator.DefaultLeaseDuration, "how long others wait before they take over from a leader that went silent")
	f.DurationVar(&o.renew, "leader-elect-renew-deadline", operator.DefaultRenewDeadline, "how long the leader tries to renew before it gives up")
	f.DurationVar(&o.retry, "leader-elect-retry-period", operator.DefaultRetryPeriod, "how often the leader renews and others look")
	f.StringVar(&o.capabilities, "always-enable-capabilities", "", "comma-separated capabilities that are on whatever the ClusterVersion asks for")
	f.BoolVar(&o.ownNetwork, "bring-your-own-network", envTrue("CVO_BRING_YOUR_OWN_NETWORK"), "the release installs the cluster's pod network: its operator runs on the network of its node")
	f.StringVar(&o.service, "update-service", "", "`URL` of the update service that is asked for updates, whatever spec.upstream of the ClusterVersion says"+defaultServiceUsage())
	addMetricsFlags(f, &o.metrics)
	o.registry.add(f)
	o.compat.add(f)
	return cmd
}

// updateService is asked where neither the flag nor the ClusterVersion names a service. It is what the linker stamps into
// binaries of a platform that has one (-X, as version); nothing in the program writes it.
var updateService string

func defaultServiceUsage() string {
	if updateService == "" {
		return ""
	}
	return "; without either, " + updateService
}

// addMetricsFlags adds the flags that say where the Prometheus is against which the risks of updates are evaluated.
func addMetricsFlags(f *pflag.FlagSet, source *operator.MetricsSource) {
	f.StringVar(&source.URL, "metrics-url", "", "`URL` of the Prometheus that tells which risks of updates apply; default "+operator.DefaultMetricsURL+" if that service is there, else the operator's own metrics")
	f.StringVar(&source.CAFile, "metrics-ca-bundle-file", "", "`file` with the authorities of its certificate, read again when it changes; default the system's, or in a pod that has it the cluster's service authority for a service")
	f.StringVar(&source.TokenFile, "metrics-token-file", "", "`file` with the token that it wants, read again when it changes; default none, or the pod's own for a service over https")
	f.StringVar(&source.Namespace, "metrics-namespace", "", "`namespace` of its service, whose cluster IP is connected to; default from the URL")
	f.StringVar(&source.Service, "metrics-service", "", "`name` of that service; default from the URL")
	f.BoolVar(&source.UseDNS, "use-dns-for-services", false, "find the host of --metrics-url by DNS instead")
}

// gcPercent is how much an operator's memory may grow before it is cleaned up. It loads a release now and then and does
// little else, so it had better be small than quick: half of Go's default costs some tenths of a second of an install.
const gcPercent = 50

func (o *startOptions) run(ctx context.Context, streams Streams) error {
	if o.releaseImage == "" {
		return &UsageError{errors.New("--release-image is missing: give the pullspec of the release to run")}
	}
	if (o.certFile == "") != (o.keyFile == "") {
		return &UsageError{errors.New("--serving-cert-file and --serving-key-file need each other")}
	}
	if o.certOptional && o.certFile == "" {
		return &UsageError{errors.New("--serving-cert-optional says that --serving-cert-file and --serving-key-file may be missing: name them")}
	}
	if err := updategraph.CheckService(o.service); o.service != "" && err != nil {
		return &UsageError{fmt.Errorf("--update-service: %w", err)}
	}
	retrieval, err := operator.ParseRetrieval(o.retrieval)
	if err != nil {
		return &UsageError{fmt.Errorf("--payload-retrieval: %w", err)}
	}
	handshakes, err := operator.ParseTLS(o.minTLS, o.cipherSuites)
	if err != nil {
		return &UsageError{err}
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	log := newLogger(streams, o.verbosity)
	o.compat.warn(log)
	options, err := o.operatorOptions(log)
	if err != nil {
		return err
	}
	options.TLS, options.Retrieval = handshakes, retrieval
	return operator.Run(ctx, options)
}

func (o *startOptions) operatorOptions(log logr.Logger) (operator.Options, error) {
	cfg, err := restConfig(o.kubeconfig)
	if err != nil {
		return operator.Options{}, err
	}
	access, err := o.registry.options()
	if err != nil {
		return operator.Options{}, err
	}
	limit, err := resource.ParseQuantity(o.cacheLimit)
	if err != nil || limit.Sign() < 0 {
		return operator.Options{}, &UsageError{fmt.Errorf("--payload-cache-limit %q is not a size such as 4Gi", o.cacheLimit)}
	}
	policy, err := readTrust(o.trust)
	if err != nil {
		return operator.Options{}, err
	}
	var local fs.FS
	if o.payloadDir != "" {
		if _, err := os.Stat(filepath.Join(o.payloadDir, "release-manifests")); err != nil {
			return operator.Options{}, fmt.Errorf("--payload-dir %s is not laid out like a release image: %w", o.payloadDir, err)
		}
		local = os.DirFS(o.payloadDir)
	} else if policy == nil {
		return operator.Options{}, &UsageError{errors.New("--trust is missing: a release that is pulled must be signed by someone it names; 'cvo release keygen' writes such a file, or use --payload-dir")}
	}
	return operator.Options{
		Config: cfg, Log: log, ReleaseImage: o.releaseImage, Local: local, Name: o.name, Namespace: o.namespace,
		Listen: o.listen, ServingCertFile: o.certFile, ServingKeyFile: o.keyFile, ServingCertOptional: o.certOptional, PodIP: os.Getenv("POD_IP"), Access: access, Images: image.Options{CacheDir: o.payloadCache, CacheLimitBytes: limit.Value()}, Policy: policy,
		Profile: os.Getenv("CLUSTER_PROFILE"), ExcludeID: os.Getenv("EXCLUDE_MANIFESTS"),
		BringYourOwnNetwork: o.ownNetwork, AlwaysEnable: capabilityList(o.capabilities), Metrics: o.metrics,
		UpdateService: operator.UpdateService{URL: o.service, Default: updateService, UserAgent: "ClusterVersionOperator/" + binaryVersion()},
		PodNamespace:  os.Getenv("POD_NAMESPACE"), PodName: os.Getenv("POD_NAME"),
		LeaseDuration: o.lease, RenewDeadline: o.renew, RetryPeriod: o.retry,
		Seed: uint64(time.Now().UnixNano()), //nolint:gosec // any value will do
	}, nil
}

// readTrust reads a file of roots of trust; no file, no policy.
func readTrust(file string) (*verify.Policy, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // no policy is a valid answer
	}
	policy, err := verify.ReadTrust(file)
	if err != nil {
		return nil, err
	}
	return &policy, nil
}

// restConfig finds the cluster as kubectl does, and prefers a pod's service account over ~/.kube/config.
func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" && os.Getenv("KUBECONFIG") == "" {
		if cfg, err := rest.InClusterConfig(); err == nil {
			return cfg, nil
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w (set --kubeconfig)", err)
	}
	return cfg, nil
}

// newLogger returns the one logger of the process and sends the logs of client-go and controller-runtime to it.
func newLogger(streams Streams, verbosity int) logr.Logger {
	h := slog.NewJSONHandler(streams.Err, &slog.HandlerOptions{Level: slog.Level(-verbosity)})
	log := logr.FromSlogHandler(h)
	klog.SetSlogLogger(slog.New(h))
	operator.SetLogger(log)
	return log
}

// envTrue reports whether an environment variable says true.
func envTrue(name string) bool {
	on, err := strconv.ParseBool(os.Getenv(name))
	return err == nil && on
}

func envOr(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}
