// Command patient is cvo with a day between two attempts to accept a release. A test of it shows that an event triggers an attempt,
// however slow the machine is, because no timer does. It links the same packages as cvo, so building it only costs the linking.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "unsafe"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// The linker joins this variable with the package's, which has the value.
//
//go:linkname acceptRetry github.com/cluster-version/cvo/pkg/clusterversion.acceptRetry
var acceptRetry backoff.Doubling

func main() { os.Exit(run()) }

func run() int {
	if acceptRetry.First == 0 {
		fmt.Fprintln(os.Stderr, "package clusterversion has no variable acceptRetry: adapt test/patient")
		return 1
	}
	acceptRetry = backoff.Doubling{First: 24 * time.Hour}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := cli.New(command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	err := cmd.ExecuteContext(ctx)
	command.PrintError(os.Stderr, err)
	return command.ExitCode(err)
}
