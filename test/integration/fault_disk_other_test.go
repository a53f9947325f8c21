//go:build !linux

package integration_test

import "testing"

// smallDisk is a folder like any other.
func smallDisk(t *testing.T, _ int) (dir string, ok bool) {
	t.Helper()
	return t.TempDir(), false
}
