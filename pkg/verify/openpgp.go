package verify

import (
	"crypto"
	"crypto/rsa"
	_ "crypto/sha256" // signature hashes
	_ "crypto/sha3"
	_ "crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"slices"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	legacypacket "golang.org/x/crypto/openpgp/packet" //nolint:staticcheck // the only reader of version 3 signature packets, which real release signatures use

	"github.com/cluster-version/cvo/pkg/release"
)

// keyringRoot is satisfied by a signed message from any key of the keyring.
type keyringRoot struct {
	Keyring
	refuseExpired bool
}

func (r keyringRoot) name() string   { return r.Name }
func (r keyringRoot) method() string { return MethodOpenPGP }
func (r keyringRoot) kind() string   { return kindKeyring }

func (r keyringRoot) fingerprints() []string {
	out := make([]string, len(r.entities))
	for i, e := range r.entities {
		out[i] = fmt.Sprintf("%X", e.PrimaryKey.Fingerprint)
	}
	return out
}

// check looks at the claim only after a signature over it has proved valid.
func (r keyringRoot) check(c candidate, image release.Image, now time.Time) (release.Evidence, error) {
	if c.message == nil {
		return release.Evidence{}, errors.New("not an OpenPGP message")
	}
	var failures []error
	for _, s := range c.message.signatures {
		e, err := r.checkSignature(c.message.body, s, now)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if err := checkAtomicClaim(c.message.body, image.Digest); err != nil {
			return release.Evidence{}, err
		}
		return e, nil
	}
	return release.Evidence{}, errors.Join(failures...)
}

// allowedHashes leaves out MD5, SHA-1 and RIPEMD-160, for which different messages with one hash can be made.
func allowedHashes() []crypto.Hash {
	return []crypto.Hash{crypto.SHA224, crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}
}

func (r keyringRoot) checkSignature(body []byte, s messageSignature, now time.Time) (release.Evidence, error) {
	if s.err != nil {
		return release.Evidence{}, s.err
	}
	if !slices.Contains(allowedHashes(), s.hash()) || !s.hash().Available() {
		return release.Evidence{}, fmt.Errorf("hash algorithm %v is not accepted", s.hash())
	}
	keys := r.keysOf(s)
	if len(keys) == 0 {
		return release.Evidence{}, fmt.Errorf("signed by key %s, which is not in this keyring", s.keyID())
	}
	var failures []error
	for _, k := range keys {
		err := r.checkWithKey(k, body, s, now)
		if err == nil {
			return release.Evidence{
				Identity: identity(k.Entity), KeyID: fmt.Sprintf("%016X", k.PublicKey.KeyId),
				Fingerprint: fmt.Sprintf("%X", k.Entity.PrimaryKey.Fingerprint),
				SignedAt:    s.created().UTC(),
			}, nil
		}
		failures = append(failures, err)
	}
	return release.Evidence{}, errors.Join(failures...)
}

// keysOf returns the primary keys and subkeys that the signature says it was made with.
func (r keyringRoot) keysOf(s messageSignature) []openpgp.Key {
	var out []openpgp.Key
	for _, e := range r.entities {
		if s.by(e.PrimaryKey) {
			self, _ := e.PrimarySelfSignature()
			out = append(out, openpgp.Key{Entity: e, PublicKey: e.PrimaryKey, SelfSignature: self, Revocations: e.Revocations})
		}
		for _, sub := range e.Subkeys {
			if s.by(sub.PublicKey) {
				out = append(out, openpgp.Key{Entity: e, PublicKey: sub.PublicKey, SelfSignature: sub.Sig, Revocations: sub.Revocations})
			}
		}
	}
	return out
}

func (r keyringRoot) checkWithKey(k openpgp.Key, body []byte, s messageSignature, now time.Time) error {
	if err := s.verify(k.PublicKey, body); err != nil {
		return fmt.Errorf("the signature by key %s is not valid: %w", s.keyID(), err)
	}
	switch {
	case revoked(k):
		return fmt.Errorf("key %s is revoked", s.keyID())
	case !maySign(k):
		return fmt.Errorf("key %s is not meant for signing", s.keyID())
	case r.refuseExpired && expired(k, now):
		return fmt.Errorf("key %s has expired", s.keyID())
	}
	if until := s.validUntil(); !until.IsZero() && now.After(until) {
		return fmt.Errorf("the signature by key %s has expired at %s", s.keyID(), until.UTC().Format(time.RFC3339))
	}
	return nil
}

