package verify

import (
	_ "crypto/sha256" // signature hashes
	_ "crypto/sha3"
	_ "crypto/sha512"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// keyringRoot is satisfied by a signed message from any key of the keyring.
type keyringRoot struct {
	Keyring
	rules OpenPGPRules
}

func (r keyringRoot) name() string   { return r.Name }
func (r keyringRoot) method() string { return MethodOpenPGP }
func (r keyringRoot) kind() string   { return kindKeyring }

func (r keyringRoot) fingerprints() []string {
	out := make([]string, len(r.entities))
	for i, e := range r.entities {
		out[i] = fingerprint(e.PrimaryKey)
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
		e.Message = c.message.raw
		return e, nil
	}
	return release.Evidence{}, oneOrMore(failures)
}

// oneOrMore makes one line of what was said about the signatures of a message.
func oneOrMore(failures []error) error {
	texts := make([]string, len(failures))
	for i, err := range failures {
		texts[i] = err.Error()
	}
	return api.Reworded(errors.Join(failures...), strings.Join(slices.Compact(texts), " and "))
}

func (r keyringRoot) checkSignature(body []byte, s messageSignature, now time.Time) (release.Evidence, error) {
	if s.err != nil {
		return release.Evidence{}, s.err
	}
	if err := r.rules.checkHash(s.hash()); err != nil {
		return release.Evidence{}, err
	}
	keys := slices.DeleteFunc(r.keys(), func(k openpgp.Key) bool { return !s.by(k.PublicKey) })
	if len(keys) == 0 {
		return release.Evidence{}, r.unknown(s)
	}
	var failures []error
	for _, k := range keys {
		err := r.checkWithKey(k, body, s, now)
		if err == nil {
			return release.Evidence{
				Identity: identity(k.Entity), KeyID: fmt.Sprintf("%016X", k.PublicKey.KeyId), Fingerprint: fingerprint(k.Entity.PrimaryKey),
				Algorithm: algorithmName(k.PublicKey, s.hash()), SignedAt: s.created().UTC(),
			}, nil
		}
		failures = append(failures, err)
	}
	return release.Evidence{}, oneOrMore(failures)
}

// unknown says that the signer is not in the keyring, and which keys of it were left out: it may be one of them.
func (r keyringRoot) unknown(s messageSignature) error {
	if len(r.skipped) > 0 {
		return fmt.Errorf("signed by key %s, which is not among the usable keys of this keyring (%s)", s.keyID(), strings.Join(r.skipped, "; "))
	}
	return fmt.Errorf("signed by key %s, which is not in this keyring", s.keyID())
}

func (r keyringRoot) checkWithKey(k openpgp.Key, body []byte, s messageSignature, now time.Time) error {
	if err := r.rules.CheckKey(k.PublicKey); err != nil {
		return fmt.Errorf("key %s is too weak: %w", s.keyID(), err)
	}
	if err := s.verify(k.PublicKey, body); err != nil {
		return fmt.Errorf("the signature by key %s is not valid: %w", s.keyID(), err)
	}
	if err := r.usable(k, r.rules); err != nil {
		return err
	}
	if r.rules.RefuseExpiredKeys && expired(k, now) {
		return fmt.Errorf("key %s has expired", s.keyID())
	}
	// A signature from the future is accepted, as OpenShift's operator does: a date is the signer's to choose, and the
	// clock that is wrong is more often that of a new cluster.
	if until := s.validUntil(); !until.IsZero() && now.After(until) {
		return fmt.Errorf("the signature by key %s has expired at %s", s.keyID(), until.UTC().Format(time.RFC3339))
	}
	return nil
}

// maySign asks the key flags (RFC 9580, section 5.2.3.29). A primary key without flags may sign, as keys from before
// the flags existed; a subkey must say so, because only then has it signed its binding to the primary key.
func maySign(k openpgp.Key) bool {
	if !k.PublicKey.PubKeyAlgo.CanSign() {
		return false
	}
	if k.SelfSignature != nil && k.SelfSignature.FlagsValid {
		return k.SelfSignature.FlagSign
	}
	return k.PublicKey == k.Entity.PrimaryKey
}

// expired asks the key and, for a subkey, also its primary key.
func expired(k openpgp.Key, now time.Time) bool {
	if self := selfSignature(k.Entity); self != nil && k.Entity.PrimaryKey.KeyExpired(self, now) {
		return true
	}
	return k.SelfSignature != nil && k.PublicKey.KeyExpired(k.SelfSignature, now)
}

func identity(e *openpgp.Entity) string {
	if id := mainIdentity(e); id != nil {
		return id.Name
	}
	return ""
}
