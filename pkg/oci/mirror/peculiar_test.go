package mirror_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestMirrorUsesPeculiarRegistries covers registries that lack or deny common features.
func TestMirrorUsesPeculiarRegistries(t *testing.T) {
	method := func(method, path string) func(*http.Request) bool {
		match := fixture.MatchPath(path)
		return func(r *http.Request) bool { return r.Method == method && match(r) }
	}
	for _, tt := range []struct {
		name        string
		same        bool
		source      fixture.Fault
		destination fixture.Fault
	}{
		{name: "uses GET if the target does not support HEAD", destination: fixture.Fault{Match: method("HEAD", "/manifests/"), Status: http.StatusMethodNotAllowed}},
		{name: "sends blobs if the target does not support HEAD", destination: fixture.Fault{Match: method("HEAD", "/blobs/"), Status: http.StatusMethodNotAllowed}},
		{name: "sends blobs if the registry refuses to mount them", same: true, destination: fixture.Fault{
			Match:  func(r *http.Request) bool { return r.URL.Query().Get("mount") != "" },
			Status: http.StatusForbidden,
		}},
		{name: "works without the referrers API", source: fixture.Fault{Match: fixture.MatchPath("/referrers/"), Status: http.StatusNotFound}},
		{name: "works without listing tags", source: fixture.Fault{Match: fixture.MatchPath("/tags/list"), Status: http.StatusUnauthorized}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
			if tt.same {
				destination = source
			}
			p := publish(t, source, "1.0.0", 3)
			signer, err := fixture.NewKeySigner()
			require.NoError(t, err)
			require.NoError(t, signer.Attach(t.Context(), p.image))
			if tt.source.Match != nil {
				source.AddFault(tt.source)
			}
			remove := func() {}
			if tt.destination.Match != nil {
				remove = destination.AddFault(tt.destination)
			}
			copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{})
			copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{})
			remove()
			requireComplete(t, p, inRegistry(destination))
			require.NoError(t, verifiesAt(t, signer, inRegistry(destination)(p.image.Digest), p.image.Digest))
		})
	}
}

// TestRejectedUploadsNameTheRemedies has a target that answers uploads with 404: a registry in which repositories must be created, one that has
// forgotten an upload, or an ingress whose registry is down meanwhile.
func TestRejectedUploadsNameTheRemedies(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
		p := publish(t, source, "1.0.0", 1)
		destination.AddFault(fixture.Fault{
			Match:  func(r *http.Request) bool { return r.Method == method },
			Status: http.StatusNotFound,
		})
		plan, _, err := planOf(t, p.image.Pullspec, targetAt(t, destination), false, mirror.Options{})
		require.NoError(t, err)
		_, err = plan.Copy(t.Context())
		require.ErrorContains(t, err, "registry "+destination.Host()+" does not accept this content in "+mirrorRepository+": check that the registry still runs, "+
			"create the repository if the registry requires that, or run the command again if the upload was dropped", method)
		assert.NotErrorIs(t, err, failure.ErrNotFound, "no image is missing")
	}
}

func TestSignatureSearchNeedsFewRequests(t *testing.T) {
	const n = 12
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", n)
	copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{})
	assert.Equal(t, 2, source.Count("GET", "/tags/list"), "one list for each repository")
	assert.Zero(t, source.Count("GET", `/manifests/sha256-`), "missing tags are not requested")
	assert.Equal(t, documents(n), source.Count("GET", "/referrers/"))
}

func TestIncompleteSignatureSearchWarnsOnce(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 4)
	source.AddFault(fixture.Fault{Match: fixture.MatchPath("/components/referrers/"), Status: http.StatusForbidden})
	var warnings []string
	copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{Warn: func(w string) { warnings = append(warnings, w) }})
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "component-000 and 3 more: signatures may be missing at the target")
	requireComplete(t, p, inRegistry(destination))
}

func TestTagOfTheReleaseIsWrittenLast(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 3)
	list := func(tag string) []mirror.Image {
		images := reader(t)
		r, err := mirror.Read(t.Context(), images, p.image, false)
		require.NoError(t, err)
		found, err := r.Images(t.Context(), access(), images, uncached(t), mirror.Destination{To: targetAt(t, destination), Tag: tag})
		require.NoError(t, err)
		return found
	}
	first, err := mirror.New(t.Context(), list("")[:1], mirror.Options{})
	require.NoError(t, err)
	_, err = first.Copy(t.Context())
	require.NoError(t, err, "copying only the release image")

	destination.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/again-component-001"), Status: http.StatusBadRequest})
	second, err := mirror.New(t.Context(), list("again-${component}"), mirror.Options{Attempts: 1})
	require.NoError(t, err)
	destination.Reset()
	_, err = second.Copy(t.Context())
	require.Error(t, err)
	assert.Zero(t, destination.Count("PUT", "/manifests/again-release$"), "the tag must not exist before the release is complete")
}

func TestNamesOutOfTheMirrorAreRejected(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 1)
	for _, tag := range []string{"../../other/manifests/x", "a/b", "a b", ".a", strings.Repeat("x", 129), "a?b", "a:b"} {
		for _, to := range []mirror.Target{targetAt(t, destination), target.NewLayout(t.TempDir())} {
			_, err := mirror.New(t.Context(), []mirror.Image{{Name: "odd", From: sourceOf(t, p.image), Digest: p.image.Digest, To: to, Tag: tag}}, mirror.Options{})
			require.ErrorContains(t, err, "odd: ", tag)
			require.ErrorContains(t, err, "cannot be a tag", tag)
		}
	}
	assert.Empty(t, destination.Requests())
}

func sourceOf(t *testing.T, img release.Image) *repository.Repository {
	t.Helper()
	from, err := reader(t).Repository(img)
	require.NoError(t, err)
	return from
}