// revoked takes any revocation as final, whenever it was made: a date in a revocation protects whoever stole the key.
func revoked(k openpgp.Key) bool {
	if len(k.Revocations) > 0 || len(k.Entity.Revocations) > 0 {
		return true
	}
	id := k.Entity.PrimaryIdentity()
	return id != nil && len(id.Revocations) > 0
}

// maySign asks the key flags (RFC 9580, section 5.2.3.29). A primary key without flags may sign, as keys from before
// the flags existed; a subkey must say so, because only then has it signed its binding to the primary key.
func maySign(k openpgp.Key) bool {
	if k.SelfSignature != nil && k.SelfSignature.FlagsValid {
		return k.SelfSignature.FlagSign
	}
	return k.PublicKey == k.Entity.PrimaryKey
}

func expired(k openpgp.Key, now time.Time) bool {
	if self, _ := k.Entity.PrimarySelfSignature(); self != nil && k.Entity.PrimaryKey.KeyExpired(self, now) {
		return true
	}
	return k.SelfSignature != nil && k.PublicKey.KeyExpired(k.SelfSignature, now)
}

func identity(e *openpgp.Entity) string {
	if id := e.PrimaryIdentity(); id != nil {
		return id.Name
	}
	return ""
}

// messageSignature is one signature packet of a message. Exactly one of its fields is set.
type messageSignature struct {
	current *packet.Signature
	legacy  *legacypacket.SignatureV3
	// err says why the packet cannot be used; other signatures of the same message still count.
	err error
}

func (s messageSignature) hash() crypto.Hash {
	if s.legacy != nil {
		return s.legacy.Hash
	}
	return s.current.Hash
}

func (s messageSignature) by(k *packet.PublicKey) bool {
	if s.legacy != nil {
		return s.legacy.IssuerKeyId == k.KeyId
	}
	return s.current.CheckKeyIdOrFingerprint(k)
}

func (s messageSignature) keyID() string {
	switch {
	case s.legacy != nil:
		return fmt.Sprintf("%016X", s.legacy.IssuerKeyId)
	case s.current.IssuerKeyId != nil:
		return fmt.Sprintf("%016X", *s.current.IssuerKeyId)
	case len(s.current.IssuerFingerprint) > 0:
		return fmt.Sprintf("%X", s.current.IssuerFingerprint)
	}
	return "without an id"
}

func (s messageSignature) created() time.Time {
	if s.legacy != nil {
		return s.legacy.CreationTime
	}
	return s.current.CreationTime
}

// validUntil is zero for a signature that does not expire; version 3 signatures never do.
func (s messageSignature) validUntil() time.Time {
	if s.current == nil || s.current.SigLifetimeSecs == nil || *s.current.SigLifetimeSecs == 0 {
		return time.Time{}
	}
	return s.current.CreationTime.Add(time.Duration(*s.current.SigLifetimeSecs) * time.Second)
}

// verify checks the signature over the body, and nothing about the key.
func (s messageSignature) verify(key *packet.PublicKey, body []byte) error {
	if s.legacy != nil {
		return verifyLegacy(s.legacy, key, body)
	}
	for _, n := range s.current.Notations {
		if n.IsCritical {
			return fmt.Errorf("it carries the critical notation %q, which is unknown here", n.Name)
		}
	}
	h, err := s.current.PrepareVerify()
	if err != nil {
		return err
	}
	if err := hashBody(h, byte(s.current.SigType), body); err != nil {
		return err
	}
	return key.VerifySignature(h, s.current)
}

// verifyLegacy checks a version 3 signature; RSA only, which is what such signatures of releases are made with.
func verifyLegacy(s *legacypacket.SignatureV3, key *packet.PublicKey, body []byte) error {
	public, ok := key.PublicKey.(*rsa.PublicKey)
	if !ok {
		return errors.New("version 3 signatures are accepted with RSA keys only")
	}
	h := s.Hash.New()
	if err := hashBody(h, byte(s.SigType), body); err != nil {
		return err
	}
	return legacypacket.NewRSAPublicKey(key.CreationTime, public).VerifySignatureV3(h, s)
}

func hashBody(h hash.Hash, kind byte, body []byte) error {
	switch packet.SignatureType(kind) {
	case packet.SigTypeBinary:
		h.Write(body)
	case packet.SigTypeText:
		openpgp.NewCanonicalTextHash(h).Write(body)
	default:
		return fmt.Errorf("it is of type 0x%02x, expected a signature of a document", kind)
	}
	return nil
}
