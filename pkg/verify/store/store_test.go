package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/store"
	"github.com/cluster-version/cvo/test/fixture/signing"
)

const digest, otherDigest = signing.Digest, signing.OtherDigest

// Short names for functions that make keys and messages.
var (
	today = signing.Today

	newEntity, claim, sign = signing.NewEntity, signing.Claim, signing.Sign
)

// listOf returns a function that lists the given ConfigMaps.
func listOf(maps ...store.ConfigMapData) func(context.Context) ([]store.ConfigMapData, error) {
	return func(context.Context) ([]store.ConfigMapData, error) { return maps, nil }
}

func TestConfigMapsAreReadInOrder(t *testing.T) {
	hex := digest.Hex()
	maps := []store.ConfigMapData{
		{Namespace: "n", Name: "b", BinaryData: map[string][]byte{"sha256-" + hex + "-10": []byte("ten"), "sha256-" + hex + "-2": []byte("two")}},
		{Namespace: "n", Name: "a", BinaryData: map[string][]byte{
			"sha256-" + hex: []byte("plain"), "sha256-" + hex + "-0": []byte("zero"), "sha256-" + hex + "-1": nil,
			"sha256-" + hex + "0": []byte("longer digest"), "sha256-" + hex + "-x": []byte("no number"),
			"sha256-" + hex + "-1-1": []byte("two numbers"), "sha256-" + otherDigest.Hex() + "-1": []byte("other digest"),
		}},
	}
	opened := store.NewConfigMaps(listOf(maps...))
	assert.Equal(t, []string{
		"a[sha256-" + hex + "]=plain", "a[sha256-" + hex + "-0]=zero", "b[sha256-" + hex + "-2]=two", "b[sha256-" + hex + "-10]=ten",
	}, collect(t, opened))
	assert.Equal(t, "ConfigMaps in openshift-config-managed", opened.String())

	broken := store.NewConfigMaps(func(context.Context) ([]store.ConfigMapData, error) { return nil, errors.New("forbidden") })
	assert.Equal(t, []string{"error: listing ConfigMaps: forbidden"}, collect(t, broken))
}

func TestFolderReadsSignaturesUntilOneIsMissing(t *testing.T) {
	dir := t.TempDir()
	path := func(n int) string { return filepath.Join(dir, store.Path(digest, n)) }
	require.NoError(t, os.MkdirAll(filepath.Dir(path(1)), 0o755))
	require.NoError(t, os.WriteFile(path(1), []byte("one"), 0o600))
	require.NoError(t, os.WriteFile(path(2), nil, 0o600))
	require.NoError(t, os.Mkdir(path(3), 0o755))
	require.NoError(t, os.WriteFile(path(4), make([]byte, openpgp.MaxSignatureSize+1), 0o600))
	require.NoError(t, os.WriteFile(path(5), []byte("five"), 0o600))
	require.NoError(t, os.WriteFile(path(7), []byte("seven"), 0o600))
	opened, err := store.Open("file://"+dir, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"signature-1=one", "error: signature-3: not a regular file", "error: signature-4: larger than 51200 bytes",
		"signature-5=five",
	}, collect(t, opened))
	assert.Empty(t, collect(t, store.NewFolder(filepath.Join(dir, "missing"))))
}

func TestInvalidStoreURLsAreRejected(t *testing.T) {
	for url, want := range map[string]string{
		"ftp://x/y":         `scheme "ftp"`,
		"signatures":        `scheme ""`,
		"http:///x":         "has no host",
		"file://host/x":     "not an absolute path",
		"https://[::1":      "reading signature store",
		"file:relative/dir": "not an absolute path",
	} {
		_, err := store.Open(url, nil)
		assert.ErrorContains(t, err, want, url)
	}
}
