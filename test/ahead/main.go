//go:build linux && (amd64 || arm64)

// Command ahead is cvo on a machine whose wall clock is ten minutes ahead of all others and whose monotonic clock is right. It replaces the
// vDSO function from which the Go runtime reads the clocks. It links the same packages as cvo, so building it only costs the linking.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "unsafe"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// The Go runtime allows other packages to refer to this variable: runtime/badlinkname_linux.go.
//
//go:linkname vdsoClockgettimeSym runtime.vdsoClockgettimeSym
var vdsoClockgettimeSym uintptr

var (
	// original is the kernel's clock_gettime.
	original uintptr
	// shiftedAddress is the address of shifted.
	shiftedAddress uintptr
)

// shifted is clock_gettime with the wall clock ten minutes ahead. Only C may call it.
func shifted() //nolint:unused // clock_*.s defines it and refers to it

func main() { os.Exit(run()) }

func run() int {
	original = vdsoClockgettimeSym
	if original == 0 {
		fmt.Fprintln(os.Stderr, "this kernel has no vDSO clock_gettime to replace")
		return 1
	}
	vdsoClockgettimeSym = shiftedAddress
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := cli.New(command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	err := cmd.ExecuteContext(ctx)
	command.PrintError(os.Stderr, err)
	return command.ExitCode(err)
}
