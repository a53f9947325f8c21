package credentials_test

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
)

// FuzzParsePullSecret checks that a lookup for one registry never returns the credentials of another.
//
//threat:credentials-leak-mirrors
//threat:pull-secrets
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
		secret, err := credentials.ParsePullSecret(data)
		if err != nil {
			return
		}
		found, err := secret.Resolve(other)
		if err == nil && found != authn.Anonymous {
			if !strings.Contains(string(data), `\`) { // escapes can hide the name
				assert.Contains(t, strings.ToLower(string(data)), "other.test:5000")
			}
		}
	})
}
