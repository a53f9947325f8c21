package verify

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	sigstoreroot "github.com/sigstore/sigstore-go/pkg/root"
	sigstoreverify "github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/cluster-version/cvo/pkg/release"
)

// Names that cosign and the sigstore bundle specification give to signatures in a registry.
const (
	// SimpleSigningMediaType is that of a layer in a "sha256-<digest>.sig" image.
	SimpleSigningMediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	// SignatureAnnotation holds the base64 signature over that layer.
	SignatureAnnotation = "dev.cosignproject.cosign/signature"
	// CertificateAnnotation and ChainAnnotation hold the signer's certificate and those between it and the root, as PEM.
	CertificateAnnotation = "dev.sigstore.cosign/certificate"
	ChainAnnotation       = "dev.sigstore.cosign/chain"
	// LogAnnotation holds the signature's log entry with the log's signed promise to include it.
	LogAnnotation = "dev.sigstore.cosign/bundle"
	// TimestampAnnotation holds the word of a timestamp authority (RFC 3161).
	TimestampAnnotation = "dev.sigstore.cosign/rfc3161timestamp"
	// BundleMediaType is that of a sigstore bundle, attached to the image as a referrer.
	BundleMediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	// SignPredicate is the in-toto predicate by which cosign says "I sign this image". A statement with another
	// predicate says something else about the image, such as that it has vulnerabilities.
	SignPredicate = "https://sigstore.dev/cosign/sign/v1"

	bundleMediaPrefix = "application/vnd.dev.sigstore.bundle"
	maxAttachmentSize = 256 << 10
	// maxChain bounds the certificates that a signature brings along, because finding a path through them takes time.
	maxChain = 8
	// maxTimestamps and maxTimestampSize bound the word of timestamp authorities; theirs has some 6 KiB.
	maxTimestamps    = 4
	maxTimestampSize = 16 << 10
)

// signed is one sigstore signature, in the form of a bundle whichever form it was found in. Nothing of it is proved.
type signed struct {
	*bundle.Bundle
	// document is the claim that is signed in cosign's classic form; nil for a bundle, which signs a statement or the
	// image manifest itself.
	document []byte
	// certificate is the signer's, nil for a bare key; chain is what the signature brings along beside it.
	certificate *x509.Certificate
	chain       []*x509.Certificate
	// claimedAt is when the document says it was made.
	claimedAt time.Time
}

// checkSignature proves that the holder of the key signed the image's digest, for the purpose of signing it, under a
// name that the signed identity allows. A signature that is not by this key is errNotByKey.
func (s *signed) checkSignature(key crypto.PublicKey, image release.Image, identity *configv1.PolicyIdentity) error {
	if s.certificate != nil && !sameKey(s.certificate.PublicKey, key) {
		return errNotByKey
	}
	content, err := s.SignatureContent()
	if err != nil {
		return fmt.Errorf("reading the signature: %w", err)
	}
	material := keyOnly(key, s.document != nil)
	if s.document != nil {
		documents := []io.Reader{bytes.NewReader(s.document)}
		if err := sigstoreverify.VerifySignatureWithArtifacts(content, bareKey{}, material, documents); err != nil {
			return errNotByKey
		}
		return s.checkDocument(image, identity)
	}
	sum, err := hex.DecodeString(image.Digest.Hex())
	if err != nil {
		return err
	}
	digests := []sigstoreverify.ArtifactDigest{{Algorithm: "sha256", Digest: sum}}
	if message := content.MessageSignatureContent(); message != nil {
		// Ed25519 signs the artifact, not its hash, so a bundle cannot be checked against a digest; the library
		// would check the signature against an empty artifact, which would then stand for any digest.
		if _, ok := key.(ed25519.PublicKey); ok {
			return errors.New("a message signature by an Ed25519 key cannot be checked against a digest: sign a statement (DSSE)")
		}
		if !bytes.Equal(message.Digest(), sum) {
			return fmt.Errorf("it is a signature of digest %x, not of this one", message.Digest())
		}
		if err := sigstoreverify.VerifySignatureWithArtifactDigests(content, bareKey{}, material, digests); err != nil {
			return errNotByKey
		}
		return matchIdentity(identity, image, "")
	}
	if err := sigstoreverify.VerifySignature(content, bareKey{}, material); err != nil {
		return errNotByKey
	}
	if err := sigstoreverify.VerifySignatureWithArtifactDigests(content, bareKey{}, material, digests); err != nil {
		return fmt.Errorf("the signed statement is not about this digest: %w", err)
	}
	return s.checkStatement(image, identity)
}

