// Command cvo installs and updates a Kubernetes platform from signed release images.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, for example while it renders an endless template
	cmd := cli.New(command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	cli.InvokedAs(cmd, os.Args[0])
	cli.LimitMemory(cmd)
	executed, err := cmd.ExecuteContextC(ctx)
	cli.PrintError(os.Stderr, executed, err)
	return command.ExitCode(err)
}
