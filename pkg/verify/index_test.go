package verify_test

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	registryimage "github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

// Of an image for several architectures, the index and each platform's image are signed for themselves: a signature of
// one does not count for another, wherever somebody puts it.
func TestIndexAndPlatform(t *testing.T) {
	s := newSigstore(t)
	signer := ci(t, s)
	bare, err := fixture.NewSigstoreSigner()
	require.NoError(t, err)
	key, err := verify.NewPublicKey("team", bare.PublicKey())
	require.NoError(t, err)
	keyless := verify.Authority{Name: "ci", TrustRoot: trustIn(t, s), Identities: byWorkflow()}
	for _, test := range []struct {
		name   string
		policy verify.Policy
		sign   func(release.Image) (release.Attachment, error)
	}{
		{"a key, classic", verify.Policy{SigstoreKeys: []verify.PublicKey{key}}, func(img release.Image) (release.Attachment, error) {
			return s.Classic(bare, []byte(simpleSigning(img.Digest)), fixture.SigstoreForm{Unlogged: true})
		}},
		{"a key, as a bundle", verify.Policy{SigstoreKeys: []verify.PublicKey{key}}, func(img release.Image) (release.Attachment, error) {
			return s.Statement(bare, []byte(statement(img.Digest, verify.SignPredicate)), fixture.SigstoreForm{Unlogged: true})
		}},
		{"a certificate, classic", verify.Policy{Authorities: []verify.Authority{keyless}}, func(img release.Image) (release.Attachment, error) {
			return s.Classic(signer, []byte(simpleSigning(img.Digest)), fixture.SigstoreForm{})
		}},
		{"a certificate, as a bundle", verify.Policy{Authorities: []verify.Authority{keyless}}, func(img release.Image) (release.Attachment, error) {
			return s.Statement(signer, []byte(statement(img.Digest, verify.SignPredicate)), fixture.SigstoreForm{})
		}},
	} {
		for _, signIndex := range []bool{true, false} {
			one := "the index"
			if !signIndex {
				one = "the platform's image"
			}
			t.Run("it takes a signature of "+one+" for nothing else: "+test.name, func(t *testing.T) {
				reader, err := registryimage.New(registryimage.Options{})
				require.NoError(t, err)
				index, platform := pushIndex(t)
				signed, unsigned := index, platform
				if !signIndex {
					signed, unsigned = platform, index
				}
				v := newVerifier(t, test.policy, verify.Sources{Attachments: reader})
				attachment, err := test.sign(signed)
				require.NoError(t, err)
				require.NoError(t, fixture.PushAttachment(t.Context(), signed, attachment))
				require.NoError(t, fixture.PushAttachment(t.Context(), unsigned, attachment), "somebody replays it")
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
