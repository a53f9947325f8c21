package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
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

// hostileJSON are texts that readers of JSON may understand differently.
var hostileJSON = []string{
	`{}`, `[]`, `null`, `"x"`, ``, `{`, `{"layers":null}`, `{"layers":[null]}`, `{"manifests":[],"layers":[]}`, `{"layers":[],"layers":[]}`, `{"layers":[],"LAYERS":[]}`,
	`{"layer` + "\u017f" + `":[]}`, "\ufeff" + `{"layers":[]}`, `{"layers":[]}{}`, `{"layers":[],"config":{"size":1e99}}`, `{"layers":[],"config":{"size":-1,"digest":"sha256:x"}}`,
	`{"layers":{}}`, `{"layers":[{"data":"!"}]}`, `{"\u006cayers":[],"layers":[]}`, "{\"layers\":[],\"\xff\":1}", strings.Repeat(`[`, 100), strings.Repeat(`{"a":`, 100),
}

func FuzzDocument(f *testing.F) {
	for _, seed := range append(hostileJSON, fuzzManifest, fuzzIndex) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := parseDocument(raw)
		if err != nil {
			require.True(t, errors.Is(err, ErrIntegrity) || errors.Is(err, ErrLimit), err)
			return
		}
		require.Equal(t, digestOf(raw), doc.Digest)
		require.NotEmpty(t, doc.MediaType)
		require.NotEqual(t, doc.IsIndex(), doc.Layers != nil)
		// Somebody who takes names as they are spelled sees the same document.
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
			if digest, err := content(desc, 1<<20); err == nil {
				require.Equal(t, desc.Digest.String(), string(digest))
				require.LessOrEqual(t, desc.Size, int64(1<<20))
			}
		}
		_, _ = (&Reader{}).choose(doc.Manifests)
	})
}

func FuzzLayoutIndex(f *testing.F) {
	for _, seed := range append(hostileJSON, fuzzIndex, strings.ReplaceAll(fuzzIndex, `"artifactType":"x"`, `"annotations":{"org.opencontainers.image.ref.name":"sha256-00.sig"}`)) {
		f.Add([]byte(seed), "1.0.0")
		f.Add([]byte(seed), "")
	}
	dir := f.TempDir()
	referrer := digestOf([]byte(fuzzManifest))
	require.NoError(f, os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o700))
	require.NoError(f, os.WriteFile(filepath.Join(dir, "blobs", "sha256", referrer.Hex()), []byte(fuzzManifest), 0o600))
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"`+string(referrer)+`"}]}`), string(referrer))
	f.Fuzz(func(t *testing.T, raw []byte, want string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "index.json"), raw, 0o600))
		place := newLayoutPlace(dir, Limits{}.WithDefaults())
		for _, find := range []func() (release.Digest, error){
			func() (release.Digest, error) { return place.image(want) },
			func() (release.Digest, error) { return place.resolve(t.Context(), want) },
		} {
			if d, err := find(); err == nil {
				_, err := release.ParseDigest(string(d))
				require.NoError(t, err)
			}
		}
		found, err := place.referrers(t.Context(), "sha256:1111111111111111111111111111111111111111111111111111111111111111")
		if err != nil {
			require.True(t, errors.Is(err, ErrIntegrity) || errors.Is(err, ErrLimit), err)
		}
		for _, desc := range found {
			require.Equal(t, string(referrer), desc.Digest.String())
		}
	})
}

func FuzzConfig(f *testing.F) {
	for _, seed := range append(hostileJSON, fuzzConfig, strings.Replace(fuzzConfig, `"config"`, `"Config"`, 1)) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := checkJSON(raw, nil); err != nil {
			require.True(t, errors.Is(err, ErrIntegrity) || errors.Is(err, ErrLimit), err)
			return
		}
		require.True(t, json.Valid(raw))
		config, err := v1.ParseConfigFile(bytes.NewReader(raw))
		if err == nil {
			require.NotNil(t, config)
		}
	})
}
