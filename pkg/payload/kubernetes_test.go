package payload_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestKubernetesRangeIsReadFromMetadata(t *testing.T) {
	const key = `cvo.cluster-version.github.io/kubernetes-versions`
	for _, tt := range []struct {
		name, metadata, want string
		readable             bool
	}{
		{name: "reads a range", metadata: key + `: ">=1.30.0 <1.38.0"`, want: ">=1.30.0 <1.38.0", readable: true},
		{name: "accepts a missing range", metadata: `url: https://example.com`},
		{name: "keeps an invalid range", metadata: key + `: "1.30 and up"`, want: "1.30 and up"},
		{name: "keeps a number", metadata: key + `: 1.30`, want: "1.3"},
		{name: "keeps a list", metadata: key + `: [1.30.0]`, want: "[1.30.0]"},
		{name: "keeps an empty value", metadata: key + `: ""`, want: `""`},
		{name: "keeps null", metadata: key + `:`, want: `<nil>`},
		{name: "truncates a long value", metadata: key + `: "` + strings.Repeat(">=1.0.0 ", 1000) + `"`, want: strings.Repeat(">=1.0.0 ", 1000)[:257]},
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
