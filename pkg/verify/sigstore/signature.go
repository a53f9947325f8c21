// Package sigstore checks sigstore signatures of releases, with keys or keyless. Its inputs are a public key or a certificate authority
// with the accepted identities, an attachment of an image, and the image. It returns evidence (the signer's key or identity, and the
// signing time) or the reason why the attachment proves nothing. Attachments may come from attackers, so it limits their size and computing
// time. Callers find the attachments. sigstore-go provides the cryptography of certificates, logs and timestamps.
package sigstore

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
	"github.com/cluster-version/cvo/pkg/verify/claim"
)

// Names from cosign and the sigstore bundle specification for signatures in a registry.
const (
	// SimpleSigningMediaType is the media type of a layer in a "sha256-<digest>.sig" image.
	SimpleSigningMediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	// SignatureAnnotation contains the base64 signature over that layer.
	SignatureAnnotation = "dev.cosignproject.cosign/signature"
	// CertificateAnnotation and ChainAnnotation contain the PEM certificates of the signer and of the intermediate authorities.
	CertificateAnnotation = "dev.sigstore.cosign/certificate"
	ChainAnnotation       = "dev.sigstore.cosign/chain"
	// LogAnnotation contains the signature's log entry and the log's signed promise to include it.
	LogAnnotation = "dev.sigstore.cosign/bundle"
	// TimestampAnnotation contains the timestamp of a timestamp authority (RFC 3161).
	TimestampAnnotation = "dev.sigstore.cosign/rfc3161timestamp"
	// BundleMediaType is the media type of a sigstore bundle, which is attached to the image as a referrer.
	BundleMediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	// SignPredicate is the in-toto predicate with which cosign signs an image. A statement with another predicate makes another claim about
	// the image, for example about its vulnerabilities.
	SignPredicate = "https://sigstore.dev/cosign/sign/v1"

	bundleMediaPrefix = "application/vnd.dev.sigstore.bundle"
	maxAttachmentSize = 256 << 10
	// maxChain is the maximum number of certificates in a signature, because finding a path through them takes time.
	maxChain = 8
	// maxTimestamps and maxTimestampSize limit the timestamps in a signature. A real one has about 6 KiB.
	maxTimestamps    = 4
	maxTimestampSize = 16 << 10
)

// Signature is one unverified sigstore signature, converted to a bundle.
type Signature struct {
	*bundle.Bundle
	// document is the signed claim in cosign's classic format. It is nil for a bundle, which signs a statement or the image manifest
	// itself.
	document []byte
	// certificate is the signer's certificate; nil for a bare key. chain contains the other certificates in the signature.
	certificate *x509.Certificate
	chain       []*x509.Certificate
	// claimedAt is the signing time in the document.
	claimedAt time.Time
}

// checkSignature checks that the owner of the key signed the image's digest, with the predicate for signing an image and with a name that
// the signed identity allows. The error is errNotByKey if the signature was made with another key.
func (s *Signature) checkSignature(key crypto.PublicKey, image release.Image, identity *configv1.PolicyIdentity) error {
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
		// Ed25519 signs the artifact instead of its hash, so such a bundle cannot be checked against a digest. The library would check the
		// signature against an empty artifact and then accept it for any digest.
		if _, ok := key.(ed25519.PublicKey); ok {
			return errors.New("a message signature by an Ed25519 key cannot be checked against a digest: sign a statement (DSSE)")
		}
		if !bytes.Equal(message.Digest(), sum) {
			return fmt.Errorf("it is a signature of another digest, %x", message.Digest())
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

// checkDocument checks the claim of the classic format.
func (s *Signature) checkDocument(image release.Image, identity *configv1.PolicyIdentity) error {
	c, err := claim.ReadSimpleSigning(s.document, image.Digest)
	if err != nil {
		return err
	}
	s.claimedAt = c.SignedAt()
	return matchIdentity(identity, image, c.Critical.Identity.Reference)
}

// checkStatement checks the statement in a bundle. The caller has already found the digest among its subjects. A bundle has no
// docker-reference, so the subject's name, which cosign leaves empty, takes its place.
func (s *Signature) checkStatement(image release.Image, identity *configv1.PolicyIdentity) error {
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

// bareKey makes the library use the key in the trust material even if the key is from a certificate, which has already been checked. With a
// bare key, the library tries hash algorithms that it does not try with a certificate.
type bareKey struct{}

func (bareKey) CompareKey(any, sigstoreroot.TrustedMaterial) bool        { return false }
func (bareKey) ValidAtTime(time.Time, sigstoreroot.TrustedMaterial) bool { return true }
func (bareKey) Certificate() *x509.Certificate                           { return nil }
func (bareKey) Intermediates() []*x509.Certificate                       { return nil }
func (bareKey) PublicKey() sigstoreverify.PublicKeyProvider              { return bareKey{} }
func (bareKey) Hint() string                                             { return "" }

// keyOnly returns trust material with one key for any key name in a signature.
func keyOnly(key crypto.PublicKey, classic bool) *sigstoreroot.TrustedPublicKeyMaterial {
	return sigstoreroot.NewTrustedPublicKeyMaterial(func(string) (sigstoreroot.TimeConstrainedVerifier, error) {
		verifier, err := newKeyVerifier(key, classic)
		return sigstoreroot.NewExpiringKey(verifier, time.Time{}, time.Time{}), err
	})
}

// keyVerifier tries the hash algorithms that signers use with a key. Signers differ for the large curves: the classic format always uses
// SHA-256, and bundles use the hash for the curve, except that older clients use SHA-256.
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
