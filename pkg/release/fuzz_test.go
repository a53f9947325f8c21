package release_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/release"
)

// FuzzParseDigest checks that an accepted digest is valid and safe in a path, a tag and a ConfigMap key.
//
//threat:pullspecs-digests
func FuzzParseDigest(f *testing.F) {
	hex := strings.Repeat("0a", 32)
	for _, seed := range []string{"", "sha256:", "sha256:" + hex, "sha256:" + strings.ToUpper(hex), "sha256:" + hex + "\n", "sha512:" + hex, "sha256:../" + hex[3:]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		digest, err := release.ParseDigest(text)
		if err != nil {
			return
		}
		assert.Equal(t, text, string(digest))
		assert.Len(t, digest.Hex(), 64)
		assert.Empty(t, strings.Trim(digest.Hex(), "0123456789abcdef"))
	})
}

// FuzzImage checks that an image has one name by digest, regardless of the tag or digest in the original pullspec.
//
//threat:pullspecs-digests
func FuzzImage(f *testing.F) {
	for _, seed := range []string{"", "a", "registry.example:5000/a:b", "registry.example/a@sha256:0", "a:b@c@d", ":", "@", "//::"} {
		f.Add(seed)
	}
	digest := release.Digest("sha256:" + strings.Repeat("0a", 32))
	f.Fuzz(func(t *testing.T, pullspec string) {
		image := release.Image{Pullspec: pullspec, Digest: digest}
		named := image.ByDigest()
		assert.True(t, strings.HasSuffix(named, "@"+string(digest)))
		assert.Equal(t, 1, strings.Count(named, "@"))
		assert.True(t, strings.HasPrefix(pullspec, image.Repository()))
	})
}
