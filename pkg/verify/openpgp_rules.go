package verify

import (
	"crypto"
	"crypto/dsa" //nolint:staticcheck // see keyring.go
	"crypto/rsa"
	"fmt"
	"slices"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// The least length of RSA and DSA keys that sign releases, and the least that a policy may lower it to: the
// cryptographic library itself computes with nothing shorter.
const (
	minimumRSABits = 2048
	leastRSABits   = 1024
)

// OpenPGPRules are where an administrator may be stricter or laxer than the default, which is the zero value.
//
// The default is stricter than OpenShift's operator in two things, which accepts release signatures over SHA-1 and by
// keys of any length; the fields named unsafe bring that back for platforms whose old releases need it. Where a
// difference would lock out real keys the default is compatible: keys that have expired since still count, and the
// self-signatures of a keyring may be over SHA-1, because the keyring as a whole is trusted already.
type OpenPGPRules struct {
	// RefuseExpiredKeys refuses signatures by keys that have expired by now. The default accepts them, as
	// OpenShift's operator does: a key's expiry says when its owner stops signing, not that older releases go bad.
	// Revoked keys are refused in any case.
	RefuseExpiredKeys bool `json:"refuseExpiredKeys,omitempty"`
	// UnsafeAllowSHA1 accepts release signatures over SHA-1, for which two different claims with one signature can be
	// made. MD5 and RIPEMD-160 are never accepted.
	UnsafeAllowSHA1 bool `json:"unsafeAllowSHA1,omitempty"`
	// UnsafeMinimumRSABits accepts RSA and DSA keys that are shorter than 2048 bits, from that length on; between
	// 1024 and 2047, zero means 2048.
	UnsafeMinimumRSABits int `json:"unsafeMinimumRSABits,omitempty"`
}

func (r OpenPGPRules) validate() error {
	if bits := r.UnsafeMinimumRSABits; bits != 0 && (bits < leastRSABits || bits >= minimumRSABits) {
		return fmt.Errorf("unsafeMinimumRSABits is %d: set it between %d and %d, or leave it out to require %d bits",
			bits, leastRSABits, minimumRSABits-1, minimumRSABits)
	}
	return nil
}

// CheckKey holds a key against the least length. Elliptic curves need no such rule: those that can be read have 256
// bits or more.
func (r OpenPGPRules) CheckKey(k *packet.PublicKey) error {
	var bits int
	switch key := k.PublicKey.(type) {
	case *rsa.PublicKey:
		bits = key.N.BitLen()
	case *dsa.PublicKey:
		bits = key.P.BitLen()
	default:
		return nil
	}
	least := minimumRSABits
	if r.UnsafeMinimumRSABits != 0 {
		least = r.UnsafeMinimumRSABits
	}
	if bits < least {
		return fmt.Errorf("it has %d bits, at least %d are required", bits, least)
	}
	return nil
}

// checkHash leaves out MD5, SHA-1 and RIPEMD-160, for which different messages with one hash can be made.
func (r OpenPGPRules) checkHash(h crypto.Hash) error {
	allowed := []crypto.Hash{crypto.SHA224, crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}
	if r.UnsafeAllowSHA1 {
		allowed = append(allowed, crypto.SHA1)
	}
	if !slices.Contains(allowed, h) || !h.Available() {
		return fmt.Errorf("hash algorithm %v is not accepted", h)
	}
	return nil
}

// algorithmName says how a signature was made, such as "RSA-4096/SHA-256".
func algorithmName(k *packet.PublicKey, h crypto.Hash) string {
	return keyAlgorithm(k) + "/" + h.String()
}

func keyAlgorithm(k *packet.PublicKey) string {
	bits, _ := k.BitLength()
	curve, _ := k.Curve()
	switch k.PubKeyAlgo {
	case packet.PubKeyAlgoRSA, packet.PubKeyAlgoRSASignOnly:
		return fmt.Sprintf("RSA-%d", bits)
	case packet.PubKeyAlgoDSA:
		return fmt.Sprintf("DSA-%d", bits)
	case packet.PubKeyAlgoECDSA:
		return "ECDSA-" + string(curve)
	case packet.PubKeyAlgoEdDSA, packet.PubKeyAlgoEd25519, packet.PubKeyAlgoEd448:
		if curve == packet.Curve448 {
			return "Ed448"
		}
		return "Ed25519"
	case packet.PubKeyAlgoMldsa65Ed25519:
		return "ML-DSA-65+Ed25519"
	case packet.PubKeyAlgoMldsa87Ed448:
		return "ML-DSA-87+Ed448"
	case packet.PubKeyAlgoSlhdsaShake128s:
		return "SLH-DSA-SHAKE-128s"
	case packet.PubKeyAlgoSlhdsaShake128f:
		return "SLH-DSA-SHAKE-128f"
	case packet.PubKeyAlgoSlhdsaShake256s:
		return "SLH-DSA-SHAKE-256s"
	default:
		return fmt.Sprintf("algorithm %d", k.PubKeyAlgo)
	}
}
