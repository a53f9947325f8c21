package body

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// TestFormVersionChangesWithTheForm fails if an unchanged manifest results in a different object than before, because clusters with the old
// form would keep it until the manifest changes. If it fails, increment formVersion, and enter the new version and sum here.
func TestFormVersionChangesWithTheForm(t *testing.T) {
	const version, want = 1, "5def41b8c0be5f0a9866a9ae947f6abf8fa5259d513ca1c1cc172968cc992429"
	builder := Builder{Owner: Owner{Name: "version", UID: "u", ApplySet: "set"}, Values: inject.Values{
		Proxy: inject.Proxy{HTTP: "http://proxy.example.com"}, TLS: inject.TLS{MinVersion: "VersionTLS12", CipherSuites: []string{"A"}},
	}}
	files, err := filepath.Glob("../testdata/*.yaml") // sorted
	require.NoError(t, err)
	sum := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		list, err := manifest.Parse("0000_10_a_01.yaml", data, manifest.Limits{})
		require.NoError(t, err, file)
		for _, m := range list {
			object, err := builder.object(m, true)
			require.NoError(t, err, m.ID())
			require.NoError(t, json.NewEncoder(sum).Encode(object))
		}
	}
	assert.Equal(t, want, hex.EncodeToString(sum.Sum(nil)))
	assert.Equal(t, version, formVersion)
}
