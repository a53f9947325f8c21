// Package openpgp checks OpenPGP signatures of releases. Its inputs are a keyring, a signed message with a claim, and rules for keys and
// algorithms. It returns evidence (the key, its owner and the signing time) or the reason why the message proves nothing. Messages may come
// from attackers, so it limits their size, depth and computing time. Callers find the messages and choose the keyrings.
package openpgp

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
	"github.com/cluster-version/cvo/pkg/verify/claim"
)

// verifier checks signatures against a keyring and rules.
type verifier struct {
	Keyring
	rules Rules
}

// Verify returns the signer if the message contains a valid signature of the digest by a key of the keyring. It parses the claim only after
// it has verified a signature over it.
func (k Keyring) Verify(m *Message, digest release.Digest, rules Rules, now time.Time) (release.Evidence, error) {
	v := verifier{Keyring: k, rules: rules}
	var failures []error
	for _, s := range m.signatures {
		e, err := v.checkSignature(m.body, s, now)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if err := claim.CheckAtomic(m.body, digest); err != nil {
			return release.Evidence{}, err
		}
		e.Message = m.raw
		return e, nil
	}
	return release.Evidence{}, joinFailures(failures)
}

// joinFailures joins the errors for a message's signatures into one line.
func joinFailures(failures []error) error {
	texts := make([]string, len(failures))
	for i, err := range failures {
		texts[i] = err.Error()
	}
	return api.Reworded(errors.Join(failures...), strings.Join(slices.Compact(texts), " and "))
}

func (v verifier) checkSignature(body []byte, s signature, now time.Time) (release.Evidence, error) {
	if s.err != nil {
		return release.Evidence{}, s.err
	}
	if err := v.rules.checkHash(s.hash()); err != nil {
		return release.Evidence{}, err
	}
	keys := slices.DeleteFunc(v.keys(), func(k openpgp.Key) bool { return !s.by(k.PublicKey) })
	if len(keys) == 0 {
		return release.Evidence{}, v.unknown(s)
	}
	var failures []error
	for _, k := range keys {
		err := v.checkWithKey(k, body, s, now)
		if err == nil {
			return release.Evidence{
				Identity: identity(k.Entity), KeyID: fmt.Sprintf("%016X", k.PublicKey.KeyId), Fingerprint: fingerprint(k.Entity.PrimaryKey),
				Algorithm: algorithmName(k.PublicKey, s.hash()), SignedAt: s.created().UTC(),
			}, nil
		}
		failures = append(failures, err)
	}
	return release.Evidence{}, joinFailures(failures)
}

// unknown returns the error for a signer that is not in the keyring. It lists the skipped keys, because one of them may be the signer.
func (v verifier) unknown(s signature) error {
	if len(v.skipped) > 0 {
		return fmt.Errorf("signed by key %s, which is not among the usable keys of this keyring (%s)", s.keyID(), strings.Join(v.skipped, "; "))
	}
	return fmt.Errorf("signed by key %s, which is not in this keyring", s.keyID())
}

func (v verifier) checkWithKey(k openpgp.Key, body []byte, s signature, now time.Time) error {
	if err := v.rules.CheckKey(k.PublicKey); err != nil {
		return fmt.Errorf("key %s is too weak: %w", s.keyID(), err)
	}
	if err := s.verify(k.PublicKey, body); err != nil {
		return fmt.Errorf("the signature by key %s is not valid: %w", s.keyID(), err)
	}
	if err := v.usable(k, v.rules); err != nil {
		return err
	}
	if v.rules.RefuseExpiredKeys && expired(k, now) {
		return fmt.Errorf("key %s has expired", s.keyID())
	}
	// A signature from the future is accepted, as in OpenShift's operator. The signer can choose any date, and a future date usually means
	// that the clock of a new cluster is wrong.
	if until := s.validUntil(); !until.IsZero() && now.After(until) {
		return fmt.Errorf("the signature by key %s expired at %s", s.keyID(), until.UTC().Format(time.RFC3339))
	}
	return nil
}

// maySign checks the key flags (RFC 9580, section 5.2.3.29). A primary key without flags may sign, because old keys predate the flags. A
// subkey needs the flag: only with it has the subkey signed its binding to the primary key.
func maySign(k openpgp.Key) bool {
	if !k.PublicKey.PubKeyAlgo.CanSign() {
		return false
	}
	if k.SelfSignature != nil && k.SelfSignature.FlagsValid {
		return k.SelfSignature.FlagSign
	}
	return k.PublicKey == k.Entity.PrimaryKey
}

// expired reports whether the key or, for a subkey, its primary key has expired.
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
