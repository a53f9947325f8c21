package sigstore_test

import (
	"crypto"
	"strings"
	"testing"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

func TestKeySignaturesAreAccepted(t *testing.T) {
	for _, kind := range []string{"P-256", "P-384", "RSA", "Ed25519"} {
		key := newKey(t, kind)
		root := publicKey(t, "team", key)
		found := map[string]release.Attachment{
			"simple signing document":       tagged(t, key, simpleSigning(digest)),
			"atomic container signature":    tagged(t, key, claim(digest)),
			"bundle with a statement":       envelope(t, key, statement(digest, sigstore.SignPredicate)),
			"bundle with message signature": {},
		}
		if kind == "P-256" || kind == "RSA" {
			found["bundle with message signature"] = messageBundle(t, signDigest(t, key, digest), digest)
		} else {
			delete(found, "bundle with message signature")
		}
		for name, attachment := range found {
			t.Run("it accepts a "+name+" by "+kind, func(t *testing.T) {
				evidence, err := verifyKey(root, image(), attachment)
				require.NoError(t, err)
				assert.Equal(t, root.Fingerprint(), evidence.KeyID)
				assert.Len(t, evidence.KeyID, 64)
				if attachment.MediaType == sigstore.SimpleSigningMediaType {
					assert.Equal(t, time.Unix(1772366400, 0).UTC(), evidence.SignedAt)
				}
			})
		}
	}
}

//threat:wrong-key another key
//threat:signature-another-digest a message signature of another digest
func TestInvalidKeySignaturesAreRejected(t *testing.T) {
	key, other, ed := newKey(t, "P-256"), newKey(t, "P-256"), newKey(t, "Ed25519")
	good := tagged(t, key, simpleSigning(digest))
	tampered := tagged(t, key, simpleSigning(otherDigest))
	tampered.Payload = edit(t, tampered.Payload, string(otherDigest), string(digest))
	broken := good
	broken.Annotations = map[string]string{sigstore.SignatureAnnotation: "%"}
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
		{"a document about another digest", key, tagged(t, key, simpleSigning(otherDigest)), "the signed claim is about another digest"},
		{"a tampered document", key, tampered, "not signed with this key"},
		{"a document of another type", key, tagged(t, key, strings.Replace(simpleSigning(digest), "cosign ", "", 1)), "of type"},
		{"a document without a name", key, tagged(t, key, strings.Replace(simpleSigning(digest), "registry.example/platform/release", "", 1)), "no docker-reference"},
		{"a signature that is not base64", key, broken, "decoding annotation"},
		{"a document without a signature", key, bare, "no annotation dev.cosignproject.cosign/signature"},
		{"a large document", key, tagged(t, key, strings.Repeat("x", 256<<10+1)), "larger than 262144 bytes"},
		{"a statement about another digest", key, envelope(t, key, statement(otherDigest, sigstore.SignPredicate)), "the signed statement is not about this digest"},
		{"a statement by another key", key, envelope(t, other, statement(digest, sigstore.SignPredicate)), "not signed with this key"},
		{"a statement of another type", key, envelope(t, key, statement(digest, "https://slsa.dev/provenance/v1")), `the signed statement is of type "https://slsa.dev/provenance/v1"`},
		{"a message signature of another digest", key, messageBundle(t, signDigest(t, key, otherDigest), digest), "not signed with this key"},
		{"a message signature that names another digest", key, messageBundle(t, signDigest(t, key, otherDigest), otherDigest), "it is a signature of another digest, 2222"},
		// sigstore-go checks the signature against an empty artifact, for which this one is valid.
		{"an Ed25519 message signature", ed, messageBundle(t, overNothing, digest), "cannot be checked against a digest"},
		{"an invalid bundle", key, release.Attachment{Store: "x", MediaType: sigstore.BundleMediaType, Payload: []byte("{}")}, "reading sigstore bundle"},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			_, err := verifyKey(publicKey(t, "team", test.key), image(), test.attachment)
			assert.ErrorContains(t, err, test.want)
		})
	}
}

