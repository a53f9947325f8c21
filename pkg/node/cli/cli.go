//go:build linux

// Package cli has the commands of cvo-node: one for each process of the node stage. They read flags, connect the parts of the process and
// run it until it is stopped.
package cli

import (
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
)

// version is the version of the program. The linker sets it.
var version = "unknown"

// New returns the command cvo-node.
func New(streams command.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "cvo-node",
		Short: "Update the nodes of a cluster",
		Long: `Update the nodes of a cluster to the MachineConfigs of their MachineConfigPools. One controller in the cluster renders the
configs, chooses nodes and drains them. A daemon on each node changes the host.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.SetFlagErrorFunc(command.FlagError)
	root.AddCommand(newControllerCmd(streams), newDaemonCmd(streams), newApplyCmd(streams), newGuardCmd(streams))
	return root
}

// processOptions are the flags of every process.
type processOptions struct {
	kubeconfig string
	verbosity  int
}

func (o *processOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; default the pod's service account")
	f.IntVarP(&o.verbosity, "v", "v", 0, "log `level`: 0 logs changes to the cluster and the host, 1 and higher are for debugging")
}

// connectTimeout is the timeout of a connection to the API server. After a reboot, a process may start before its host redirects connections to the
// address of Service kubernetes. A connection from that time never succeeds.
const connectTimeout = 3 * time.Second

func (o *processOptions) config() (*rest.Config, error) {
	load := rest.InClusterConfig // BuildConfigFromFlags would log a warning
	if o.kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", o.kubeconfig) }
	}
	cfg, err := load()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w: run in a pod, or set --kubeconfig", err)
	}
	cfg = apiserver.Unlimited(cfg)
	cfg.Dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	return cfg, nil
}
