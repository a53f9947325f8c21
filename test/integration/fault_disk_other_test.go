//go:build !linux

package integration_test

import "testing"

// smallDisk returns an ordinary folder.
func smallDisk(t *testing.T, _ int) (dir string, ok bool) {
	t.Helper()
	return t.TempDir(), false
}
