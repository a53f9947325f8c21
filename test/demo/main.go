// Command demo shows a whole platform being installed and updated on this machine, and needs nothing but Go: it starts a
// control plane and a registry of its own, has the built cvo make and sign two releases of the example platform, runs it
// as the operator, installs the first release, updates to the second by an edit of the ClusterVersion, and tells in the
// terminal what happens meanwhile. Package actor plays the platform's operators, so that gates have something to wait for.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func main() { os.Exit(exitCode()) }

func exitCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// options are what the command line says.
type options struct {
	noTTY     bool
	keep      bool
	fail      string
	delay     time.Duration
	cvo       string
	platforms string
}

// errInterrupted ends a demo that was stopped before its end.
var errInterrupted = errors.New("stopped before the end")

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Install and update the example platform on a control plane of its own, and show it live",
		Long: `Install and update the example platform on a control plane of its own, and show it live: runlevels as bars, what each
gate waits for, the conditions of the ClusterVersion, and at the end how long everything took.

etcd, kube-apiserver, a registry and cvo run as processes of this machine on ports of 127.0.0.1; nothing is left of
them at the end. There are no nodes: what the platform's operators would report is reported in their place.`,
		Example: `  make demo
  make demo DEMO_FLAGS=--no-tty
  make demo DEMO_FLAGS="--fail example-dns"
  make demo DEMO_FLAGS="--fail example-dns --keep"
  make demo DEMO_FLAGS="--keep --delay 5s"`,
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
	f.BoolVar(&o.noTTY, "no-tty", false, "write lines instead of a live view; the default where there is no terminal")
	f.BoolVar(&o.keep, "keep", false, "leave everything running at the end, until Ctrl-C, and say what to try; after --fail, Enter repairs the operator")
	f.StringVar(&o.fail, "fail", "", "`COMPONENT` whose operator does not come up at the new version, such as example-dns")
	f.DurationVar(&o.delay, "delay", 1500*time.Millisecond, "how long an operator takes to reach a new version, give or take a third")
	f.StringVar(&o.cvo, "cvo", "", "the cvo `binary`; default bin/cvo, which make builds")
	f.StringVar(&o.platforms, "platform", "", "`folder` with the folders 1.0.0 and 1.1.0; default examples/platform")
	return cmd
}
