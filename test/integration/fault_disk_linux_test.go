package integration_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// smallDisk is a folder on a disk of its own, of so many bytes; false for whoever may not mount. Root may, so that this is
// not left out where tests have to run.
func smallDisk(t *testing.T, size int) (dir string, ok bool) {
	t.Helper()
	dir = t.TempDir()
	if os.Geteuid() != 0 {
		return dir, false
	}
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir, true
}
