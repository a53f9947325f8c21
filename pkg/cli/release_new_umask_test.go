package cli_test

import (
	"syscall"
	"testing"
)

// setUmask sets the umask of the whole process until the test ends.
func setUmask(t *testing.T, mask int) {
	t.Helper()
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}
