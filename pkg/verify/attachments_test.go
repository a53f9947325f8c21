package verify_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	registryimage "github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/pkg/verify/store"
	"github.com/cluster-version/cvo/test/fixture"
)

//threat:no-signature-none
func TestSigstoreNamesTheKeysIfNothingIsSigned(t *testing.T) {
	trust := policy.Policy{SigstoreKeys: []sigstore.PublicKey{publicKey(t, "team", newKey(t, "P-256"))}}
	_, err := newVerifier(t, trust, verify.Sources{Attachments: attachments{}}).Verify(t.Context(), image())
	require.EqualError(t, err, "unable to verify "+string(digest)+" against public keys: team; signatures attached to the image: no signature found"+
		"; its publisher signs it with 'cvo release sign', see https://github.com/cluster-version/cvo/blob/main/docs/user/signatures.md")
	_, err = newVerifier(t, trust, verify.Sources{Attachments: attachments{err: errors.New("registry: 401")}}).Verify(t.Context(), image())
	require.ErrorContains(t, err, "signatures attached to the image: registry: 401")
}

// TestMissingImageIsReportedAsSuch has no signature and no image. An unreachable registry shows nothing about the image.
func TestMissingImageIsReportedAsSuch(t *testing.T) {
	reg := fixture.StartRegistry(t)
	reader, err := registryimage.New(registryimage.Options{Access: registry.New(registry.Options{Insecure: []string{reg.Host()}})})
	require.NoError(t, err)
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "a", newEntity(t, "alice"))}}
	verify := func(pullspec string, messages ...[]byte) error {
		sources := verify.Sources{Local: []store.Store{memory{name: "memory", messages: messages}}, Exist: reader.Exist}
		_, err := newVerifier(t, trust, sources).Verify(t.Context(), release.Image{Pullspec: pullspec, Digest: digest})
		return err
	}
	err = verify(reg.Host() + "/platform/release@" + string(digest))
	require.ErrorContains(t, err, "unable to verify "+string(digest)+" against keyrings: a; the image does not exist: ")
	require.ErrorContains(t, err, "registry "+reg.Host()+" has no "+string(digest)+" in platform/release: check the pullspec")
	assert.NotContains(t, err.Error(), "cvo release sign")
	err = verify(reg.Host()+"/platform/release@"+string(digest), sign(t, newEntity(t, "bob"), claim(digest)))
	assert.NotContains(t, err.Error(), "does not exist", "an image with a signature is not looked up")
	err = verify("127.0.0.1:1/platform/release@" + string(digest))
	require.ErrorContains(t, err, "cvo release sign")
	assert.NotContains(t, err.Error(), "does not exist")
}

// TestSigstoreNamesTheFailingRegistry checks that the error names the registry and the remedy but not the local port.
func TestSigstoreNamesTheFailingRegistry(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	host := listener.Addr().String()
	require.NoError(t, listener.Close())
	reader, err := registryimage.New(registryimage.Options{Access: registry.New(registry.Options{Backoff: time.Millisecond})})
	require.NoError(t, err)
	trust := policy.Policy{SigstoreKeys: []sigstore.PublicKey{publicKey(t, "team", newKey(t, "P-256"))}}
	_, err = newVerifier(t, trust, verify.Sources{Attachments: reader}).Verify(t.Context(), release.Image{Pullspec: host + "/a/b:1", Digest: digest})
	require.ErrorIs(t, err, verify.ErrUnverified)
	require.ErrorContains(t, err, "; signatures attached to the image: registry "+host+" cannot be reached: check that it is running")
	assert.Regexp(t, "dial tcp "+host+": connect: connection refused \\(\\d+ attempts\\)$", err.Error())
}

// TestUnknownSignaturesOfADeadRegistryAreReported has a registry that does not respond before the limit of the search.
func TestUnknownSignaturesOfADeadRegistryAreReported(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	host := listener.Addr().String()
	reader, err := registryimage.New(registryimage.Options{Access: registry.New(registry.Options{Insecure: []string{host}})})
	require.NoError(t, err)
	keys := []sigstore.PublicKey{publicKey(t, "team", newKey(t, "P-256"))}
	keyrings := []openpgp.Keyring{keyring(t, "a", newEntity(t, "alice"))}
	sources := verify.Sources{Local: []store.Store{memory{name: "memory"}}, Attachments: reader, StoreTimeout: time.Second}
	refusal := func(trust policy.Policy) *verify.UnverifiedError {
		_, err := newVerifier(t, trust, sources).Verify(t.Context(), release.Image{Pullspec: host + "/a/b", Digest: digest})
		require.ErrorIs(t, err, verify.ErrUnverified)
		require.ErrorContains(t, err, "signatures attached to the image: registry "+host+" does not respond in time: check the load")
		require.ErrorContains(t, err, "no answer within 1s")
		refused, _ := errors.AsType[*verify.UnverifiedError](err)
		return refused
	}
	require.ErrorContains(t, refusal(policy.Policy{SigstoreKeys: keys}).Inaccessible, "registry "+host+" does not respond in time")
	assert.NoError(t, refusal(policy.Policy{SigstoreKeys: keys, Keyrings: keyrings}).Inaccessible, "a signature is certainly missing")
}

