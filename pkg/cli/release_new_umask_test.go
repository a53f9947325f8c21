//go:build unix

package cli

import (
	"syscall"
	"testing"
)

// setUmask changes what new files are closed to, for all of the process, until the test ends.
func setUmask(t *testing.T, mask int) {
	t.Helper()
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}
