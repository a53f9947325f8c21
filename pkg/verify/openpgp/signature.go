package openpgp

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

// signature is one signature packet of a message. Exactly one of the fields is set.
type signature struct {
	current *packet.Signature
	legacy  *legacypacket.SignatureV3
	// err is the reason why the packet is unusable. Other signatures of the message still count.
	err error
}

func (s signature) hash() crypto.Hash {
	if s.legacy != nil {
		return s.legacy.Hash
	}
	return s.current.Hash
}

func (s signature) by(k *packet.PublicKey) bool {
	if s.legacy != nil {
		return s.legacy.IssuerKeyId == k.KeyId
	}
	return s.current.CheckKeyIdOrFingerprint(k)
}

func (s signature) keyID() string {
	switch {
	case s.legacy != nil:
		return fmt.Sprintf("%016X", s.legacy.IssuerKeyId)
	case s.current.IssuerKeyId != nil:
		return fmt.Sprintf("%016X", *s.current.IssuerKeyId)
	case len(s.current.IssuerFingerprint) > 0:
		return fmt.Sprintf("%X", s.current.IssuerFingerprint)
	}
	return "without an ID"
}

func (s signature) created() time.Time {
	if s.legacy != nil {
		return s.legacy.CreationTime
	}
	return s.current.CreationTime
}

// validUntil returns the expiry time of a signature, or zero if it does not expire. Version 3 signatures never expire.
func (s signature) validUntil() time.Time {
	if s.current == nil || s.current.SigLifetimeSecs == nil || *s.current.SigLifetimeSecs == 0 {
		return time.Time{}
	}
	return s.current.CreationTime.Add(time.Duration(*s.current.SigLifetimeSecs) * time.Second)
}

// verify checks the signature over the body. It does not check whether the key may sign.
func (s signature) verify(key *packet.PublicKey, body []byte) error {
	if s.legacy != nil {
		return verifyLegacy(s.legacy, key, body)
	}
	for _, n := range s.current.Notations {
		if n.IsCritical {
			return fmt.Errorf("it carries the unknown critical notation %q", n.Name)
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

// verifyLegacy checks a version 3 signature. It supports only RSA, because all such release signatures use RSA.
func verifyLegacy(s *legacypacket.SignatureV3, key *packet.PublicKey, body []byte) error {
	public, ok := key.PublicKey.(*rsa.PublicKey)
	if !ok {
		return errors.New("version 3 signatures are accepted only from RSA keys")
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
		return fmt.Errorf("it is of type 0x%02x, expected a document signature", kind)
	}
	return nil
}