// late yields its signatures after the deadline of the search.
type late struct{ attachments }

func (l late) Attachments(ctx context.Context, image release.Image) iter.Seq2[release.Attachment, error] {
	<-ctx.Done()
	return l.attachments.Attachments(ctx, image)
}

func TestSignatureThatWasReadCounts(t *testing.T) {
	key := newKey(t, "P-256")
	trust := policy.Policy{SigstoreKeys: []sigstore.PublicKey{publicKey(t, "team", key)}}
	signed := late{attachments{found: []release.Attachment{tagged(t, key, simpleSigning(digest))}}}
	_, err := newVerifier(t, trust, verify.Sources{Attachments: signed, StoreTimeout: time.Nanosecond}).Verify(t.Context(), image())
	require.NoError(t, err)
}

func TestBothMethodsMustBeSatisfied(t *testing.T) {
	alice, key := newEntity(t, "alice"), newKey(t, "P-256")
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "vendor", alice)}, SigstoreKeys: []sigstore.PublicKey{publicKey(t, "team", key)}}
	local := []store.Store{memory{name: "memory", messages: [][]byte{sign(t, alice, claim(digest))}}}
	none := []store.Store{memory{name: "memory"}}
	signed := attachments{found: []release.Attachment{tagged(t, key, simpleSigning(digest))}}

	evidence, err := newVerifier(t, trust, verify.Sources{Local: local, Attachments: signed}).Verify(t.Context(), image())
	require.NoError(t, err)
	require.Len(t, evidence, 2)
	_, err = newVerifier(t, trust, verify.Sources{Local: local, Attachments: attachments{}}).Verify(t.Context(), image())
	require.ErrorContains(t, err, "against public keys: team;")
	_, err = newVerifier(t, trust, verify.Sources{Local: none, Attachments: signed}).Verify(t.Context(), image())
	require.ErrorContains(t, err, "against keyrings: vendor;")
	_, err = newVerifier(t, trust, verify.Sources{Local: none, Attachments: attachments{}}).Verify(t.Context(), image())
	require.ErrorContains(t, err, "against keyrings: vendor and public keys: team;")
}

//threat:claims-openpgp-signature
func FuzzClaim(f *testing.F) {
	f.Add(claim(digest))
	f.Add(simpleSigning(digest))
	f.Add(claim(digest) + "x")
	alice := newEntity(f, "alice")
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(f, "k", alice)}}
	f.Fuzz(func(t *testing.T, body string) {
		// The signer signs any body, so only a claim about the digest may be accepted.
		if _, err := check(t, trust, sign(t, alice, body)); err == nil {
			assert.Contains(t, body, digest.Hex())
		}
	})
}

// TestSignaturesAreFoundInARegistry uses a fixture that writes signatures independently of the code under test.
func TestSignaturesAreFoundInARegistry(t *testing.T) {
	signer, err := fixture.NewKeySigner()
	require.NoError(t, err)
	public, err := signer.PublicKey()
	require.NoError(t, err)
	trust, err := policy.Parse("team.pub", public)
	require.NoError(t, err)
	reader, err := registryimage.New(registryimage.Options{})
	require.NoError(t, err)
	for name, attach := range map[string]func(context.Context, release.Image) error{"tag": signer.Attach, "referrer": signer.AttachReferrer} {
		t.Run("it finds a signature attached by "+name, func(t *testing.T) {
			img, err := fixture.PushRelease(t.Context(), fixture.StartRegistry(t), fstest.MapFS{
				"release-manifests/release-metadata": {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`)},
				"release-manifests/image-references": {Data: []byte(`{}`)},
			}, "platform/release:1.2.3")
			require.NoError(t, err)
			v := newVerifier(t, trust, verify.Sources{Attachments: reader})
			_, err = v.Verify(t.Context(), img)
			require.ErrorIs(t, err, verify.ErrUnverified)
			require.NoError(t, attach(t.Context(), img))
			_, err = v.Verify(t.Context(), img)
			require.NoError(t, err)
		})
	}
}

// mirrored pushes one release to a mirror and to a source. It returns the image at the source, its copy at the mirror, and a function that
// returns a reader of the registries at the source's host.
func mirrored(t *testing.T, mirror, source *fixture.Registry) (img, copied release.Image, reader func(source string) *registryimage.Reader) {
	t.Helper()
	push := func(to *fixture.Registry) release.Image {
		pushed, err := fixture.PushRelease(t.Context(), to, fstest.MapFS{
			"release-manifests/release-metadata": {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`)},
			"release-manifests/image-references": {Data: []byte(`{}`)},
		}, "platform/release:1.2.3")
		require.NoError(t, err)
		return pushed
	}
	img, copied = push(source), push(mirror)
	require.Equal(t, img.Digest, copied.Digest)
	return img, copied, func(source string) *registryimage.Reader {
		set, err := mirrorset.New(&configv1.ImageDigestMirrorSet{Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{
			{Source: source + "/platform", Mirrors: []configv1.ImageMirror{configv1.ImageMirror(mirror.Host() + "/platform")}},
		}}})
		require.NoError(t, err)
		reader, err := registryimage.New(registryimage.Options{Access: registry.New(registry.Options{Mirrors: set})})
		require.NoError(t, err)
		return reader
	}
}

