package release_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
)

const hash = "sha256:e3f12513a4b22a2d7c0e7c9207f52128113758d9d68c7d06b11a0ac7672966f7"

func TestImageByDigestReplacesTheTag(t *testing.T) {
	for _, tt := range []struct{ name, pullspec, want string }{
		{"keeps a port", "127.0.0.1:5000/a/b:tag", "127.0.0.1:5000/a/b@" + hash},
		{"replaces a digest", "quay.example/a@sha256:00", "quay.example/a@" + hash},
		{"drops a tag next to a digest", "quay.example/a:1@sha256:00", "quay.example/a@" + hash},
		{"accepts a bare name with a port", "localhost:5000/a", "localhost:5000/a@" + hash},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, release.Image{Pullspec: tt.pullspec, Digest: hash}.ByDigest())
		})
	}
}

func TestParseDigestRejectsOtherForms(t *testing.T) {
	d, err := release.ParseDigest(hash)
	require.NoError(t, err)
	assert.Equal(t, hash[len("sha256:"):], d.Hex())
	for _, bad := range []string{"", "sha256:", "sha512:" + hash[7:], hash + "0", "sha256:" + "G" + hash[8:], hash[:70] + "/"} {
		_, err := release.ParseDigest(bad)
		assert.Error(t, err, bad)
	}
}

func TestParseModeRejectsUnknownModes(t *testing.T) {
	for _, m := range release.Modes() {
		got, err := release.ParseMode(string(m))
		require.NoError(t, err)
		assert.Equal(t, m, got)
	}
	_, err := release.ParseMode("sideways")
	assert.ErrorContains(t, err, `"sideways"`)
}
