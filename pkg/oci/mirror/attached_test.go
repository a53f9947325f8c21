package mirror_test

import (
	"net/http"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture"
)

// verifiesAt verifies a sigstore signature of an image in a mirror.
func verifiesAt(t *testing.T, signer *fixture.KeySigner, pullspec string, digest release.Digest) error {
	t.Helper()
	pem, err := signer.PublicKey()
	require.NoError(t, err)
	key, err := sigstore.NewPublicKey("test", pem)
	require.NoError(t, err)
	images := reader(t)
	verifier, err := verify.New(policy.Policy{SigstoreKeys: []sigstore.PublicKey{key}}, verify.Sources{Attachments: images}, clock.RealClock{})
	require.NoError(t, err)
	_, err = verifier.Verify(t.Context(), release.Image{Pullspec: pullspec, Digest: digest})
	return err
}

func TestSignaturesAreCopied(t *testing.T) {
	for _, tt := range []struct {
		name string
		sign func(k *fixture.KeySigner, t *testing.T, img release.Image) error
	}{
		{"copies signatures with tags", func(k *fixture.KeySigner, t *testing.T, img release.Image) error { return k.Attach(t.Context(), img) }},
		{"copies signatures among the referrers", func(k *fixture.KeySigner, t *testing.T, img release.Image) error {
			return k.AttachReferrer(t.Context(), img)
		}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
			p := publish(t, source, "1.0.0", 3)
			signer, err := fixture.NewKeySigner()
			require.NoError(t, err)
			require.NoError(t, tt.sign(signer, t, p.image))
			signed := p.components["component-001"]
			require.NoError(t, tt.sign(signer, t, signed))
			source.Reset()

			dir := t.TempDir()
			result := copied(t, p.image.Pullspec, target.NewLayout(dir), mirror.Options{})
			assert.Equal(t, 2, result.Attached)
			assert.Equal(t, result.Blobs, downloads(source))
			copied(t, dir+":1.0.0-x86_64", targetAt(t, destination), mirror.Options{})
			for name, at := range map[string]func(release.Digest) string{"folder": inFolder(dir), "registry": inRegistry(destination)} {
				require.NoError(t, verifiesAt(t, signer, at(p.image.Digest), p.image.Digest), name)
				require.NoError(t, verifiesAt(t, signer, at(signed.Digest), signed.Digest), name)
				unsigned := p.components["component-000"]
				require.Error(t, verifiesAt(t, signer, at(unsigned.Digest), unsigned.Digest), name)
			}
			destination.Reset()
			again := copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{})
			assert.Equal(t, again.Documents, again.There)
			assert.Zero(t, uploads(destination))
		})
	}
}

//threat:signatures-other-signers
func TestSignaturesOfOthersAreKept(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 1)
	vendor, ours, err := newSigners()
	require.NoError(t, err)
	require.NoError(t, vendor.Attach(t.Context(), p.image))
	copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{})

	t.Run("it updates a tag if the source has more signatures", func(t *testing.T) {
		require.NoError(t, vendor.Attach(t.Context(), p.image), "a second signature")
		destination.Reset()
		copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{})
		assert.Equal(t, 1, destination.Count("PUT", `/manifests/.*\.sig$`))
	})
	t.Run("it keeps signatures that the source lacks", func(t *testing.T) {
		mirrored := release.Image{Pullspec: inRegistry(destination)(p.image.Digest), Digest: p.image.Digest}
		require.NoError(t, ours.Attach(t.Context(), mirrored))
		destination.Reset()
		var warnings []string
		copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{Warn: func(w string) { warnings = append(warnings, w) }})
		assert.Zero(t, uploads(destination))
		require.Len(t, warnings, 1)
		assert.Contains(t, warnings[0], "has signatures that the source lacks")
		require.NoError(t, verifiesAt(t, ours, mirrored.Pullspec, p.image.Digest))
		require.NoError(t, verifiesAt(t, vendor, mirrored.Pullspec, p.image.Digest))
	})
	t.Run("it keeps a folder's signatures that the source lacks", func(t *testing.T) {
		dir := t.TempDir()
		copied(t, inRegistry(destination)(p.image.Digest), target.NewLayout(dir), mirror.Options{})
		copied(t, p.image.Pullspec, target.NewLayout(dir), mirror.Options{})
		require.NoError(t, verifiesAt(t, ours, inFolder(dir)(p.image.Digest), p.image.Digest))
	})
}

