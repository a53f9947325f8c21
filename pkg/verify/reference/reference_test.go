package reference_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/reference"
)

const digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

func TestReferencesAreExpanded(t *testing.T) {
	for _, test := range []struct {
		name string
		want reference.Name
	}{
		{"busybox", reference.Name{Repository: "docker.io/library/busybox"}},
		{"index.docker.io/busybox:1", reference.Name{Repository: "docker.io/library/busybox", Tag: "1"}},
		{"REGISTRY.example:443/a/b@" + digest, reference.Name{Repository: "registry.example/a/b", Digest: digest}},
		{"registry.example:5000/a:1@" + digest, reference.Name{Repository: "registry.example:5000/a", Tag: "1", Digest: digest}},
	} {
		t.Run("it expands "+test.name, func(t *testing.T) {
			got, err := reference.Parse(test.name)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
	for _, name := range []string{"", "a.example/", "a.example/UPPER", "a.example/b:", "a.example/b@sha256:1", "a.example//b", "https://a.example/b", "a.example/b@" + digest + "@" + digest} {
		_, err := reference.Parse(name)
		require.Error(t, err, name)
	}
	got, err := reference.ParsePullspec("a.example/b")
	require.NoError(t, err)
	assert.Equal(t, "latest", got.Tag)
}

func TestScopesAreOrderedFromNarrowToWide(t *testing.T) {
	got, err := reference.Scopes("registry.a.example/b/c:1@" + digest)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"registry.a.example/b/c:1@" + digest, "registry.a.example/b/c@" + digest, "registry.a.example/b/c:1", "registry.a.example/b/c",
		"registry.a.example/b", "registry.a.example", "*.a.example", "*.example",
	}, got)
	for _, scope := range append(got, "localhost:5000/a") {
		assert.True(t, reference.IsScope(scope), scope)
	}
	for _, scope := range []string{"busybox", "https://a.example", "a.*.example", "*", ""} {
		assert.False(t, reference.IsScope(scope), scope)
	}
	assert.True(t, reference.IsRepository("registry.example:5000/a"))
	assert.False(t, reference.IsRepository("registry.example/a:1"))
}
