package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry"
)

// FuzzReference checks that a parsed reference prints as it was written, and that no pullspec selects an insecure registry that is not
// listed.
//
//threat:pullspecs-digests
func FuzzReference(f *testing.F) {
	for _, seed := range []string{
		"", "busybox", "quay.example/ns/repo:1", "quay.example:5000/ns/repo@sha256:" + strings.Repeat("0123456789abcdef", 4), "[::1]:5000/a:b", "10.0.0.1/a", "localhost/a",
		"http://quay.example/a", "quay.example/../a", "user@quay.example/a", "quay.example/a:b:c", "quay.example//a", "a@sha256:0", "🐙/a", "\x00",
	} {
		f.Add(seed)
	}
	access := registry.New(registry.Options{Insecure: []string{"insecure.test"}})
	f.Fuzz(func(t *testing.T, pullspec string) {
		ref, err := access.Reference(pullspec)
		if err != nil {
			return
		}
		again, err := access.Reference(ref.Name())
		require.NoError(t, err)
		assert.Equal(t, ref.Name(), again.Name())
		assert.Equal(t, []name.Reference{ref}, access.Candidates(ref))
		plain, err := name.ParseReference(pullspec)
		require.NoError(t, err)
		if host := ref.Context().RegistryStr(); host != "insecure.test" && !strings.HasPrefix(host, "insecure.test:") {
			assert.Equal(t, plain.Context().Scheme(), ref.Context().Scheme())
		}
	})
}
