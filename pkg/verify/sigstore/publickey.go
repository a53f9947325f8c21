package sigstore

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/release"
)

// PublicKey is a sigstore root with one or more bare public keys. Create it with NewPublicKey.
type PublicKey struct {
	Name string
	// Log requires an entry in its transparency logs for every signature; nil requires no entry.
	Log *TrustRoot
	// SignedIdentity restricts the image name in a signature; nil accepts any.
	SignedIdentity *configv1.PolicyIdentity
	keys           []keyMaterial
}

// keyMaterial is one public key.
type keyMaterial struct {
	key         crypto.PublicKey
	fingerprint string
}

// Fingerprint returns the SHA-256 of the first key's DER form (PKIX), in hex.
func (k PublicKey) Fingerprint() string { return k.keys[0].fingerprint }

const (
	publicKeyPEM = "PUBLIC KEY"
	// maxRSABits is the maximum length of an RSA key, because checks with longer keys take minutes.
	maxRSABits = 16384
)

// NewPublicKey parses one PEM public key: ECDSA (P-256, P-384, P-521), RSA of at least 2048 bits, or Ed25519. Alternatives are further keys
// of the same owner, such as the next key during a rotation. A signature with any of the keys is enough. It rejects weak keys and other
// kinds of keys.
func NewPublicKey(name string, data []byte, alternatives ...[]byte) (PublicKey, error) {
	k := PublicKey{Name: name}
	for _, d := range append([][]byte{data}, alternatives...) {
		key, err := parsePublicKey(d)
		if err != nil {
			return PublicKey{}, fmt.Errorf("reading public key %q: %w", name, err)
		}
		for _, other := range k.keys {
			if other.fingerprint == key.fingerprint {
				return PublicKey{}, fmt.Errorf("reading public key %q: the same key is listed twice", name)
			}
		}
		k.keys = append(k.keys, key)
	}
	return k, nil
}

func parsePublicKey(data []byte) (keyMaterial, error) {
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return keyMaterial{}, errors.New("it contains no PEM block: expected -----BEGIN PUBLIC KEY-----")
	case block.Type != publicKeyPEM:
		return keyMaterial{}, fmt.Errorf("it is a PEM %s, expected a PUBLIC KEY", block.Type)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return keyMaterial{}, errors.New("it contains several PEM blocks: list each key under its own name, " +
			"or under alternatives if any of them is enough")
	}
	return parsePKIX(block.Bytes)
}

// parsePKIX parses a key. It rejects weak keys.
func parsePKIX(der []byte) (keyMaterial, error) {
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return keyMaterial{}, err
	}
	if err := strongKey(key); err != nil {
		return keyMaterial{}, err
	}
	fingerprint, err := fingerprintOf(key)
	return keyMaterial{key: key, fingerprint: fingerprint}, err
}

func strongKey(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if bits := k.Curve.Params().BitSize; bits < 256 {
			return fmt.Errorf("ECDSA with %d bits is too weak: use P-256 or larger", bits)
		}
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < 2048 {
			return fmt.Errorf("RSA with %d bits is too weak: use 2048 or more", bits)
		}
		return boundedKey(k)
	case ed25519.PublicKey:
	default:
		return fmt.Errorf("keys of type %T are not supported: use ECDSA, RSA or Ed25519", key)
	}
	return nil
}

// boundedKey rejects a key for which a single check would take minutes. The author of a signature chooses the keys in its certificates, and
// the library uses these keys before it knows whether they are trusted.
func boundedKey(key crypto.PublicKey) error {
	if k, ok := key.(*rsa.PublicKey); ok && k.N.BitLen() > maxRSABits {
		return fmt.Errorf("RSA with %d bits is too large: use %d or less", k.N.BitLen(), maxRSABits)
	}
	return nil
}

// fingerprintOf hashes a canonical encoding of a key, so that two encodings of the same key have the same fingerprint.
func fingerprintOf(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

// Validate rejects a key that no signature could satisfy.
func (k PublicKey) Validate() error {
	if len(k.keys) == 0 {
		return errors.New("it is empty: create it with NewPublicKey")
	}
	if k.Log != nil && len(k.Log.rekor) == 0 {
		return errors.New("a log entry is required, but no log is trusted: add the log's public key")
	}
	return validateSignedIdentity(k.SignedIdentity)
}

// Fingerprints returns the fingerprint of each key; see Fingerprint.
func (k PublicKey) Fingerprints() []string {
	out := make([]string, len(k.keys))
	for i, key := range k.keys {
		out[i] = key.fingerprint
	}
	return out
}

var (
	errNotByKey  = errors.New("not signed with this key")
	errNotByKeys = errors.New("not signed with any of these keys")
)

// Verify returns the evidence if the signature is valid for the image and was made with one of the keys.
func (k PublicKey) Verify(s *Signature, image release.Image) (release.Evidence, error) {
	for _, key := range k.keys {
		e, err := k.checkKey(s, key, image)
		if err == nil || !errors.Is(err, errNotByKey) {
			return e, err
		}
	}
	if len(k.keys) > 1 {
		return release.Evidence{}, errNotByKeys
	}
	return release.Evidence{}, errNotByKey
}

// checkKey verifies the signature with one key. It ignores a certificate in the signature, because only the key is trusted.
func (k PublicKey) checkKey(s *Signature, key keyMaterial, image release.Image) (release.Evidence, error) {
	if err := s.checkSignature(key.key, image, k.SignedIdentity); err != nil {
		return release.Evidence{}, err
	}
	e := release.Evidence{KeyID: key.fingerprint, SignedAt: s.claimedAt}
	if k.Log == nil {
		return e, nil
	}
	observed, err := k.Log.observe(s, key.key)
	if err != nil {
		return release.Evidence{}, err
	}
	e.Log = observed.entry
	if len(observed.times) > 0 {
		e.SignedAt = observed.times[0]
	}
	return e, nil
}
