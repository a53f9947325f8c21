//go:build linux

package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/daemon"
	"github.com/cluster-version/cvo/pkg/node/host"
)

type daemonOptions struct {
	processOptions
	hostOptions
	node, release string
}

func newDaemonCmd(streams command.Streams) *cobra.Command {
	o := &daemonOptions{}
	cmd := &cobra.Command{
		Use:   "daemon --node NAME",
		Short: "Apply a node's desired config to its host",
		Long: `Run the daemon of a node until it is stopped. It reads the MachineConfig that the controller requests in an annotation of the
Node, asks the controller to drain the node, and writes the files of the config below --root. Then it runs the actions of the
cluster's node disruption policies by the host's systemd: it restarts or reloads services, or reboots. A journal on disk makes
each change safe: after a crash, the next process continues or undoes it.`,
		Example: `  # Change a folder instead of a host, for a trial
  cvo-node daemon --kubeconfig admin.kubeconfig --release-version 1.0.0 --node worker-0 --root ./worker-0`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.processOptions.add(f)
	o.hostOptions.add(f)
	f.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "`name` of the Node (required)")
	f.StringVar(&o.release, "release-version", os.Getenv("RELEASE_VERSION"), "`version` of the release that contains the stage (required)")
	return cmd
}

// daemonMachine returns the machine that the daemon changes. A host below another root is mounted into the daemon's container.
func (o *daemonOptions) daemonMachine(h *host.Host) (daemon.Machine, error) {
	if boot, err := h.Boot(); err != nil {
		return nil, err
	} else if boot == "" || filepath.Clean(o.root) == "/" {
		return o.machine(h)
	}
	return o.remote(h), nil
}

func (o *daemonOptions) run(ctx context.Context, streams command.Streams) error {
	if o.node == "" {
		return &command.UsageError{Err: errors.New("--node is missing: set it to the name of the Node")}
	}
	if o.release == "" {
		return command.Usagef("--release-version is missing: set it to the release of the controller")
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.UserAgent = "cvo-node-daemon/" + version
	c, err := cluster.NewDaemonClient(cfg)
	if err != nil {
		return err
	}
	h, err := host.Open(o.root, host.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	m, err := o.daemonMachine(h)
	if err != nil {
		return err
	}
	d := daemon.New(c, h, m, clock.RealClock{}, o.node, o.release)
	return d.Run(logr.NewContext(ctx, telemetry.NewLogger(streams.Err, o.verbosity)))
}
