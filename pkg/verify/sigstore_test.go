package verify_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/options"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	registryimage "github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

// attachments are what a registry keeps beside the image.
type attachments struct {
	found []release.Attachment
	err   error
}

func (a attachments) Attachments(context.Context, release.Image) ([]release.Attachment, error) {
	return a.found, a.err
}

func newKey(t testing.TB, kind string) crypto.Signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch kind {
	case "P-256":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "P-384":
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "RSA":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "Ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	require.NoError(t, err)
	return key
}

func publicKey(t testing.TB, name string, key crypto.Signer) verify.PublicKey {
	t.Helper()
	k, err := verify.NewPublicKey(name, pemOf(t, key))
	require.NoError(t, err)
	return k
}

func pemOf(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	data, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	require.NoError(t, err)
	return data
}

func simpleSigning(d release.Digest) string {
	return fmt.Sprintf(`{"critical":{"identity":{"docker-reference":"registry.example/platform/release"},`+
		`"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":{"any":"thing","timestamp":1772366400}}`, d)
}

// tagged is a signature in cosign's classic form.
func tagged(t testing.TB, key crypto.Signer, payload string) release.Attachment {
	t.Helper()
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	require.NoError(t, err)
	sig, err := signer.SignMessage(strings.NewReader(payload))
	require.NoError(t, err)
	return release.Attachment{
		Store: "registry.example/platform/release:sha256-x.sig", MediaType: verify.SimpleSigningMediaType, Payload: []byte(payload),
		Annotations: map[string]string{verify.SignatureAnnotation: base64.StdEncoding.EncodeToString(sig)},
	}
}

func bundleOf(t testing.TB, content map[string]any) release.Attachment {
	t.Helper()
	content["mediaType"] = verify.BundleMediaType
	content["verificationMaterial"] = map[string]any{"publicKey": map[string]any{"hint": "any"}}
	data, err := json.Marshal(content)
	require.NoError(t, err)
	return release.Attachment{Store: "registry.example/platform/release@sha256:y", MediaType: verify.BundleMediaType, Payload: data}
}

