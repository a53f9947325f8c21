// Package ring reports in which ring a test runs. An expensive test of many cases of one kind tries a part of them in `make test`, and all in
// `make outer`.
package ring

import (
	"os"
	"testing"
)

// Outer reports whether a test has the time for all cases: the environment variable CVO_RING is outer, as in `make outer`.
func Outer() bool { return os.Getenv("CVO_RING") == "outer" }

// Stride is the step between the cases that a test tries: 1 in the outer ring, which tries each, 3 in `make test`, and 4 with -short.
func Stride() int {
	switch {
	case testing.Short():
		return 4
	case Outer():
		return 1
	}
	return 3
}

// NeedOuter skips an expensive test except in the outer ring. It is for tests that repeat those of `make test` at another level, for tests with
// kubectl, Helm or another build, and for rare failures of the tests' own tools.
func NeedOuter(t testing.TB) {
	t.Helper()
	if !Outer() {
		t.Skip("make outer runs this test; alone it needs CVO_RING=outer")
	}
}
