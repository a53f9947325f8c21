package payload_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestKubernetesVersions(t *testing.T) {
	const key = `cvo.cluster-version.github.io/kubernetes-versions`
	for _, tt := range []struct {
		name, metadata, want string
		readable             bool
	}{
		{name: "it is a range", metadata: key + `: ">=1.30.0 <1.38.0"`, want: ">=1.30.0 <1.38.0", readable: true},
		{name: "it may be left out", metadata: `url: https://example.com`},
		{name: "it is kept if it is no range", metadata: key + `: "1.30 and up"`, want: "1.30 and up"},
		{name: "it is kept if it is a number", metadata: key + `: 1.30`, want: "1.3"},
		{name: "it is kept if it is a list", metadata: key + `: [1.30.0]`, want: "[1.30.0]"},
		{name: "it is not forgotten if it is empty", metadata: key + `: ""`, want: `""`},
		{name: "it is not forgotten if it is null", metadata: key + `:`, want: `<nil>`},
		{name: "it is cut if it is long", metadata: key + `: "` + strings.Repeat(">=1.0.0 ", 1000) + `"`, want: strings.Repeat(">=1.0.0 ", 1000)[:257]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := payload.ParseMetadata([]byte("kind: cincinnati-metadata-v0\nversion: 1.0.0\nmetadata:\n  " + tt.metadata + "\n"))
			require.NoError(t, err)
			r, warnings := m.Release("example.com/r")
			assert.Empty(t, warnings)
			assert.Equal(t, tt.want, r.Kubernetes)
			_, err = release.ParseKubernetesRange(r.Kubernetes)
			assert.Equal(t, tt.readable, err == nil, "%v", err)
		})
	}
}
