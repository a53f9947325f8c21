package document_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/test/fixture"
)

const (
	fuzzManifest = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",` +
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":2,"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},` +
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","size":1,"digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","annotations":{"a":"b"},"urls":["https://x"]}],` +
		`"subject":{"mediaType":"x","size":1,"digest":"sha256:1111111111111111111111111111111111111111111111111111111111111111"},"artifactType":"x","annotations":{"Config":"x"}}`
	fuzzIndex = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[` +
		`{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000",` +
		`"platform":{"architecture":"arm64","os":"linux","os.version":"1","os.features":["x"],"variant":"v8"},"annotations":{"org.opencontainers.image.ref.name":"1.0.0"}},` +
		`{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":"sha256:1111111111111111111111111111111111111111111111111111111111111111","artifactType":"x"}]}`
	fuzzConfig = `{"architecture":"amd64","os":"linux","created":"2024-01-01T00:00:00Z","config":{"Labels":{"io.openshift.release":"1.0.0"},"Env":["A=b"],` +
		`"ExposedPorts":{"80/tcp":{}},"Entrypoint":["x"]},"rootfs":{"type":"layers","diff_ids":["sha256:0000000000000000000000000000000000000000000000000000000000000000"]},"history":[{"created_by":"x"}]}`
)

//threat:manifests-images-indexes
func FuzzDocument(f *testing.F) {
	for _, seed := range append(fixture.HostileJSON(), fuzzManifest, fuzzIndex) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := document.Parse(raw)
		if err != nil {
			require.True(t, errors.Is(err, failure.ErrIntegrity) || errors.Is(err, failure.ErrLimit), err)
			return
		}
		require.Equal(t, document.DigestOf(raw), doc.Digest)
		require.NotEmpty(t, doc.MediaType)
		require.NotEqual(t, doc.IsIndex(), doc.Layers != nil)
		// A decoder with case-sensitive names sees the same document.
		var spelled map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &spelled))
		for name, length := range map[string]int{"layers": len(doc.Layers), "manifests": len(doc.Manifests)} {
			var list []json.RawMessage
			if text, ok := spelled[name]; ok {
				require.NoError(t, json.Unmarshal(text, &list))
			}
			require.Len(t, list, length)
		}
		for _, desc := range append(doc.Layers, doc.Manifests...) {
			if digest, err := document.Content(desc, 1<<20); err == nil {
				require.Equal(t, desc.Digest.String(), string(digest))
				require.LessOrEqual(t, desc.Size, int64(1<<20))
			}
		}
	})
}

//threat:configuration-image
func FuzzConfig(f *testing.F) {
	for _, seed := range append(fixture.HostileJSON(), fuzzConfig, strings.Replace(fuzzConfig, `"config"`, `"Config"`, 1)) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := document.CheckJSON(raw, nil); err != nil {
			require.True(t, errors.Is(err, failure.ErrIntegrity) || errors.Is(err, failure.ErrLimit), err)
			return
		}
		require.True(t, json.Valid(raw))
		config, err := v1.ParseConfigFile(bytes.NewReader(raw))
		if err == nil {
			require.NotNil(t, config)
		}
	})
}
