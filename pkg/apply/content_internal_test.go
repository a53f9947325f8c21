package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// TestFormVersion fails when one and the same manifest is sent in another form than before: clusters that have the old
// form would keep it until the manifest changes. Raise formVersion then, and put the version and the new sum here.
func TestFormVersion(t *testing.T) {
	const version, want = 1, "5def41b8c0be5f0a9866a9ae947f6abf8fa5259d513ca1c1cc172968cc992429"
	a := New(&Connection{}, nil, Owner{Name: "version", UID: "u", ApplySet: "set"}).WithInjection(Injection{
		Proxy: Proxy{HTTP: "http://proxy.example.com"}, TLS: TLS{MinVersion: "VersionTLS12", CipherSuites: []string{"A"}},
	})
	files, err := filepath.Glob("testdata/*.yaml") // sorted
	require.NoError(t, err)
	sum := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		list, err := manifest.Parse("0000_10_a_01.yaml", data, manifest.Limits{})
		require.NoError(t, err, file)
		for _, m := range list {
			body, err := a.body(m, true)
			require.NoError(t, err, m.ID())
			require.NoError(t, json.NewEncoder(sum).Encode(body))
		}
	}
	assert.Equal(t, want, hex.EncodeToString(sum.Sum(nil)))
	assert.Equal(t, version, formVersion)
}
