// Command demo shows the install and the update of a whole platform on one machine. It needs only Go. It starts a control plane and a
// registry, creates and signs two releases of the example platform with the built cvo, and runs cvo as the operator. It installs the first
// release, updates to the second by editing the ClusterVersion, and shows the events in the terminal. Package actor plays the platform's
// operators, so that gates have something to wait for. The node stage is real: its controller runs, and its daemons change folders.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() { os.Exit(exitCode()) }

func exitCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(logr.Discard()) // otherwise controller-runtime prints a stack trace if the control plane starts slowly
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// options are the command line options.
type options struct {
	noTTY     bool
	keep      bool
	empty     bool
	fail      string
	delay     time.Duration
	cvo       string
	cvoNode   string
	platforms string
}

// errInterrupted reports that the demo was stopped before its end.
var errInterrupted = errors.New("stopped before the end")

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Install and update the example platform on a temporary control plane, and show it live",
		Long: `Install and update the example platform on a temporary control plane, and show it live: runlevels as bars, pending
gates, the nodes, the conditions of the ClusterVersion, and at the end the duration of each part.

etcd, kube-apiserver, a registry and cvo run as processes on this machine and listen on 127.0.0.1. At the end, the demo
removes everything. No pod runs: the demo itself reports the status of the platform's operators. Ten folders play the nodes. The
real controller and daemons of the node stage update them.`,
		Example: `  make demo
  make demo DEMO_FLAGS=--no-tty
  make demo DEMO_FLAGS="--fail example-dns"
  make demo DEMO_FLAGS="--fail example-dns --keep"
  make demo DEMO_FLAGS="--keep --delay 5s"
  make demo DEMO_FLAGS=--empty`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fd := int(os.Stdout.Fd())
			if !term.IsTerminal(fd) || !term.IsTerminal(int(os.Stdin.Fd())) || os.Getenv("TERM") == "dumb" {
				o.noTTY = true
			}
			return run(cmd.Context(), o, os.Stdin, os.Stdout)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.noTTY, "no-tty", false, "write lines instead of a live view; default without a terminal")
	f.BoolVar(&o.keep, "keep", false, "keep everything running at the end until Ctrl-C, and suggest commands; after --fail, Enter repairs the operator")
	f.BoolVar(&o.empty, "empty", false, "only start an empty control plane and a registry, until Ctrl-C, to try commands yourself")
	f.StringVar(&o.fail, "fail", "", "`COMPONENT` whose operator fails at the new version, such as example-dns")
	f.DurationVar(&o.delay, "delay", 1500*time.Millisecond, "how long an operator takes to reach a new version (± a third)")
	f.StringVar(&o.cvo, "cvo", "", "the cvo `binary`; default bin/cvo (run make build)")
	f.StringVar(&o.cvoNode, "cvo-node", "", "the cvo-node `binary`; default bin/cvo-node (run make demo)")
	f.StringVar(&o.platforms, "platform", "", "`folder` that contains the releases 1.0.0 and 1.1.0; default examples/platform")
	return cmd
}
