package mirror_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// platforms is an image for two platforms, with the attestation of its build.
type platforms struct {
	source      *fixture.Registry
	content     v1.ImageIndex
	index       release.Image
	attestation v1.Hash
	arm64       v1.Hash
}

func newPlatforms(t *testing.T) platforms {
	t.Helper()
	p := platforms{source: fixture.StartRegistry(t)}
	hash := func(img v1.Image) v1.Hash {
		digest, err := img.Digest()
		require.NoError(t, err)
		return digest
	}
	amd64, arm64, attestation := componentImage(t, 1, "amd64"), componentImage(t, 2, "arm64"), componentImage(t, 3, "unknown")
	p.arm64, p.attestation = hash(arm64), hash(attestation)
	p.content = mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: amd64, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: arm64, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: attestation, Descriptor: v1.Descriptor{
			Platform:    &v1.Platform{OS: "unknown", Architecture: "unknown"},
			Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": hash(amd64).String()},
		}},
	)
	p.index = pushIndex(t, p.content, p.source.Host()+"/"+componentRepository+":two")
	return p
}

// lacks makes the source respond as if it did not have a manifest, until restore.
func (p platforms) lacks(digest v1.Hash) (restore func()) {
	return p.source.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/" + digest.String()), Status: http.StatusNotFound})
}

// lacksBlobs makes the source respond as if it had none of the blobs that only this image has.
func (p platforms) lacksBlobs(t *testing.T, digest v1.Hash) {
	t.Helper()
	img, err := p.content.Image(digest)
	require.NoError(t, err)
	content, err := img.Manifest()
	require.NoError(t, err)
	for _, blob := range []v1.Descriptor{content.Config, content.Layers[2]} {
		p.source.AddFault(fixture.Fault{Match: fixture.MatchPath("/blobs/" + blob.Digest.String()), Status: http.StatusNotFound})
	}
}

// mirror copies the image and returns the warnings.
func (p platforms) mirror(t *testing.T, to mirror.Target) (warnings []string, err error) {
	t.Helper()
	opts := mirror.Options{Attempts: 1, Warn: func(w string) { warnings = append(warnings, w) }}
	images := []mirror.Image{{Name: "dns", From: sourceOf(t, p.index), Digest: p.index.Digest, To: to, Tag: "dns"}}
	plan, err := mirror.New(t.Context(), images, opts)
	if err == nil {
		_, err = plan.Copy(t.Context())
	}
	return warnings, err
}

func TestMissingAttestationIsOmitted(t *testing.T) {
	p, dir := newPlatforms(t), t.TempDir()
	p.lacks(p.attestation)
	to := target.NewLayout(dir)
	warnings, err := p.mirror(t, to)
	require.NoError(t, err)
	require.NoError(t, to.Close())
	assert.Equal(t, []string{"dns: not copying attestation " + p.attestation.String() + " of index " + string(p.index.Digest) + ": its source does not have it"}, warnings)
	assertPlatforms(t, p, dir)
}

// TestRegistryThatAcceptsAnIncompleteIndexGetsIt mirrors to a registry that accepts the index. It has the attestation, but denies that it does.
func TestRegistryThatAcceptsAnIncompleteIndexGetsIt(t *testing.T) {
	p, destination := newPlatforms(t), fixture.StartRegistry(t)
	repository := destination.Host() + "/" + mirrorRepository
	require.NoError(t, crane.Copy(p.source.Host()+"/"+componentRepository+"@"+p.attestation.String(), repository+"@"+p.attestation.String()))
	for _, registry := range []*fixture.Registry{p.source, destination} {
		registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/" + p.attestation.String()), Status: http.StatusNotFound})
	}
	for range 2 { // a second run reports the same
		warnings, err := p.mirror(t, targetAt(t, destination))
		require.NoError(t, err)
		assert.Equal(t, []string{"dns: not copying attestation " + p.attestation.String() + " of index " + string(p.index.Digest) + ": its source does not have it"}, warnings)
	}
	digest, err := crane.Digest(repository + ":dns")
	require.NoError(t, err)
	assert.Equal(t, string(p.index.Digest), digest)
	for _, architecture := range []string{"amd64", "arm64"} {
		_, err := crane.Pull(repository+":dns", crane.WithPlatform(&v1.Platform{OS: "linux", Architecture: architecture}))
		require.NoError(t, err)
	}
}

