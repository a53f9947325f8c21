package verify_test

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	registryimage "github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

// TestIndexAndPlatformsAreSignedSeparately checks that the index and the platform images of a multi-architecture image need separate
// signatures. A signature of one does not count for another, wherever it is stored.
//
//threat:signature-one-platform
func TestIndexAndPlatformsAreSignedSeparately(t *testing.T) {
	s := newSigstore(t)
	signer := ci(t, s)
	bare, err := sigstoretest.NewSigner()
	require.NoError(t, err)
	key, err := sigstore.NewPublicKey("team", bare.PublicKey())
	require.NoError(t, err)
	keyless := sigstore.Authority{Name: "ci", TrustRoot: trustIn(t, s), Identities: byWorkflow()}
	for _, test := range []struct {
		name  string
		trust policy.Policy
		sign  func(release.Image) (release.Attachment, error)
	}{
		{"a key, classic", policy.Policy{SigstoreKeys: []sigstore.PublicKey{key}}, func(img release.Image) (release.Attachment, error) {
			return s.Classic(bare, []byte(simpleSigning(img.Digest)), sigstoretest.Form{Unlogged: true})
		}},
		{"a key, as a bundle", policy.Policy{SigstoreKeys: []sigstore.PublicKey{key}}, func(img release.Image) (release.Attachment, error) {
			return s.Statement(bare, []byte(statement(img.Digest, sigstore.SignPredicate)), sigstoretest.Form{Unlogged: true})
		}},
		{"a certificate, classic", policy.Policy{Authorities: []sigstore.Authority{keyless}}, func(img release.Image) (release.Attachment, error) {
			return s.Classic(signer, []byte(simpleSigning(img.Digest)), sigstoretest.Form{})
		}},
		{"a certificate, as a bundle", policy.Policy{Authorities: []sigstore.Authority{keyless}}, func(img release.Image) (release.Attachment, error) {
			return s.Statement(signer, []byte(statement(img.Digest, sigstore.SignPredicate)), sigstoretest.Form{})
		}},
	} {
		for _, signIndex := range []bool{true, false} {
			one := "the index"
			if !signIndex {
				one = "the platform's image"
			}
			t.Run("it accepts a signature of "+one+" only for it: "+test.name, func(t *testing.T) {
				reader, err := registryimage.New(registryimage.Options{})
				require.NoError(t, err)
				index, platform := pushIndex(t)
				signed, unsigned := index, platform
				if !signIndex {
					signed, unsigned = platform, index
				}
				v := newVerifier(t, test.trust, verify.Sources{Attachments: reader})
				attachment, err := test.sign(signed)
				require.NoError(t, err)
				require.NoError(t, fixture.PushAttachment(t.Context(), signed, attachment))
				require.NoError(t, fixture.PushAttachment(t.Context(), unsigned, attachment), "an attacker replays it")
				_, err = v.Verify(t.Context(), signed)
				require.NoError(t, err)
				_, err = v.Verify(t.Context(), unsigned)
				require.ErrorIs(t, err, verify.ErrUnverified)
				require.ErrorContains(t, err, "about")
			})
		}
	}
}

// pushIndex pushes an image for two platforms and returns the index and one of its images.
func pushIndex(t *testing.T) (index, platform release.Image) {
	t.Helper()
	registry := fixture.StartRegistry(t)
	content, err := random.Index(64, 1, 2)
	require.NoError(t, err)
	tag, err := name.NewTag(registry.Host()+"/platform/release:2.0.0", name.Insecure)
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(tag, content, remote.WithContext(t.Context())))
	digest, err := content.Digest()
	require.NoError(t, err)
	manifest, err := content.IndexManifest()
	require.NoError(t, err)
	repository := tag.Context().Name()
	return release.Image{Pullspec: tag.String(), Digest: release.Digest(digest.String())},
		release.Image{Pullspec: repository + "@" + manifest.Manifests[0].Digest.String(), Digest: release.Digest(manifest.Manifests[0].Digest.String())}
}
