package verify

import (
	"crypto"
	"crypto/rsa"
	"errors"
	"fmt"
	"hash"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	legacypacket "golang.org/x/crypto/openpgp/packet" //nolint:staticcheck // the only reader of version 3 signature packets, which real release signatures use
)

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