func TestAttestationWithMissingBlobsIsOmitted(t *testing.T) {
	p, dir := newPlatforms(t), t.TempDir()
	p.lacksBlobs(t, p.attestation)
	for range 2 { // a second run reports the same
		to := target.NewLayout(dir)
		warnings, err := p.mirror(t, to)
		require.NoError(t, err)
		require.NoError(t, to.Close())
		require.Len(t, warnings, 1)
		assert.Contains(t, warnings[0], "dns: not copying attestation "+p.attestation.String()+" of index "+string(p.index.Digest)+": its source does not have blob sha256:")
	}
	assertPlatforms(t, p, dir)
}

func TestMissingBlobsOfAPlatformAreAnError(t *testing.T) {
	p := newPlatforms(t)
	p.lacksBlobs(t, p.arm64)
	warnings, err := p.mirror(t, target.NewLayout(t.TempDir()))
	require.ErrorContains(t, err, "copying blob sha256:")
	assert.Empty(t, warnings)
}

// assertPlatforms asserts that a folder has both platforms.
func assertPlatforms(t *testing.T, p platforms, dir string) {
	t.Helper()
	require.NoError(t, p.source.Close())
	for _, architecture := range []string{"amd64", "arm64"} {
		images, err := image.New(image.Options{Access: access(), Platform: "linux/" + architecture})
		require.NoError(t, err)
		repository, err := images.Repository(release.Image{Pullspec: inFolder(dir)(p.index.Digest), Digest: p.index.Digest})
		require.NoError(t, err)
		doc, err := repository.Image(t.Context(), p.index.Digest)
		require.NoError(t, err)
		config, err := repository.Config(t.Context(), doc)
		require.NoError(t, err)
		assert.Contains(t, string(config), architecture)
	}
}

// TestMissingAttestationIsReportedForEachIndex mirrors an index that lists the attestation in a nested index too.
func TestMissingAttestationIsReportedForEachIndex(t *testing.T) {
	p := newPlatforms(t)
	inner, outer := p.index, mutate.AppendManifests(p.content, mutate.IndexAddendum{Add: p.content})
	p.index = pushIndex(t, outer, p.source.Host()+"/"+componentRepository+":nested")
	p.lacks(p.attestation)
	to := target.NewLayout(t.TempDir())
	warnings, err := p.mirror(t, to)
	require.NoError(t, err)
	require.NoError(t, to.Close())
	for _, index := range []release.Digest{inner.Digest, p.index.Digest} {
		assert.Contains(t, warnings, "dns: not copying attestation "+p.attestation.String()+" of index "+string(index)+": its source does not have it")
	}
}

func TestMissingPlatformIsNamed(t *testing.T) {
	p := newPlatforms(t)
	p.lacks(p.arm64)
	_, err := p.mirror(t, targetAt(t, fixture.StartRegistry(t)))
	require.ErrorContains(t, err, "dns: index "+string(p.index.Digest)+" lists platform linux/arm64, which its source does not have: ")
}

// A nested index has no platform.
func TestMissingNestedIndexIsNamed(t *testing.T) {
	p := newPlatforms(t)
	inner := p.index.Digest
	p.index = pushIndex(t, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: p.content}), p.source.Host()+"/"+componentRepository+":nested")
	p.source.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/" + string(inner)), Status: http.StatusNotFound})
	_, err := p.mirror(t, targetAt(t, fixture.StartRegistry(t)))
	require.ErrorContains(t, err, "dns: index "+string(p.index.Digest)+" lists index "+string(inner)+", which its source does not have: ")
}

// A platform that a nested index lists is missing there, not in the outer index.
func TestMissingPlatformOfANestedIndexIsNamed(t *testing.T) {
	p := newPlatforms(t)
	inner := p.index.Digest
	p.index = pushIndex(t, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: p.content}), p.source.Host()+"/"+componentRepository+":nested")
	p.lacks(p.arm64)
	_, err := p.mirror(t, targetAt(t, fixture.StartRegistry(t)))
	require.ErrorContains(t, err, "dns: index "+string(inner)+" lists platform linux/arm64, which its source does not have: ")
}

