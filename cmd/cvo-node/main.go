//go:build linux

// Command cvo-node is the node stage of a platform. It renders machine configs, drains nodes and changes their hosts.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // the image has no zone data, and windows of NodeRolloutPolicies need it

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/node/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := cli.New(command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}).ExecuteContext(ctx)
	command.PrintError(os.Stderr, err)
	return command.ExitCode(err)
}
