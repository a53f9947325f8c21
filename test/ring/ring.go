// Package ring reports in which ring a test runs. An expensive test of many cases of one kind tries a part of them in `make test`, and all in
// `make outer`.
package ring

import "os"

// Outer reports whether a test has the time for all cases: the environment variable CVO_RING is outer, as in `make outer`.
func Outer() bool { return os.Getenv("CVO_RING") == "outer" }
