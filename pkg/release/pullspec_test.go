package release_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/release"
)

func TestPullspecIsSplit(t *testing.T) {
	for _, tt := range []struct {
		name, pullspec, repository, tag string
		digest                          release.Digest
	}{
		{"splits a tag", "registry.example/a/b:1", "registry.example/a/b", "1", ""},
		{"splits a digest", "registry.example/a/b@" + hash, "registry.example/a/b", "", hash},
		{"splits a tag and a digest", "registry.example/a:1@" + hash, "registry.example/a", "1", hash},
		{"distinguishes a port from a tag", "127.0.0.1:5000/a", "127.0.0.1:5000/a", "", ""},
		{"splits a port and a tag", "127.0.0.1:5000/a:1", "127.0.0.1:5000/a", "1", ""},
		{"accepts an IPv6 address", "[::1]:5000/a:1", "[::1]:5000/a", "1", ""},
		{"accepts a bare name", "a", "a", "", ""},
		{"accepts an empty text", "", "", "", ""},
		{"treats an empty digest as none", "registry.example/a@", "registry.example/a", "", ""},
		{"keeps a malformed digest in the repository", "registry.example/a@b@c", "registry.example/a", "", "b@c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := release.Pullspec(tt.pullspec)
			assert.Equal(t, tt.repository, p.Repository())
			assert.Equal(t, tt.tag, p.Tag())
			assert.Equal(t, tt.digest, p.Digest())
			assert.Equal(t, tt.digest != "", p.HasDigest())
			assert.Equal(t, release.Pullspec(tt.repository+"@sha256:0"), p.WithDigest("sha256:0"))
		})
	}
}

func TestSameImageComparesDigestsFirst(t *testing.T) {
	other := strings.Replace(hash, "e", "f", 1)
	for _, tt := range []struct {
		name string
		a, b string
		want bool
	}{
		{"equal digests match in any registry", "registry.example/a@" + hash, "mirror.example/b:1@" + hash, true},
		{"another digest is another image", "registry.example/a@" + hash, "registry.example/a@" + other, false},
		{"tags compare as text", "registry.example/a:1", "registry.example/a:1", true},
		{"a tag is not its digest", "registry.example/a:1", "registry.example/a:1@" + hash, false},
		{"empty digests prove nothing", "registry.example/a@", "registry.example/b@", false},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, release.SameImage(tt.a, tt.b)) })
	}
}

func TestPullspecsAreFoundInAText(t *testing.T) {
	image := "registry.example:5000/a/b@" + hash
	for _, tt := range []struct {
		name, text string
		want       map[int]release.Pullspec
	}{
		{"finds one in an argument", "--image=" + image + ",x", map[int]release.Pullspec{8: release.Pullspec(image)}},
		{"finds several", image + "\n" + image, map[int]release.Pullspec{0: release.Pullspec(image), len(image) + 1: release.Pullspec(image)}},
		{"ignores a digest without a name", "@" + hash + " x", map[int]release.Pullspec{}},
		{"ignores a digest that is too short", image[:len(image)-1], map[int]release.Pullspec{}},
		{"ignores a digest that is too long", image + "0", map[int]release.Pullspec{}},
		{"does not use a preceding digest as a name", image + "g@" + hash, map[int]release.Pullspec{0: release.Pullspec(image), len(image): release.Pullspec("g@" + hash)}},
		{"finds nothing in a text without pullspecs", "a: b", map[int]release.Pullspec{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, maps.Collect(release.Pullspecs(tt.text)))
		})
	}
	for range release.Pullspecs(image + " " + image) {
		break // a caller may stop early
	}
}