//threat:untrusted-log-no
func TestKeyWithALogRequiresALogEntry(t *testing.T) {
	s, other := newSigstore(t), newSigstore(t)
	signed := attached(t)
	signer, err := sigstoretest.NewSigner()
	require.NoError(t, err)
	claimed, about := []byte(simpleSigning(digest)), []byte(statement(digest, sigstore.SignPredicate))
	logOf := func(s *sigstoretest.Deployment) *sigstore.TrustRoot {
		root, err := sigstore.NewTrustRoot(sigstore.TrustRootOptions{LogKeys: s.LogKey()})
		require.NoError(t, err)
		return &root
	}
	for _, test := range []struct {
		name    string
		log     *sigstore.TrustRoot
		found   release.Attachment
		refusal string
	}{
		{"it accepts the classic form with an entry", logOf(s), signed(s.Classic(signer, claimed, sigstoretest.Form{})), ""},
		{"it accepts a bundle with an entry", logOf(s), signed(s.Statement(signer, about, sigstoretest.Form{})), ""},
		{"it accepts a bundle with a proof and no promise", logOf(s), signed(s.Statement(signer, about, sigstoretest.Form{NoPromise: true})), ""},
		{"it accepts a signature without an entry if no log is required", nil, signed(s.Classic(signer, claimed, sigstoretest.Form{Unlogged: true})), ""},
		{"it accepts an entry of a log that is not required", nil, signed(s.Classic(signer, claimed, sigstoretest.Form{})), ""},
		{"it rejects a signature without an entry", logOf(s), signed(s.Classic(signer, claimed, sigstoretest.Form{Unlogged: true})), "no entry in a trusted transparency log"},
		{"it rejects a bundle without an entry", logOf(s), signed(s.Statement(signer, about, sigstoretest.Form{Unlogged: true})), "no entry in a trusted transparency log"},
		{"it rejects another log", logOf(other), signed(s.Classic(signer, claimed, sigstoretest.Form{})), "no entry in a trusted transparency log"},
	} {
		t.Run(test.name, func(t *testing.T) {
			key, err := sigstore.NewPublicKey("team", signer.PublicKey())
			require.NoError(t, err)
			key.Log = test.log
			evidence, err := verifyKey(key, image(), test.found)
			if test.refusal != "" {
				require.ErrorContains(t, err, test.refusal)
				return
			}
			require.NoError(t, err)
			if test.log != nil {
				require.NotNil(t, evidence.Log)
				assert.Equal(t, int64(4711), evidence.Log.Index)
			}
		})
	}
}

func TestEitherKeyOfARotationVerifies(t *testing.T) {
	before, after, stranger := newKey(t, "P-256"), newKey(t, "Ed25519"), newKey(t, "P-256")
	first, second := publicKey(t, "x", before), publicKey(t, "x", after)
	root, err := sigstore.NewPublicKey("team", pemOf(t, before), pemOf(t, after))
	require.NoError(t, err)
	for _, test := range []struct {
		name        string
		found       release.Attachment
		fingerprint string
	}{
		{"the key before", tagged(t, before, simpleSigning(digest)), first.Fingerprint()},
		{"the key after", tagged(t, after, simpleSigning(digest)), second.Fingerprint()},
		{"an unknown key", tagged(t, stranger, simpleSigning(digest)), ""},
	} {
		t.Run("it checks "+test.name, func(t *testing.T) {
			evidence, err := verifyKey(root, image(), test.found)
			if test.fingerprint == "" {
				require.ErrorContains(t, err, "not signed with any of these keys")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.fingerprint, evidence.KeyID)
		})
	}
	_, err = sigstore.NewPublicKey("team", pemOf(t, before), pemOf(t, before))
	require.ErrorContains(t, err, "the same key is listed twice")
}
