package env

import (
	"fmt"
	"os"
	"testing"
)

// Main is for TestMain: it starts one control plane for the test binary, hands it to use, runs the tests, stops the
// control plane and exits. A control plane that does not start fails the binary.
func Main(m *testing.M, o Options, use func(*Env)) {
	os.Exit(run(m, o, use))
}

func run(m *testing.M, o Options, use func(*Env)) (code int) {
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

// New starts a control plane for one test that needs an empty cluster, and stops it when the test ends.
func New(t testing.TB, o Options) *Env {
	t.Helper()
	e, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Errorf("stopping the control plane: %v", err)
		}
	})
	return e
}