// checkDocument checks what the signer says in the classic form.
func (s *signed) checkDocument(image release.Image, identity *configv1.PolicyIdentity) error {
	c, err := checkSimpleSigning(s.document, image.Digest)
	if err != nil {
		return err
	}
	s.claimedAt = c.signedAt()
	return matchIdentity(identity, image, c.Critical.Identity.Reference)
}

// checkStatement checks what the signer says in a bundle. That the digest is among the statement's subjects is checked
// already. A bundle has no docker-reference: the name of the subject, which cosign leaves empty, takes its place.
func (s *signed) checkStatement(image release.Image, identity *configv1.PolicyIdentity) error {
	envelope, err := s.Envelope()
	if err != nil {
		return fmt.Errorf("reading the signed envelope: %w", err)
	}
	statement, err := envelope.Statement()
	if err != nil {
		return fmt.Errorf("reading the signed statement: %w", err)
	}
	if statement.GetPredicateType() != SignPredicate {
		return fmt.Errorf("the signed statement is of type %q, expected %q", statement.GetPredicateType(), SignPredicate)
	}
	reason := errors.New("the signed statement is not about this digest")
	for _, subject := range statement.GetSubject() {
		if subject.GetDigest()["sha256"] != image.Digest.Hex() {
			continue
		}
		if reason = matchIdentity(identity, image, subject.GetName()); reason == nil {
			return nil
		}
	}
	return reason
}

func sameKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

// bareKey tells the library to take the key from the trust material, also where a certificate holds it: the
// certificate has been checked by then, and other ways to hash are tried that the library does not try for it.
type bareKey struct{}

func (bareKey) CompareKey(any, sigstoreroot.TrustedMaterial) bool        { return false }
func (bareKey) ValidAtTime(time.Time, sigstoreroot.TrustedMaterial) bool { return true }
func (bareKey) Certificate() *x509.Certificate                           { return nil }
func (bareKey) Intermediates() []*x509.Certificate                       { return nil }
func (bareKey) PublicKey() sigstoreverify.PublicKeyProvider              { return bareKey{} }
func (bareKey) Hint() string                                             { return "" }

// keyOnly is trust material with one key, whatever name a signature gives it.
func keyOnly(key crypto.PublicKey, classic bool) *sigstoreroot.TrustedPublicKeyMaterial {
	return sigstoreroot.NewTrustedPublicKeyMaterial(func(string) (sigstoreroot.TimeConstrainedVerifier, error) {
		verifier, err := newKeyVerifier(key, classic)
		return sigstoreroot.NewExpiringKey(verifier, time.Time{}, time.Time{}), err
	})
}

// keyVerifier tries the hashes that signers use with a key. Signers differ on the large curves: the classic form is
// signed with SHA-256 whatever the curve, bundles with the hash that fits the curve, and older clients with SHA-256.
type keyVerifier struct {
	key       crypto.PublicKey
	verifiers []signature.Verifier
}

func newKeyVerifier(key crypto.PublicKey, classic bool) (*keyVerifier, error) {
	v := &keyVerifier{key: key}
	fitting, err := signature.LoadDefaultVerifier(key)
	if err != nil {
		return nil, err
	}
	v.verifiers = append(v.verifiers, fitting)
	if _, ok := key.(*ecdsa.PublicKey); ok || classic {
		sha256, err := signature.LoadVerifier(key, crypto.SHA256)
		if err != nil {
			return nil, err
		}
		v.verifiers = append(v.verifiers, sha256)
	}
	return v, nil
}

func (v *keyVerifier) PublicKey(...signature.PublicKeyOption) (crypto.PublicKey, error) {
	return v.key, nil
}

func (v *keyVerifier) VerifySignature(sig, message io.Reader, opts ...signature.VerifyOption) error {
	signatureBytes, err := io.ReadAll(sig)
	if err != nil {
		return err
	}
	messageBytes, err := io.ReadAll(message)
	if err != nil {
		return err
	}
	for _, verifier := range v.verifiers {
		if err = verifier.VerifySignature(bytes.NewReader(signatureBytes), bytes.NewReader(messageBytes), opts...); err == nil {
			return nil
		}
	}
	return err
}
