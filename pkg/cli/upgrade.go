package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func newUpgradeCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Look at updates of a cluster",
		Long: `Look at updates of a cluster.

An update is asked for by editing spec.desiredUpdate of the ClusterVersion; these commands help to decide and to follow.`,
		Example: `  # What would an update to this release change, and what would the cluster refuse?
  cvo upgrade diff registry.example/platform/release:1.1.0

  # How does the update go that is under way?
  cvo upgrade status

  # The same as the first for a release that is not built yet
  cvo upgrade diff ./release`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newUpgradeDiffCmd(streams), newUpgradeStatusCmd(streams))
	return cmd
}

// kubeconfigUsage is what restConfig does.
const kubeconfigUsage = "kubeconfig `file`; default $KUBECONFIG, the pod's service account, then ~/.kube/config"

// contextFlags choose the cluster.
type contextFlags struct {
	kubeconfig string
	context    string
}

func (f *contextFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", kubeconfigUsage)
	flags.StringVar(&f.context, "context", "", "`context` of the kubeconfig; default its current one")
}

func (f *contextFlags) config() (*rest.Config, error) {
	if f.context == "" {
		return restConfig(f.kubeconfig)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w (see 'kubectl config get-contexts')", err)
	}
	return cfg, nil
}