func statement(d release.Digest, predicate string) string {
	return fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`, d.Hex(), predicate)
}

// envelope is a bundle with a signed statement.
func envelope(t testing.TB, key crypto.Signer, body string) release.Attachment {
	t.Helper()
	signer, err := signature.LoadDefaultSigner(key)
	require.NoError(t, err)
	const payloadType = "application/vnd.in-toto+json"
	sig, err := signer.SignMessage(bytes.NewReader(dsse.PAE(payloadType, []byte(body))))
	require.NoError(t, err)
	return bundleOf(t, map[string]any{"dsseEnvelope": map[string]any{
		"payload": []byte(body), "payloadType": payloadType,
		"signatures": []any{map[string]any{"sig": sig}},
	}})
}

// messageBundle is a bundle with a signature over the manifest, given by its digest.
func messageBundle(t testing.TB, sig []byte, d release.Digest) release.Attachment {
	t.Helper()
	sum, err := hex.DecodeString(d.Hex())
	require.NoError(t, err)
	return bundleOf(t, map[string]any{"messageSignature": map[string]any{
		"signature":     sig,
		"messageDigest": map[string]any{"algorithm": "SHA2_256", "digest": sum},
	}})
}

func signDigest(t testing.TB, key crypto.Signer, d release.Digest) []byte {
	t.Helper()
	sum, err := hex.DecodeString(d.Hex())
	require.NoError(t, err)
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	require.NoError(t, err)
	sig, err := signer.SignMessage(nil, options.WithDigest(sum))
	require.NoError(t, err)
	return sig
}

func TestSigstoreAccepts(t *testing.T) {
	for _, kind := range []string{"P-256", "P-384", "RSA", "Ed25519"} {
		key := newKey(t, kind)
		root := publicKey(t, "team", key)
		found := map[string]release.Attachment{
			"simple signing document":       tagged(t, key, simpleSigning(digest)),
			"atomic container signature":    tagged(t, key, claim(digest)),
			"bundle with a statement":       envelope(t, key, statement(digest, verify.SignPredicate)),
			"bundle with message signature": {},
		}
		if kind == "P-256" || kind == "RSA" {
			found["bundle with message signature"] = messageBundle(t, signDigest(t, key, digest), digest)
		} else {
			delete(found, "bundle with message signature")
		}
		for name, attachment := range found {
			t.Run("it accepts a "+name+" by "+kind, func(t *testing.T) {
				noise := release.Attachment{Store: "noise", MediaType: "text/plain", Payload: []byte("x")}
				v := newVerifier(t, verify.Policy{SigstoreKeys: []verify.PublicKey{root}},
					verify.Sources{Attachments: attachments{found: []release.Attachment{noise, attachment}, err: errors.New("a third was broken")}})
				evidence, err := v.Verify(t.Context(), image())
				require.NoError(t, err)
				require.Len(t, evidence, 1)
				assert.Equal(t, "team", evidence[0].Root)
				assert.Equal(t, verify.MethodSigstore, evidence[0].Method)
				assert.Equal(t, root.Fingerprint(), evidence[0].KeyID)
				assert.Len(t, evidence[0].KeyID, 64)
				assert.Equal(t, attachment.Store, evidence[0].Store)
				if attachment.MediaType == verify.SimpleSigningMediaType {
					assert.Equal(t, time.Unix(1772366400, 0).UTC(), evidence[0].SignedAt)
				}
			})
		}
	}
}

func TestSigstoreRefuses(t *testing.T) {
	key, other, ed := newKey(t, "P-256"), newKey(t, "P-256"), newKey(t, "Ed25519")
	good := tagged(t, key, simpleSigning(digest))
	tampered := tagged(t, key, simpleSigning(otherDigest))
	tampered.Payload = edit(t, tampered.Payload, string(otherDigest), string(digest))
	broken := good
	broken.Annotations = map[string]string{verify.SignatureAnnotation: "%"}
	bare := good
	bare.Annotations = nil
	emptySigner, err := signature.LoadDefaultSigner(ed)
	require.NoError(t, err)
	overNothing, err := emptySigner.SignMessage(strings.NewReader(""))
	require.NoError(t, err)

	for _, test := range []struct {
		name       string
		key        crypto.Signer
		attachment release.Attachment
		want       string
	}{
		{"another key", key, tagged(t, other, simpleSigning(digest)), "not signed with this key"},
		{"a document about another digest", key, tagged(t, key, simpleSigning(otherDigest)), "the signed claim is about digest"},
		{"a tampered document", key, tampered, "not signed with this key"},
		{"a document of another type", key, tagged(t, key, strings.Replace(simpleSigning(digest), "cosign ", "", 1)), "of type"},
		{"a document without a name", key, tagged(t, key, strings.Replace(simpleSigning(digest), "registry.example/platform/release", "", 1)), "no docker-reference"},
		{"a signature that is no base64", key, broken, "decoding annotation"},
		{"a document without a signature", key, bare, "no annotation dev.cosignproject.cosign/signature"},
		{"a large document", key, tagged(t, key, strings.Repeat("x", 256<<10+1)), "larger than 262144 bytes"},
		{"a statement about another digest", key, envelope(t, key, statement(otherDigest, verify.SignPredicate)), "the signed statement is not about this digest"},
		{"a statement by another key", key, envelope(t, other, statement(digest, verify.SignPredicate)), "not signed with this key"},
		{"a statement that says something else", key, envelope(t, key, statement(digest, "https://slsa.dev/provenance/v1")), `the signed statement is of type "https://slsa.dev/provenance/v1"`},
		{"a message signature of another digest", key, messageBundle(t, signDigest(t, key, otherDigest), digest), "not signed with this key"},
		{"a message signature that names another digest", key, messageBundle(t, signDigest(t, key, otherDigest), otherDigest), "it is a signature of digest 2222"},
		// sigstore-go checks it against an empty artifact, against which this one is valid.
		{"an Ed25519 message signature", ed, messageBundle(t, overNothing, digest), "cannot be checked against a digest"},
		{"a bundle that is none", key, release.Attachment{Store: "x", MediaType: verify.BundleMediaType, Payload: []byte("{}")}, "reading sigstore bundle"},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			v := newVerifier(t, verify.Policy{SigstoreKeys: []verify.PublicKey{publicKey(t, "team", test.key)}},
				verify.Sources{Attachments: attachments{found: []release.Attachment{test.attachment}}})
			_, err := v.Verify(t.Context(), image())
			require.ErrorIs(t, err, verify.ErrUnverified)
			require.ErrorContains(t, err, "unable to verify "+string(digest)+" against public keys: team; signatures attached to the image: ")
			assert.ErrorContains(t, err, test.want)
		})
	}
}

func TestSigstoreWithoutSignatures(t *testing.T) {
	policy := verify.Policy{SigstoreKeys: []verify.PublicKey{publicKey(t, "team", newKey(t, "P-256"))}}
	_, err := newVerifier(t, policy, verify.Sources{Attachments: attachments{}}).Verify(t.Context(), image())
	require.EqualError(t, err, "unable to verify "+string(digest)+" against public keys: team; signatures attached to the image: no signature found")
	_, err = newVerifier(t, policy, verify.Sources{Attachments: attachments{err: errors.New("registry: 401")}}).Verify(t.Context(), image())
	require.ErrorContains(t, err, "signatures attached to the image: registry: 401")
}

// TestSigstoreTellsOfTheRegistry: that it is down, which one and what to do is told, and not our side of the connection.
func TestSigstoreTellsOfTheRegistry(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	host := listener.Addr().String()
	require.NoError(t, listener.Close())
	reader, err := registryimage.New(registryimage.Options{Access: registry.New(registry.Options{Backoff: time.Millisecond})})
	require.NoError(t, err)
	policy := verify.Policy{SigstoreKeys: []verify.PublicKey{publicKey(t, "team", newKey(t, "P-256"))}}
	_, err = newVerifier(t, policy, verify.Sources{Attachments: reader}).Verify(t.Context(), release.Image{Pullspec: host + "/a/b:1", Digest: digest})
	require.ErrorIs(t, err, verify.ErrUnverified)
	require.ErrorContains(t, err, "; signatures attached to the image: registry "+host+" cannot be reached: see that it runs")
	assert.Regexp(t, "dial tcp "+host+": connect: connection refused \\(\\d+ attempts\\)$", err.Error())
}

func TestBothMethodsMustBeSatisfied(t *testing.T) {
	alice, key := newEntity(t, "alice"), newKey(t, "P-256")
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "vendor", alice)}, SigstoreKeys: []verify.PublicKey{publicKey(t, "team", key)}}
	local := []verify.Store{memory{name: "memory", messages: [][]byte{sign(t, alice, claim(digest))}}}
	none := []verify.Store{memory{name: "memory"}}
	signed := attachments{found: []release.Attachment{tagged(t, key, simpleSigning(digest))}}

	evidence, err := newVerifier(t, policy, verify.Sources{Local: local, Attachments: signed}).Verify(t.Context(), image())
	require.NoError(t, err)
	require.Len(t, evidence, 2)
	_, err = newVerifier(t, policy, verify.Sources{Local: local, Attachments: attachments{}}).Verify(t.Context(), image())
	require.ErrorContains(t, err, "against public keys: team;")
	_, err = newVerifier(t, policy, verify.Sources{Local: none, Attachments: signed}).Verify(t.Context(), image())
	require.ErrorContains(t, err, "against keyrings: vendor;")
	_, err = newVerifier(t, policy, verify.Sources{Local: none, Attachments: attachments{}}).Verify(t.Context(), image())
	require.ErrorContains(t, err, "against keyrings: vendor and public keys: team;")
}

func FuzzClaim(f *testing.F) {
	f.Add(claim(digest))
	f.Add(simpleSigning(digest))
	f.Add(claim(digest) + "x")
	alice := newEntity(f, "alice")
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(f, "k", alice)}}
	f.Fuzz(func(t *testing.T, body string) {
		// The signer signs whatever it is: only a claim about the digest may pass.
		if _, err := check(t, policy, sign(t, alice, body)); err == nil {
			assert.Contains(t, body, digest.Hex())
		}
	})
}

// The fixture writes signatures without any code of ours that reads them.
func TestSignaturesInARegistry(t *testing.T) {
	signer, err := fixture.NewKeySigner()
	require.NoError(t, err)
	public, err := signer.PublicKey()
	require.NoError(t, err)
	policy, err := verify.ParseTrust("team.pub", public)
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
			v := newVerifier(t, policy, verify.Sources{Attachments: reader})
			_, err = v.Verify(t.Context(), img)
			require.ErrorIs(t, err, verify.ErrUnverified)
			require.NoError(t, attach(t.Context(), img))
			_, err = v.Verify(t.Context(), img)
			require.NoError(t, err)
		})
	}
}
