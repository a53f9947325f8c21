package layout_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

const (
	fuzzManifest = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",` +
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":2,"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},` +
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","size":1,"digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","annotations":{"a":"b"},"urls":["https://x"]}],` +
		`"subject":{"mediaType":"x","size":1,"digest":"sha256:1111111111111111111111111111111111111111111111111111111111111111"},"artifactType":"x","annotations":{"Config":"x"}}`
)

const fuzzIndex = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[` +
	`{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000",` +
	`"platform":{"architecture":"arm64","os":"linux","os.version":"1","os.features":["x"],"variant":"v8"},"annotations":{"org.opencontainers.image.ref.name":"1.0.0"}},` +
	`{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":"sha256:1111111111111111111111111111111111111111111111111111111111111111","artifactType":"x"}]}`

//threat:index-oci-layout
func FuzzIndex(f *testing.F) {
	for _, seed := range append(fixture.HostileJSON(), fuzzIndex, strings.ReplaceAll(fuzzIndex, `"artifactType":"x"`, `"annotations":{"org.opencontainers.image.ref.name":"sha256-00.sig"}`)) {
		f.Add([]byte(seed), "1.0.0")
		f.Add([]byte(seed), "")
	}
	dir := f.TempDir()
	referrer := document.DigestOf([]byte(fuzzManifest))
	require.NoError(f, os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o700))
	require.NoError(f, os.WriteFile(filepath.Join(dir, "blobs", "sha256", referrer.Hex()), []byte(fuzzManifest), 0o600))
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"`+string(referrer)+`"}]}`), string(referrer))
	f.Fuzz(func(t *testing.T, raw []byte, want string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "index.json"), raw, 0o600))
		reader := layout.NewReader(dir, 4<<20)
		for _, find := range []func() (release.Digest, error){
			func() (release.Digest, error) {
				return reader.Find(want, func(name string) bool { return strings.HasSuffix(name, ".sig") })
			},
			func() (release.Digest, error) { return reader.Resolve(want) },
		} {
			if d, err := find(); err == nil {
				_, err := release.ParseDigest(string(d))
				require.NoError(t, err)
			}
		}
		found, err := reader.Referrers("sha256:1111111111111111111111111111111111111111111111111111111111111111")
		if err != nil {
			require.True(t, errors.Is(err, failure.ErrIntegrity) || errors.Is(err, failure.ErrLimit), err)
		}
		for _, desc := range found {
			require.Equal(t, string(referrer), desc.Digest.String())
		}
	})
}
