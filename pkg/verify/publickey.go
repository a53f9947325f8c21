package verify

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
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/release"
)

// PublicKey is a sigstore root that is a bare public key. Make it with NewPublicKey.
type PublicKey struct {
	Name string
	// Log, if set, is where every signature must have an entry; nil asks for none.
	Log *TrustRoot
	// SignedIdentity says which name a signature must give the image; nil accepts any.
	SignedIdentity *configv1.PolicyIdentity
	keys           []keyMaterial
}

// keyMaterial is one public key.
type keyMaterial struct {
	key         crypto.PublicKey
	fingerprint string
}

// Fingerprint is the SHA-256 of the (first) key's DER form (PKIX) in hex.
func (k PublicKey) Fingerprint() string { return k.keys[0].fingerprint }

const publicKeyPEM = "PUBLIC KEY"

// NewPublicKey reads one PEM public key: ECDSA (P-256, P-384, P-521), RSA of at least 2048 bits, or Ed25519.
// Alternatives are further keys of the same owner, such as the next one while keys are rotated: a signature with any
// of them is enough.
func NewPublicKey(name string, data []byte, alternatives ...[]byte) (PublicKey, error) {
	k := PublicKey{Name: name}
	for _, d := range append([][]byte{data}, alternatives...) {
		key, err := parsePublicKey(d)
		if err != nil {
			return PublicKey{}, fmt.Errorf("reading public key %q: %w", name, err)
		}
		for _, other := range k.keys {
			if other.fingerprint == key.fingerprint {
				return PublicKey{}, fmt.Errorf("reading public key %q: the same key is there twice", name)
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
		return keyMaterial{}, errors.New("no PEM block in it: expected -----BEGIN PUBLIC KEY-----")
	case block.Type != publicKeyPEM:
		return keyMaterial{}, fmt.Errorf("it is a PEM %s, expected a PUBLIC KEY", block.Type)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return keyMaterial{}, errors.New("it holds several PEM blocks: list every key under a name of its own, " +
			"or under alternatives if any one of them is enough")
	}
	return parsePKIX(block.Bytes)
}

// parsePKIX reads a key and refuses weak ones.
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

// boundedKey refuses a key with which a single check would take minutes. Keys in certificates that a signature brings
// along are its maker's to choose, and are computed with before they are known to be good for anything.
func boundedKey(key crypto.PublicKey) error {
	if k, ok := key.(*rsa.PublicKey); ok && k.N.BitLen() > maxKeyBits {
		return fmt.Errorf("RSA with %d bits is too large: use %d or less", k.N.BitLen(), maxKeyBits)
	}
	return nil
}

// fingerprintOf is over our own encoding, so that two spellings of one key have one name.
func fingerprintOf(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

func (k PublicKey) validate() error {
	if k.Log != nil && len(k.Log.rekor) == 0 {
		return errors.New("a log entry is asked for, but no log is trusted: give the log's public key")
	}
	return validateSignedIdentity(k.SignedIdentity)
}

// publicKeyRoot is satisfied by a signature with one of the keys.
type publicKeyRoot struct{ PublicKey }

func (r publicKeyRoot) name() string   { return r.Name }
func (r publicKeyRoot) method() string { return MethodSigstore }
func (r publicKeyRoot) kind() string   { return kindPublicKey }

func (r publicKeyRoot) fingerprints() []string {
	out := make([]string, len(r.keys))
	for i, k := range r.keys {
		out[i] = k.fingerprint
	}
	return out
}

var (
	errNotByKey  = errors.New("not signed with this key")
	errNotByKeys = errors.New("not signed with any of these keys")
)

func (r publicKeyRoot) check(c candidate, image release.Image, _ time.Time) (release.Evidence, error) {
	if c.sigstore == nil {
		return release.Evidence{}, errors.New("not attached to the image")
	}
	s, err := c.sigstore()
	if err != nil {
		return release.Evidence{}, err
	}
	for _, k := range r.keys {
		e, err := r.checkKey(s, k, image)
		if err == nil || !errors.Is(err, errNotByKey) {
			return e, err
		}
	}
	if len(r.keys) > 1 {
		return release.Evidence{}, errNotByKeys
	}
	return release.Evidence{}, errNotByKey
}

// checkKey does not mind whether the signer put a certificate beside the signature: it is the key that is trusted.
func (r publicKeyRoot) checkKey(s *signed, k keyMaterial, image release.Image) (release.Evidence, error) {
	if err := s.checkSignature(k.key, image, r.SignedIdentity); err != nil {
		return release.Evidence{}, err
	}
	e := release.Evidence{KeyID: k.fingerprint, SignedAt: s.claimedAt}
	if r.Log == nil {
		return e, nil
	}
	observed, err := r.Log.observe(s, k.key)
	if err != nil {
		return release.Evidence{}, err
	}
	e.Log = observed.entry
	if len(observed.times) > 0 {
		e.SignedAt = observed.times[0]
	}
	return e, nil
}
