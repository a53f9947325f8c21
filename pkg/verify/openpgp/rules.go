package openpgp

import (
	"crypto"
	"crypto/dsa" //nolint:staticcheck // see keyring.go
	"crypto/rsa"
	"fmt"
	"slices"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// The default minimum length of RSA and DSA keys that sign releases, and the lowest minimum that a policy may set. The cryptographic
// library does not support shorter keys.
const (
	minimumRSABits = 2048
	leastRSABits   = 1024
)

// Rules make verification stricter or laxer than the default, which is the zero value.
//
// The default is stricter than OpenShift's operator in two respects: OpenShift's operator accepts release signatures that use SHA-1, and
// keys of any length. Fields with the prefix Unsafe allow these again, for platforms whose old releases need them. Where a stricter rule
// would exclude real keys, the default is compatible: signatures count even after their key has expired, and self-signatures of a keyring
// may use SHA-1, because the keyring as a whole is trusted.
type Rules struct {
	// RefuseExpiredKeys rejects signatures by keys that have expired since. The default accepts them, as OpenShift's operator does: the
	// owner no longer signs with an expired key, but older releases stay valid. Revoked keys are always rejected.
	RefuseExpiredKeys bool `json:"refuseExpiredKeys,omitempty"`
	// UnsafeAllowSHA1 accepts release signatures that use SHA-1. An attacker can then create two different claims with the same signature.
	// MD5 and RIPEMD-160 are always rejected.
	UnsafeAllowSHA1 bool `json:"unsafeAllowSHA1,omitempty"`
	// UnsafeMinimumRSABits lowers the minimum length of RSA and DSA keys to a value from 1024 to 2047 bits; zero means the default of 2048
	// bits.
	UnsafeMinimumRSABits int `json:"unsafeMinimumRSABits,omitempty"`
}

// Validate rejects values out of range.
func (r Rules) Validate() error {
	if bits := r.UnsafeMinimumRSABits; bits != 0 && (bits < leastRSABits || bits >= minimumRSABits) {
		return fmt.Errorf("unsafeMinimumRSABits is %d: set it between %d and %d, or omit it to require %d bits",
			bits, leastRSABits, minimumRSABits-1, minimumRSABits)
	}
	return nil
}

// CheckKey rejects a key that is shorter than the minimum. Elliptic curves need no such rule, because all supported curves have 256 bits or
// more.
func (r Rules) CheckKey(k *packet.PublicKey) error {
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

// checkHash rejects MD5, SHA-1 and RIPEMD-160, because attackers can create different messages with the same hash.
func (r Rules) checkHash(h crypto.Hash) error {
	allowed := []crypto.Hash{crypto.SHA224, crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}
	if r.UnsafeAllowSHA1 {
		allowed = append(allowed, crypto.SHA1)
	}
	if !slices.Contains(allowed, h) || !h.Available() {
		return fmt.Errorf("hash algorithm %v is not accepted", h)
	}
	return nil
}

// algorithmName describes the algorithms of a signature, such as "RSA-4096/SHA-256".
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
