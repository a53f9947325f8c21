package location_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/oci/registry/location"
)

func TestLoopbackHostsAreRecognized(t *testing.T) {
	for _, host := range []string{"localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000", "::1", "x.localhost:80"} {
		assert.True(t, location.IsLoopback(host), host)
	}
	for _, host := range []string{"localhost.example", "10.0.0.1", "registry.example:127"} {
		assert.False(t, location.IsLoopback(host), host)
	}
}

func TestDockerHubHasOneName(t *testing.T) {
	for given, want := range map[string]string{
		"Quay.Example/ns/repo": "quay.example/ns/repo", "quay.example:5000": "quay.example:5000",
		"index.docker.io/library/busybox": "docker.io/library/busybox", "registry-1.docker.io": "docker.io",
	} {
		assert.Equal(t, want, location.Normalize(given))
	}
}

func TestHostMatchesEachOfItsPorts(t *testing.T) {
	assert.True(t, location.Matches("quay.example", "quay.example:5000"), "a host without a port matches every port")
	assert.True(t, location.Matches("quay.example:5000", "quay.example:5000"))
	assert.False(t, location.Matches("quay.example:5000", "quay.example"))
	assert.False(t, location.Matches("quay.example", "eu.quay.example"))
}