func keySigner(t *testing.T) (*fixture.KeySigner, policy.Policy) {
	t.Helper()
	signer, err := fixture.NewKeySigner()
	require.NoError(t, err)
	public, err := signer.PublicKey()
	require.NoError(t, err)
	trust, err := policy.Parse("team.pub", public)
	require.NoError(t, err)
	return signer, trust
}

// TestSignatureOfTheMirrorSufficesIfTheSourceIsSilent has a disconnected cluster, whose firewall drops packets to the source.
//
//threat:source-silent
func TestSignatureOfTheMirrorSufficesIfTheSourceIsSilent(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	silent := listener.Addr().String()
	signer, trust := keySigner(t)
	for name, attach := range map[string]func(context.Context, release.Image) error{"tag": signer.Attach, "referrer": signer.AttachReferrer} {
		t.Run("it accepts a signature attached by "+name, func(t *testing.T) {
			mirror, source := fixture.StartRegistry(t), fixture.StartRegistry(t)
			_, copied, reader := mirrored(t, mirror, source)
			require.NoError(t, attach(t.Context(), copied))
			requested := release.Image{Pullspec: silent + "/platform/release@" + string(copied.Digest), Digest: copied.Digest}
			sources := verify.Sources{Attachments: reader(silent), StoreTimeout: time.Hour}
			// The silent source would take an hour. The test ends early only because the verifier does not ask it.
			_, err := newVerifier(t, trust, sources).Verify(t.Context(), requested)
			require.NoError(t, err)

			other, _ := keySigner(t)
			require.NoError(t, other.Attach(t.Context(), copied))
			_, otherTrust := keySigner(t)
			sources.StoreTimeout = 2 * time.Second
			_, err = newVerifier(t, otherTrust, sources).Verify(t.Context(), requested)
			require.ErrorContains(t, err, copied.Repository()+":sha256-"+copied.Digest.Hex()+".sig: team: not signed with this key")
			require.ErrorContains(t, err, "registry "+silent+" does not respond in time")
		})
	}
}

// TestSignatureOfTheSourceSufficesIfTheMirrorHasOthers has a mirror that was filled before the team signed the release, or a hostile one.
//
//threat:mirror-worthless-signatures
func TestSignatureOfTheSourceSufficesIfTheMirrorHasOthers(t *testing.T) {
	signer, trust := keySigner(t)
	worthless, _ := keySigner(t)
	for name, attach := range map[string]func(context.Context, release.Image) error{"tag": worthless.Attach, "referrer": worthless.AttachReferrer} {
		for _, n := range []int{1, 65} {
			t.Run(fmt.Sprintf("it ignores %d worthless signatures attached by %s", n, name), func(t *testing.T) {
				mirror, source := fixture.StartRegistry(t), fixture.StartRegistry(t)
				img, copied, reader := mirrored(t, mirror, source)
				for range n {
					require.NoError(t, attach(t.Context(), copied))
				}
				require.NoError(t, signer.Attach(t.Context(), img))
				evidence, err := newVerifier(t, trust, verify.Sources{Attachments: reader(source.Host())}).Verify(t.Context(), img)
				require.NoError(t, err)
				require.Contains(t, evidence[0].Store, img.Repository())
			})
		}
	}
}

// TestNoRequestFollowsASufficientSignature counts the requests of a verification.
func TestNoRequestFollowsASufficientSignature(t *testing.T) {
	signer, trust := keySigner(t)
	mirror, source := fixture.StartRegistry(t), fixture.StartRegistry(t)
	img, copied, reader := mirrored(t, mirror, source)
	require.NoError(t, signer.Attach(t.Context(), copied))
	require.NoError(t, signer.Attach(t.Context(), img))
	mirror.Reset()
	source.Reset()
	_, err := newVerifier(t, trust, verify.Sources{Attachments: reader(source.Host())}).Verify(t.Context(), img)
	require.NoError(t, err)
	assert.Len(t, mirror.Requests(), 3, "a ping, the tag, the signature")
	assert.Empty(t, source.Requests())
}
