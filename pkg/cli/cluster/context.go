// Package cluster provides the flags that choose a cluster and its ClusterVersion, and connects to the cluster. It finds a cluster as
// kubectl does. It reads the ClusterVersion without interpreting it.
package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/cli/command"
	enginecluster "github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
)

// OperatorReader returns a client for the kinds that the operator reads.
func OperatorReader(cfg *rest.Config) (client.Reader, error) {
	scheme, err := enginecluster.NewScheme()
	if err != nil {
		return nil, err
	}
	reader, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return reader, nil
}

// Namespaced returns the configuration of the cluster and the namespace that its kubeconfig selects.
func (f *ContextFlags) Namespaced() (*rest.Config, string, error) {
	cfg, err := f.Config()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := kubeconfig(f.Kubeconfig, &f.overrides).Namespace()
	return cfg, namespace, err
}

// RESTConfig finds the cluster as kubectl does, but prefers a pod's service account to ~/.kube/config.
func RESTConfig(file string) (*rest.Config, error) {
	return (&ContextFlags{Kubeconfig: file}).Config()
}

// KubeconfigUsage is the help text of a flag for RESTConfig.
const KubeconfigUsage = "kubeconfig `file`; default $KUBECONFIG, the pod's service account, then ~/.kube/config"

// ContextFlags choose the cluster and the user, with the same flags as kubectl.
type ContextFlags struct {
	Kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// Add adds the flags.
func (f *ContextFlags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", KubeconfigUsage)
	clientcmd.BindOverrideFlags(&f.overrides, flags, clientcmd.ConfigOverrideFlags{
		CurrentContext: clientcmd.FlagInfo{LongName: clientcmd.FlagContext, Description: "`context` of the kubeconfig; default the current context"},
		ContextOverrideFlags: clientcmd.ContextOverrideFlags{
			ClusterName:  clientcmd.FlagInfo{LongName: clientcmd.FlagClusterName, Description: "`cluster` of the kubeconfig; default the context's cluster"},
			AuthInfoName: clientcmd.FlagInfo{LongName: clientcmd.FlagAuthInfoName, Description: "`user` of the kubeconfig; default the context's user"},
		},
		AuthOverrideFlags: clientcmd.AuthOverrideFlags{
			Impersonate:       clientcmd.FlagInfo{LongName: clientcmd.FlagImpersonate, Description: "`user` or service account to impersonate"},
			ImpersonateGroups: clientcmd.FlagInfo{LongName: clientcmd.FlagImpersonateGroup, Description: "`group` to impersonate; may be repeated"},
		},
		Timeout: clientcmd.FlagInfo{
			LongName: clientcmd.FlagTimeout, Default: "0", Description: "`time` after which a request to the API server fails, such as 30s; 0 for no limit",
		},
	})
}

// Chosen reports whether a flag chooses a cluster or a user.
func (f *ContextFlags) Chosen() bool {
	return f.Kubeconfig != "" || f.choosesEntry() || f.overrides.AuthInfo.Impersonate != "" || len(f.overrides.AuthInfo.ImpersonateGroups) > 0
}

// choosesEntry reports whether a flag chooses an entry of the kubeconfig, which then must exist.
func (f *ContextFlags) choosesEntry() bool {
	return f.overrides.CurrentContext != "" || f.overrides.Context.Cluster != "" || f.overrides.Context.AuthInfo != ""
}

// Config returns the configuration of the chosen cluster, without a client-side limit of requests.
func (f *ContextFlags) Config() (*rest.Config, error) {
	timeout, err := f.timeout()
	if err != nil {
		return nil, err
	}
	cfg, err := f.find()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", f.explain(err))
	}
	cfg = apiserver.Unlimited(cfg)
	cfg.Timeout = timeout
	return cfg, nil
}

// ConfigFor returns the configuration of the chosen cluster for a command that prints no warnings of the API server. agent is the user
// agent, which identifies the command to the API server.
func (f *ContextFlags) ConfigFor(agent string) (*rest.Config, error) {
	cfg, err := f.Config()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = agent
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	return cfg, nil
}

// Connect returns a client for the kinds that the functions add. agent is described at ConfigFor.
func (f *ContextFlags) Connect(agent string, kinds ...func(*runtime.Scheme) error) (client.WithWatch, error) {
	cfg, err := f.ConfigFor(agent)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range kinds {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return c, nil
}

func (f *ContextFlags) find() (*rest.Config, error) {
	if f.prefersPod() {
		if cfg, err := rest.InClusterConfig(); err == nil {
			cfg.Impersonate = rest.ImpersonationConfig{UserName: f.overrides.AuthInfo.Impersonate, Groups: f.overrides.AuthInfo.ImpersonateGroups}
			return cfg, nil
		}
	}
	return kubeconfig(f.Kubeconfig, &f.overrides).ClientConfig()
}

// prefersPod reports whether the pod's service account takes precedence over a kubeconfig.
func (f *ContextFlags) prefersPod() bool {
	return f.Kubeconfig == "" && os.Getenv("KUBECONFIG") == "" && !f.choosesEntry()
}

// context returns the name of the chosen context, or "in-cluster" for a pod's service account.
func (f *ContextFlags) context() string {
	if f.overrides.CurrentContext != "" {
		return f.overrides.CurrentContext
	}
	if _, err := rest.InClusterConfig(); err == nil && f.prefersPod() {
		return "in-cluster"
	}
	raw, err := kubeconfig(f.Kubeconfig, &f.overrides).RawConfig()
	if err != nil || raw.CurrentContext == "" {
		return "in-cluster"
	}
	return raw.CurrentContext
}

// explain adds the remedy to an error of clientcmd. Its own remedy for a missing kubeconfig is a variable that few people know.
func (f *ContextFlags) explain(err error) error {
	switch {
	case clientcmd.IsEmptyConfig(err):
		files := clientcmd.NewDefaultClientConfigLoadingRules().GetLoadingPrecedence()
		if f.Kubeconfig != "" {
			files = []string{f.Kubeconfig}
		}
		return fmt.Errorf("no cluster in %s: set --kubeconfig or $KUBECONFIG to the kubeconfig of a cluster", strings.Join(files, ", "))
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: set --kubeconfig to an existing file", err)
	case f.choosesEntry():
		return fmt.Errorf("%w: choose an entry of 'kubectl config get-contexts'", err)
	}
	return fmt.Errorf("%w: set --kubeconfig", err)
}

// timeout returns the maximum duration of a request; 0 means no limit.
func (f *ContextFlags) timeout() (time.Duration, error) {
	if f.overrides.Timeout == "" {
		return 0, nil
	}
	timeout, err := clientcmd.ParseTimeout(f.overrides.Timeout)
	if err != nil {
		return 0, &command.UsageError{Err: fmt.Errorf("--request-timeout %q is not a duration: use for example 30s, or 0 for no limit", f.overrides.Timeout)}
	}
	return timeout, nil
}

func kubeconfig(file string, overrides *clientcmd.ConfigOverrides) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}
