// Command cvo installs and updates a Kubernetes platform from signed release images.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

func main() { os.Exit(run()) }

// gcPercent is the target of the garbage collector (GOGC) in commands for which little memory matters more than speed. For the operator, a
// third instead of half saves 7 MiB at the peak of an update and costs 0.2 CPU-seconds of an install.
const gcPercent = 33

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, for example while it renders an endless template
	cmd := cli.New(command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	cli.InvokedAs(cmd, os.Args[0])
	prepare := cmd.PersistentPreRun
	cmd.PersistentPreRun = func(executed *cobra.Command, args []string) {
		if command.NeedsLowMemory(executed) && os.Getenv("GOGC") == "" {
			debug.SetGCPercent(gcPercent)
		}
		prepare(executed, args)
	}
	executed, err := cmd.ExecuteContextC(ctx)
	cli.PrintError(os.Stderr, executed, err)
	return command.ExitCode(err)
}
