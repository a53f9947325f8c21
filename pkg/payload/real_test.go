package payload_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/fixture"
)

// realOptions are those under which the original counts 983 and 1005 manifests: default profile and feature set, no
// feature gate, every capability.
func realOptions() payload.Options {
	return payload.Options{Filter: manifest.Filter{Capabilities: manifest.AllCapabilities(nil)}}
}

func loadReal(t testing.TB, version string, opts payload.Options) *payload.Payload {
	t.Helper()
	dir := filepath.Join(fixture.Testdata(t), "payloads", version)
	p, err := payload.Load(os.DirFS(dir), "registry.example/release:"+version, opts)
	require.NoError(t, err)
	return p
}

func TestRealReleaseCounts(t *testing.T) {
	for _, tt := range []struct {
		version           string
		included, total int
	}{
		{"4.22.9", 983, 0},
		{"4.23.0", 1004, 0},
	} {
		t.Run(tt.version, func(t *testing.T) {
			p := loadReal(t, tt.version, realOptions())
			assert.Len(t, p.Manifests, tt.included)
			assert.Equal(t, tt.total, len(p.Manifests)+len(p.Excluded))
			t.Log(p.Hash, p.Warnings, p.Release, p.Created, len(p.References))
		})
	}
}
