package store_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

//threat:signature-stores-lie
func TestFolderDoesNotFollowLinksOutside(t *testing.T) {
	base := t.TempDir()
	secret := filepath.Join(base, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	opened := filepath.Join(base, "store")
	path := func(n int) string { return filepath.Join(opened, store.Path(digest, n)) }
	require.NoError(t, os.MkdirAll(filepath.Dir(path(1)), 0o755))
	require.NoError(t, os.Symlink(secret, path(1)))
	require.NoError(t, os.Symlink("../../secret", path(2)))
	require.NoError(t, syscall.Mkfifo(path(3), 0o600))
	require.NoError(t, os.Symlink("signature-5", path(4)))
	require.NoError(t, os.WriteFile(path(5), []byte("five"), 0o600))
	huge, err := os.Create(path(6))
	require.NoError(t, err)
	require.NoError(t, huge.Truncate(1<<40)) // A sparse file of a terabyte.
	require.NoError(t, huge.Close())

	assert.Equal(t, []string{
		"error: signature-1: openat sha256=" + digest.Hex() + "/signature-1: path escapes from parent",
		"error: signature-2: openat sha256=" + digest.Hex() + "/signature-2: path escapes from parent",
		"error: signature-3: not a regular file",
		"signature-4=five", "signature-5=five",
		"error: signature-6: larger than 51200 bytes",
	}, collect(t, store.NewFolder(opened)))
}

func TestFolderRejectsInvalidDigests(t *testing.T) {
	base := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(base, "store", "sha256="), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(base, "signature-1"), []byte("outside"), 0o600))
	// Callers pass only valid digests, but even an invalid one must not lead out of the folder.
	for _, d := range []release.Digest{"sha256:/../..", "sha256:../../"} {
		for sig, err := range store.NewFolder(filepath.Join(base, "store")).Signatures(t.Context(), d) {
			assert.Error(t, err, "found %s", sig.Location)
		}
	}
}

func TestFileInPlaceOfAFolderIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	got := collect(t, store.NewFolder(file))
	require.Len(t, got, 1)
	assert.Contains(t, got[0], "not a directory")
}
