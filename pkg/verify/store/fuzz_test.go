package store_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/store"
)

//threat:signature-configmaps
func FuzzConfigMapData(f *testing.F) {
	good := sign(f, newEntity(f, "alice"), claim(digest))
	for _, key := range []string{
		store.ConfigMapKey(digest, 0), store.ConfigMapKey(digest, 9), "sha256-" + digest.Hex(), "sha256-" + digest.Hex() + "-", "sha256--1",
		"sha256-" + digest.Hex() + "-01", "sha256-" + digest.Hex() + "-99999999999999999999", "sha512-1", "",
	} {
		f.Add(key, good)
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		data := map[string][]byte{key: value, store.ConfigMapKey(otherDigest, 0): good}
		kept := store.ReadManaged(data)
		written := kept.BinaryData()
		assert.Contains(t, written, store.ConfigMapKey(otherDigest, 0))
		assert.Equal(t, written, store.ReadManaged(written).BinaryData())
		for sig, err := range store.NewConfigMaps(listOf(store.ConfigMapData{Name: "c", BinaryData: data})).Signatures(t.Context(), digest) {
			require.NoError(t, err)
			assert.Equal(t, value, sig.Message)
			assert.True(t, strings.HasPrefix(key, "sha256-"+digest.Hex()))
		}
	})
}

//threat:addresses-stores
func FuzzStoreURL(f *testing.F) {
	for _, u := range []string{
		"https://signatures.example/x", " http://h:1/a?b=c#d ", "file:///srv/signatures", "file://localhost/a", "file:a", "//h/x", "https://user:pw@h/%2e%2e/", "ftp://h", "https://[::1]:0/",
	} {
		f.Add(u)
	}
	// No request leaves the process.
	client := &http.Client{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
	})}
	f.Fuzz(func(t *testing.T, rawURL string) {
		opened, err := store.Open(rawURL, client)
		if err != nil {
			return
		}
		if name := opened.String(); strings.HasPrefix(name, "file:") {
			return // Fuzzing must not read files of this machine.
		}
		for _, err := range opened.Signatures(t.Context(), digest) {
			assert.Error(t, err)
		}
	})
}
