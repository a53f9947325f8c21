package mirror_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/mirror"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// Registries that do not know or do not allow what others do are mirrored to and from nevertheless.
func TestPeculiarRegistries(t *testing.T) {
	method := func(method, path string) func(*http.Request) bool {
		match := fixture.MatchPath(path)
		return func(r *http.Request) bool { return r.Method == method && match(r) }
	}
	for _, tt := range []struct {
		name   string
		same   bool
		source fixture.Fault
		target fixture.Fault
	}{
		{name: "asks a target that knows no HEAD by GET", target: fixture.Fault{Match: method("HEAD", "/manifests/"), Status: http.StatusMethodNotAllowed}},
		{name: "sends blobs to a target that knows no HEAD", target: fixture.Fault{Match: method("HEAD", "/blobs/"), Status: http.StatusMethodNotAllowed}},
		{name: "sends blobs to a registry that refuses to mount them", same: true, target: fixture.Fault{
			Match:  func(r *http.Request) bool { return r.URL.Query().Get("mount") != "" },
			Status: http.StatusForbidden,
		}},
		{name: "goes without referrers", source: fixture.Fault{Match: fixture.MatchPath("/referrers/"), Status: http.StatusNotFound}},
		{name: "goes without lists of tags", source: fixture.Fault{Match: fixture.MatchPath("/tags/list"), Status: http.StatusUnauthorized}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
			if tt.same {
				target = source
			}
			p := publish(t, source, "1.0.0", 3)
			signer, err := fixture.NewKeySigner()
			require.NoError(t, err)
			require.NoError(t, signer.Attach(t.Context(), p.image))
			if tt.source.Match != nil {
				source.AddFault(tt.source)
			}
			remove := func() {}
			if tt.target.Match != nil {
				remove = target.AddFault(tt.target)
			}
			copied(t, p.image.Pullspec, repository(t, target), mirror.Options{})
			copied(t, p.image.Pullspec, repository(t, target), mirror.Options{})
			remove()
			requireComplete(t, p, inRegistry(target))
			require.NoError(t, verifiesAt(t, signer, inRegistry(target)(p.image.Digest), p.image.Digest))
		})
	}
}

func TestLookingForSignaturesCostsLittle(t *testing.T) {
	const n = 12
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", n)
	copied(t, p.image.Pullspec, repository(t, target), mirror.Options{})
	assert.Equal(t, 2, source.Count("GET", "/tags/list"), "one for each repository")
	assert.Zero(t, source.Count("GET", `/manifests/sha256-`), "no tag is asked for that is not there")
	assert.Equal(t, documents(n), source.Count("GET", "/referrers/"))
}

func TestUnclearSignaturesAreToldOnce(t *testing.T) {
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 4)
	source.AddFault(fixture.Fault{Match: fixture.MatchPath("/components/referrers/"), Status: http.StatusForbidden})
	var warnings []string
	copied(t, p.image.Pullspec, repository(t, target), mirror.Options{Warn: func(w string) { warnings = append(warnings, w) }})
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "component-000 and 3 more: signatures may be missing at the target")
	requireComplete(t, p, inRegistry(target))
}

func TestTagOfTheReleaseIsPutLast(t *testing.T) {
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 3)
	list := func(tag string) []mirror.Image {
		images := reader(t)
		r, err := mirror.Read(t.Context(), images, p.image, false)
		require.NoError(t, err)
		found, err := r.Images(t.Context(), access(), images, uncached(t), mirror.Destination{To: repository(t, target), Tag: tag})
		require.NoError(t, err)
		return found
	}
	first, err := mirror.New(t.Context(), list("")[:1], mirror.Options{})
	require.NoError(t, err)
	_, err = first.Copy(t.Context())
	require.NoError(t, err, "the release image alone")

	target.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/again-component-001"), Status: http.StatusBadRequest})
	second, err := mirror.New(t.Context(), list("again-${component}"), mirror.Options{Attempts: 1})
	require.NoError(t, err)
	target.Reset()
	_, err = second.Copy(t.Context())
	require.Error(t, err)
	assert.Zero(t, target.Count("PUT", "/manifests/again-release$"), "who finds the tag finds all of the release")
}

func TestNamesThatLeadElsewhere(t *testing.T) {
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 1)
	for _, tag := range []string{"../../other/manifests/x", "a/b", "a b", ".a", strings.Repeat("x", 129), "a?b", "a:b"} {
		for _, to := range []mirror.Target{repository(t, target), mirror.NewLayout(t.TempDir())} {
			_, err := mirror.New(t.Context(), []mirror.Image{{Name: "odd", From: sourceOf(t, p.image), Digest: p.image.Digest, To: to, Tag: tag}}, mirror.Options{})
			require.ErrorContains(t, err, "odd: ", tag)
			require.ErrorContains(t, err, "cannot be a tag", tag)
		}
	}
	assert.Empty(t, target.Requests())
}

func sourceOf(t *testing.T, img release.Image) *image.Repository {
	t.Helper()
	from, err := reader(t).Repository(img)
	require.NoError(t, err)
	return from
}
