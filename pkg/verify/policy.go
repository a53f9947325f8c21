package verify

import (
	"bytes"
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
	"io"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
)

// Policy says whom to trust and where their OpenPGP signatures are kept. Every keyring and every public key in it is a
// root of trust, and every root must have signed. The zero Policy trusts nobody.
type Policy struct {
	// Name says where the policy comes from, such as a file or a ConfigMap; it is part of messages.
	Name string
	// Keyrings are OpenPGP roots: one valid signature by any key of a keyring satisfies it.
	Keyrings []Keyring
	// Stores are URLs (http, https, file) of signature stores, asked at the same time.
	Stores []string
	// RefuseExpiredKeys refuses signatures by OpenPGP keys that have expired by now. The default accepts them, as
	// OpenShift's operator does: a key's expiry says when its owner stops signing, not that older releases go bad.
	// Revoked keys are refused in any case.
	RefuseExpiredKeys bool
	// SigstoreKeys are roots that sign by a bare key pair; their signatures are attached to the image.
	SigstoreKeys []PublicKey
}

// Empty reports whether the policy trusts nobody.
func (p Policy) Empty() bool { return len(p.Keyrings)+len(p.SigstoreKeys) == 0 }

func (p Policy) label() string {
	if p.Name == "" {
		return "the trust policy"
	}
	return fmt.Sprintf("trust policy %s", p.Name)
}

func (p Policy) validate() error {
	if p.Empty() {
		if p.Name == "" {
			return ErrNoPolicy
		}
		return fmt.Errorf("%s names no key: %w", p.label(), ErrNoPolicy)
	}
	seen := map[string]bool{}
	name := func(n string) error {
		if n == "" {
			return fmt.Errorf("%s has a key without a name: name every keyring and public key", p.label())
		}
		if seen[n] {
			return fmt.Errorf("%s has two keys named %q: give every keyring and public key a name of its own", p.label(), n)
		}
		seen[n] = true
		return nil
	}
	for _, k := range p.Keyrings {
		if err := name(k.Name); err != nil {
			return err
		}
		if len(k.entities) == 0 {
			return fmt.Errorf("%s: keyring %q holds no key: make it with NewKeyring", p.label(), k.Name)
		}
	}
	for _, k := range p.SigstoreKeys {
		if err := name(k.Name); err != nil {
			return err
		}
		if k.key == nil {
			return fmt.Errorf("%s: public key %q is empty: make it with NewPublicKey", p.label(), k.Name)
		}
	}
	return nil
}

func (p Policy) roots() []root {
	var out []root
	for _, k := range p.Keyrings {
		out = append(out, keyringRoot{Keyring: k, refuseExpired: p.RefuseExpiredKeys})
	}
	for _, k := range p.SigstoreKeys {
		out = append(out, publicKeyRoot{k})
	}
	return out
}

// Keyring is a set of OpenPGP public keys, each of which may sign for the whole. Make it with NewKeyring.
type Keyring struct {
	Name     string
	entities openpgp.EntityList
}

// NewKeyring reads one or more OpenPGP public keys, armored (several blocks and text around them are fine) or binary.
// Private keys are refused: whoever distributes them as a trust root has made a mistake.
func NewKeyring(name string, data []byte) (Keyring, error) {
	blocks := [][]byte{data}
	if bytes.Contains(data, []byte(armorStart)) {
		var err error
		if blocks, err = dearmor(data); err != nil {
			return Keyring{}, fmt.Errorf("reading OpenPGP keyring %q: %w", name, err)
		}
	}
	k := Keyring{Name: name}
	for _, b := range blocks {
		entities, err := openpgp.ReadKeyRing(bytes.NewReader(b))
		if err != nil {
			return Keyring{}, fmt.Errorf("reading OpenPGP keyring %q: %w", name, err)
		}
		k.entities = append(k.entities, entities...)
	}
	for _, e := range k.entities {
		if e.PrivateKey != nil {
			return Keyring{}, fmt.Errorf("reading OpenPGP keyring %q: it holds a private key: export the public key only", name)
		}
	}
	if len(k.entities) == 0 {
		return Keyring{}, fmt.Errorf("reading OpenPGP keyring %q: no public key in it", name)
	}
	return k, nil
}

const (
	armorStart      = "-----BEGIN PGP "
	publicKeyBlock  = "PGP PUBLIC KEY BLOCK"
	privateKeyBlock = "PGP PRIVATE KEY BLOCK"
)

// dearmor returns the contents of every armored key block in data.
func dearmor(data []byte) ([][]byte, error) {
	var out [][]byte
	for {
		i := bytes.Index(data, []byte(armorStart))
		if i < 0 {
			return out, nil
		}
		data = data[i:]
		block, err := armor.Decode(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("decoding armor: %w", err)
		}
		switch block.Type {
		case publicKeyBlock:
		case privateKeyBlock:
			return nil, errors.New("it holds a private key: export the public key only")
		default:
			return nil, fmt.Errorf("it holds a %s where a %s is expected", block.Type, publicKeyBlock)
		}
		body, err := io.ReadAll(block.Body)
		if err != nil {
			return nil, fmt.Errorf("decoding armor: %w", err)
		}
		out = append(out, body)
		data = data[len(armorStart):]
	}
}

// PublicKey is a sigstore root that is a bare public key. Make it with NewPublicKey.
type PublicKey struct {
	Name        string
	key         crypto.PublicKey
	fingerprint string
}

// Fingerprint is the SHA-256 of the key's DER form (PKIX) in hex.
func (k PublicKey) Fingerprint() string { return k.fingerprint }

const publicKeyPEM = "PUBLIC KEY"

// NewPublicKey reads one PEM public key: ECDSA (P-256, P-384, P-521), RSA of at least 2048 bits, or Ed25519.
func NewPublicKey(name string, data []byte) (PublicKey, error) {
	fail := func(why string) (PublicKey, error) {
		return PublicKey{}, fmt.Errorf("reading public key %q: %s", name, why)
	}
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return fail("no PEM block in it: expected -----BEGIN PUBLIC KEY-----")
	case block.Type != publicKeyPEM:
		return fail(fmt.Sprintf("it is a PEM %s, expected a PUBLIC KEY", block.Type))
	}
	if next, _ := pem.Decode(rest); next != nil {
		return fail("it holds several PEM blocks: list every key under a name of its own")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return PublicKey{}, fmt.Errorf("reading public key %q: %w", name, err)
	}
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if bits := k.Curve.Params().BitSize; bits < 256 {
			return fail(fmt.Sprintf("ECDSA with %d bits is too weak: use P-256 or larger", bits))
		}
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < 2048 {
			return fail(fmt.Sprintf("RSA with %d bits is too weak: use 2048 or more", bits))
		}
	case ed25519.PublicKey:
	default:
		return fail(fmt.Sprintf("keys of type %T are not supported: use ECDSA, RSA or Ed25519", key))
	}
	// The fingerprint is over our own encoding, so that two spellings of one key have one name.
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return PublicKey{}, fmt.Errorf("reading public key %q: %w", name, err)
	}
	sum := sha256.Sum256(der)
	return PublicKey{Name: name, key: key, fingerprint: hex.EncodeToString(sum[:])}, nil
}
