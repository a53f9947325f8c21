package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/registry"
)

// FuzzParsePullSecret checks that the credentials of one registry are never found for another.
func FuzzParsePullSecret(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `[]`, `null`, `{"auths": null}`, `{"auths": {"": {}}}`, `{"auths": {"quay.example": {"auth": "YTpi"}}}`,
		`{"auths": {"https://quay.example/v2/": {"username": "a", "password": "b"}, "quay.example/ns": {"identitytoken": "x"}}}`,
		`{"auths": {"/": {"auth": "YTpi"}, "://": {"auth": "YTpi"}, "//quay.example": {"auth": "YTpi"}, ":443": {"auth": "YTpi"}}}`,
		`{"auths": {"quay.example": {"auth": "Og=="}}, "credHelpers": {"quay.example": "x"}, "credsStore": "y"}`,
		`{"auths": {"quay.example.": {"auth": "YTpi"}, "*.example": {"auth": "YTpi"}, "x@quay.example": {"auth": "YTpi"}}}`,
	} {
		f.Add([]byte(seed))
	}
	other, err := name.NewRepository("other.test:5000/ns/repo")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		secret, err := registry.ParsePullSecret(data)
		if err != nil {
			return
		}
		found, err := secret.Resolve(other)
		if err == nil && found != authn.Anonymous {
			if !strings.Contains(string(data), `\`) { // a name may be escaped
				assert.Contains(t, strings.ToLower(string(data)), "other.test:5000")
			}
		}
	})
}

// FuzzParseMirrorSets checks that what is accepted gives candidates that can be asked, each once, the source at most
// once and never where it is forbidden.
func FuzzParseMirrorSets(f *testing.F) {
	f.Add([]byte(mirrorSets), "quay.example/ns/repo:1")
	for _, seed := range []string{
		"", "null", "[]", "---\n---", "{apiVersion: v1, kind: List, items: null}", "a: &a [*a, *a]",
		"{apiVersion: config.openshift.io/v1, kind: ImageDigestMirrorSet, spec: {imageDigestMirrors: [{source: '*.example', mirrors: [a, b/c, 'd:1']}]}}",
		"{apiVersion: config.openshift.io/v1, kind: ImageTagMirrorSet, spec: {imageTagMirrors: [{source: docker.io, mirrors: [docker.io/x, index.docker.io/y]}]}}",
		"{apiVersion: config.openshift.io/v1, kind: ImageDigestMirrorSetList, items: [1]}",
	} {
		f.Add([]byte(seed), "quay.example:5000/ns/repo"+anyDigest)
		f.Add([]byte(seed), "busybox")
	}
	f.Fuzz(func(t *testing.T, data []byte, pullspec string) {
		objects, err := registry.ParseMirrorSets(data)
		if err != nil {
			return
		}
		sets, err := registry.NewMirrors(objects...)
		if err != nil {
			return
		}
		access := registry.New(registry.Options{Mirrors: sets})
		ref, err := access.Reference(pullspec)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, candidate := range access.Candidates(ref) {
			assert.Equal(t, ref.Identifier(), candidate.Identifier())
			assert.False(t, seen[candidate.Name()], "%s is asked twice", candidate)
			seen[candidate.Name()] = true
			_, err := name.NewRepository(candidate.Context().RepositoryStr())
			assert.NoError(t, err)
		}
	})
}

// FuzzReference checks that what is read is written the same, and that no pullspec leads into an insecure registry that
// was not listed.
func FuzzReference(f *testing.F) {
	for _, seed := range []string{
		"", "busybox", "quay.example/ns/repo:1", "quay.example:5000/ns/repo" + anyDigest, "[::1]:5000/a:b", "10.0.0.1/a", "localhost/a",
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
