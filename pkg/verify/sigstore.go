package verify

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

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
	// BundleMediaType is that of a sigstore bundle, attached to the image as a referrer.
	BundleMediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	// SignPredicate is the in-toto predicate by which cosign says "I sign this image". A statement with another
	// predicate says something else about the image, such as that it has vulnerabilities.
	SignPredicate = "https://sigstore.dev/cosign/sign/v1"

	bundleMediaPrefix = "application/vnd.dev.sigstore.bundle"
	maxAttachmentSize = 256 << 10
)

// publicKeyRoot is satisfied by a signature with one key pair.
type publicKeyRoot struct{ PublicKey }

func (r publicKeyRoot) name() string   { return r.Name }
func (r publicKeyRoot) method() string { return MethodSigstore }

func (r publicKeyRoot) check(c candidate, digest release.Digest, _ time.Time) (release.Evidence, error) {
	a := c.attachment
	if a == nil {
		return release.Evidence{}, errors.New("not attached to the image")
	}
	if len(a.Payload) > maxAttachmentSize {
		return release.Evidence{}, fmt.Errorf("larger than %d bytes", maxAttachmentSize)
	}
	e := release.Evidence{KeyID: r.Fingerprint()}
	var err error
	if strings.HasPrefix(a.MediaType, bundleMediaPrefix) {
		err = r.checkBundle(a.Payload, digest)
	} else {
		e.SignedAt, err = r.checkSimpleSigning(a, digest)
	}
	if err != nil {
		return release.Evidence{}, err
	}
	return e, nil
}

// checkSimpleSigning checks cosign's classic form: a claim as payload, its signature in an annotation. cosign signs
// with SHA-256 whatever the curve.
func (r publicKeyRoot) checkSimpleSigning(a *release.Attachment, digest release.Digest) (time.Time, error) {
	encoded, ok := a.Annotations[SignatureAnnotation]
	if !ok {
		return time.Time{}, fmt.Errorf("not a signature: media type %q, no annotation %s", a.MediaType, SignatureAnnotation)
	}
	sig, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return time.Time{}, fmt.Errorf("decoding annotation %s: %w", SignatureAnnotation, err)
	}
	verifier, err := signature.LoadVerifier(r.key, crypto.SHA256)
	if err != nil {
		return time.Time{}, err
	}
	if err := verifier.VerifySignature(bytes.NewReader(sig), bytes.NewReader(a.Payload)); err != nil {
		return time.Time{}, errNotByKey
	}
	return checkSimpleSigning(a.Payload, digest)
}

var errNotByKey = errors.New("not signed with this key")

// checkBundle checks a sigstore bundle that was signed with a bare key: a DSSE envelope around an in-toto statement,
// or a signature over the image manifest itself.
func (r publicKeyRoot) checkBundle(data []byte, digest release.Digest) error {
	var b bundle.Bundle
	if err := b.UnmarshalJSON(data); err != nil {
		return fmt.Errorf("reading sigstore bundle: %w", err)
	}
	if b.GetMessageSignature() != nil {
		// Ed25519 signs the artifact, not its hash, so a bundle cannot be checked against a digest; the library
		// would check the signature against an empty artifact, which would then stand for any digest.
		if _, ok := r.key.(ed25519.PublicKey); ok {
			return errors.New("a message signature by an Ed25519 key cannot be checked against a digest: sign a statement (DSSE)")
		}
	}
	verifier, err := r.bundleVerifier()
	if err != nil {
		return err
	}
	sum, err := hex.DecodeString(digest.Hex())
	if err != nil {
		return err
	}
	result, err := verifier.Verify(&b, sigstoreverify.NewPolicy(
		sigstoreverify.WithArtifactDigest("sha256", sum), sigstoreverify.WithKey()))
	if err != nil {
		return fmt.Errorf("not a signature of this digest with this key: %w", err)
	}
	if b.GetDsseEnvelope() != nil {
		if result.Statement == nil || result.Statement.GetPredicateType() != SignPredicate {
			return fmt.Errorf("the signed statement is of type %q, expected %q", result.Statement.GetPredicateType(), SignPredicate)
		}
	}
	return nil
}

// bundleVerifier trusts this one key whatever name a bundle gives it, at any time, and asks for no log entry: a log
// proves when a short-lived certificate was used, and there is none here.
func (r publicKeyRoot) bundleVerifier() (*sigstoreverify.Verifier, error) {
	key, err := signature.LoadDefaultVerifier(r.key)
	if err != nil {
		return nil, err
	}
	material := sigstoreroot.NewTrustedPublicKeyMaterial(func(string) (sigstoreroot.TimeConstrainedVerifier, error) {
		return sigstoreroot.NewExpiringKey(key, time.Time{}, time.Time{}), nil
	})
	return sigstoreverify.NewVerifier(material, sigstoreverify.WithNoObserverTimestamps())
}
