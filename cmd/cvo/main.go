// Command cvo installs and updates a Kubernetes platform from signed release images.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/cluster-version/cvo/pkg/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := cli.New(cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	cli.InvokedAs(cmd, os.Args[0])
	err := cmd.ExecuteContext(ctx)
	cli.PrintError(os.Stderr, err)
	return cli.ExitCode(err)
}
