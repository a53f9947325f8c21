package env

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// SetParallel sets how many tests of a process run in parallel, unless the caller of `go test` has set -parallel. The flags must be parsed.
func SetParallel(n int) {
	const name = "test.parallel"
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	if set {
		return
	}
	if err := flag.Set(name, strconv.Itoa(n)); err != nil {
		panic(err) // only test processes have the flag
	}
}

// Main is for TestMain. It starts one control plane for the test binary, passes it to use, runs the tests, stops the control plane and
// exits. If the control plane does not start, the binary fails. With -short, Main starts none and does not call use; tests get the control
// plane from For, which then skips them.
func Main(m *testing.M, o Options, use func(*Env)) {
	os.Exit(run(m, o, use))
}

func run(m *testing.M, o Options, use func(*Env)) (code int) {
	flag.Parse()
	if testing.Short() {
		return m.Run()
	}
	e, err := Start(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := e.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	use(e)
	return m.Run()
}

// For returns the control plane of Main to a test that needs it. With -short, when e is nil, it skips the test.
func (e *Env) For(t testing.TB) *Env {
	t.Helper()
	NeedControlPlane(t)
	// Go's test cache remembers only the variables and files that tests read, not those that TestMain reads.
	_, _ = os.Getenv(BinEnv), os.Getenv(GatesEnv)
	for _, name := range []string{etcdName, apiServerName} {
		_, err := os.Stat(filepath.Join(e.bin, name))
		if err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// NeedControlPlane skips a test with -short. It is for a test that calls Start; For and New call it themselves.
func NeedControlPlane(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("this test needs a control plane")
	}
}

// New gives a test a control plane with an empty cluster. With -short it skips the test. A control plane without other options than Audit
// serves the next such test of the process; others end with the test.
func New(t testing.TB, o Options) *Env {
	t.Helper()
	NeedControlPlane(t)
	start, end := Start, (*Env).Stop
	if o.reusable() {
		start, end = borrow, giveBack
	}
	e, err := start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(e); err != nil {
			t.Errorf("stopping the control plane: %v", err)
		}
	})
	return e
}