// TestRegistryThatNeedsTheAttestationIsExplained mirrors to registries that accept an index only with all its manifests, and follows the
// remedy in the error.
func TestRegistryThatNeedsTheAttestationIsExplained(t *testing.T) {
	for _, tt := range []struct {
		name string
		// answer is the response to the index. If it is empty, the fixture responds with status 404 and MANIFEST_UNKNOWN.
		answer fixture.Fault
		// want is the description of the answer, with HOST and REPOSITORY for the target.
		want string
	}{
		{name: "status 404", want: "registry HOST accepts an index only with all its manifests: PUT "},
		{name: "status 400 of distribution", want: "registry HOST accepts an index only with all its manifests: PUT ", answer: fixture.Fault{
			Status: http.StatusBadRequest, Body: `{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry","detail":"sha256:…"}]}`,
		}},
		{name: "status 404 for a blob", want: "registry HOST accepts an index only with all its manifests: PUT ", answer: fixture.Fault{
			Status: http.StatusNotFound, Body: `{"errors":[{"code":"BLOB_UNKNOWN","message":"blob unknown to registry"}]}`,
		}},
		{name: "an invalid manifest", want: "writing HOST/REPOSITORY:dns: PUT ", answer: fixture.Fault{
			Status: http.StatusBadRequest, Body: `{"errors":[{"code":"MANIFEST_INVALID","message":"manifest invalid"}]}`,
		}},
	} {
		t.Run("it explains "+tt.name, func(t *testing.T) {
			p, destination := newPlatforms(t), fixture.StartRegistry(t)
			restore := p.lacks(p.attestation)
			removeAnswer := func() {}
			if tt.answer.Status != 0 {
				tt.answer.Match = func(r *http.Request) bool {
					return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/dns")
				}
				removeAnswer = destination.AddFault(tt.answer)
			}
			_, err := p.mirror(t, targetAt(t, destination))
			repository := destination.Host() + "/" + mirrorRepository
			require.ErrorContains(t, err, "writing index "+string(p.index.Digest)+" of dns to "+repository+": the source lacks 1 attestation of this index ("+
				p.attestation.String()+"): copy each from another registry, such as the publisher's, with 'crane copy OTHER@DIGEST "+repository+
				"@DIGEST', and run the command again; or turn off the registry's check, in distribution 3 with validation.manifests.indexes.platforms: none: ")
			require.ErrorContains(t, err, ": "+strings.NewReplacer("HOST", destination.Host(), "REPOSITORY", mirrorRepository).Replace(tt.want))
			for _, wrong := range []string{"\n", "check the pullspec", "mirror the image to this registry", "again to continue"} {
				assert.NotContains(t, err.Error(), wrong)
			}

			removeAnswer()
			restore() // the source plays the other registry
			require.NoError(t, crane.Copy(p.source.Host()+"/"+componentRepository+"@"+p.attestation.String(), repository+"@"+p.attestation.String()))
			p.lacks(p.attestation)
			_, err = p.mirror(t, targetAt(t, destination))
			require.NoError(t, err)
			digest, err := crane.Digest(repository + ":dns")
			require.NoError(t, err)
			assert.Equal(t, string(p.index.Digest), digest)
		})
	}
}

// The registry may have lost a manifest that this run did not write. The next run writes it.
func TestRegistryThatRejectsACompleteIndexIsRetriedByTheNextRun(t *testing.T) {
	p, destination := newPlatforms(t), fixture.StartRegistry(t)
	remove := destination.AddFault(fixture.Fault{
		Match: func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/dns")
		},
		Status: http.StatusBadRequest, Body: `{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry","detail":"sha256:…"}]}`,
	})
	_, err := p.mirror(t, targetAt(t, destination))
	require.ErrorContains(t, err, "1 of 4 manifests are missing; run the command again to continue: writing manifest "+string(p.index.Digest)+" of dns to ")
	require.ErrorContains(t, err, "registry "+destination.Host()+" accepts an index only with all its manifests: PUT ")
	assert.NotContains(t, err.Error(), "the source lacks")

	remove()
	_, err = p.mirror(t, targetAt(t, destination))
	require.NoError(t, err)
}