func newSigners() (vendor, ours *fixture.KeySigner, err error) {
	if vendor, err = fixture.NewKeySigner(); err != nil {
		return nil, nil, err
	}
	ours, err = fixture.NewKeySigner()
	return vendor, ours, err
}

// TestAttachmentsOfAttachmentsAreCopied covers a signed bill of materials.
func TestAttachmentsOfAttachmentsAreCopied(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 2)
	component := p.components["component-000"]
	materials := attachReferrer(t, component, "application/spdx+json", []byte(`{"spdxVersion": "SPDX-2.3"}`))
	signature := attachReferrer(t, release.Image{Pullspec: component.Pullspec, Digest: materials}, "application/vnd.example.signature", []byte("signed"))
	result := copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{})
	assert.Equal(t, 2, result.Attached)
	for subject, attached := range map[release.Digest]release.Digest{component.Digest: materials, materials: signature} {
		images := reader(t)
		repository, err := images.Repository(release.Image{Pullspec: inRegistry(destination)(subject), Digest: subject})
		require.NoError(t, err)
		found, err := repository.Attached(t.Context(), subject)
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, string(attached), found[0].Digest.String())
	}
}

func TestManifestListsAreCopiedWhole(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 2)
	ref, err := access().Reference(p.image.ByDigest())
	require.NoError(t, err)
	amd64, err := remoteImage(ref)
	require.NoError(t, err)
	other, err := mutate.Config(amd64, v1.Config{Labels: map[string]string{"io.openshift.release": "1.0.0", "for": "arm64"}})
	require.NoError(t, err)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: amd64, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}})
	listed := pushIndex(t, index, source.Host()+"/"+releaseRepository+":1.0.0-multi")

	whole, r, err := planOf(t, listed.Pullspec, targetAt(t, destination), true, mirror.Options{})
	require.NoError(t, err)
	assert.Equal(t, "multi", r.Architecture)
	assert.Equal(t, []release.Digest{listed.Digest}, r.Digests())
	_, err = whole.Copy(t.Context())
	require.NoError(t, err)
	images := reader(t)
	found, err := images.Resolve(t.Context(), destination.Host()+"/"+mirrorRepository+":1.0.0-multi")
	require.NoError(t, err)
	assert.Equal(t, listed.Digest, found.Digest)
	requireComplete(t, p, inRegistry(destination))

	one := fixture.StartRegistry(t)
	plan, r, err := planOf(t, listed.Pullspec, targetAt(t, one), false, mirror.Options{})
	require.NoError(t, err)
	assert.Equal(t, p.image.Digest, r.Digest, "Digest is the platform image's")
	assert.Equal(t, []release.Digest{listed.Digest, p.image.Digest}, r.Digests())
	_, err = plan.Copy(t.Context())
	require.NoError(t, err)
	requireComplete(t, p, inRegistry(one))
}

// TestMissingAttachmentIsReported mirrors an image with an attachment that its registry lists but does not have.
func TestMissingAttachmentIsReported(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 2)
	component := p.components["component-000"]
	gone := attachReferrer(t, component, "application/spdx+json", []byte(`{"spdxVersion": "SPDX-2.3"}`))
	source.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/" + string(gone)), Status: http.StatusNotFound})
	var warnings []string
	result := copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{Warn: func(w string) { warnings = append(warnings, w) }})
	assert.Zero(t, result.Attached)
	assert.Equal(t, []string{"component-000: signatures may be missing at the target: not copying attachment " + string(gone) + " of " +
		string(component.Digest) + ": its registry lists it, but does not have all of it"}, warnings)

	to := targetAt(t, destination)
	_, err := mirror.New(t.Context(), []mirror.Image{ // sequentially
		{Name: "component-000", From: sourceOf(t, component), Digest: component.Digest, To: to}, {Name: "materials", From: sourceOf(t, component), Digest: gone, To: to},
	}, mirror.Options{Width: 1, Warn: func(string) {}})
	require.ErrorIs(t, err, failure.ErrNotFound, "it is not only an attachment")
	require.ErrorContains(t, err, "materials: image "+string(gone))
}
