// Package sign signs release images and generates signing keys. It takes an image by digest and a private key. It returns OpenPGP messages
// for signature stores, or pushes sigstore signatures to the image's repository. Package verify verifies signatures.
package sign

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/cluster-version/cvo/pkg/release"
)

// KeyType is the type of a signing key. It determines the format of signatures and where they are stored.
type KeyType string

const (
	// OpenPGPKey signs messages for signature stores.
	OpenPGPKey KeyType = "openpgp"
	// SigstoreKey signs documents that are stored next to the image in its registry.
	SigstoreKey KeyType = "sigstore"
)

// creator is the creator recorded in claims.
const creator = "cvo"

// Key is a private key that signs release images. Create it with ReadKey.
type Key struct {
	openpgp *openpgp.Entity
	private any
	public  signature.PublicKeyProvider
}

// Type returns the type of the key.
func (k Key) Type() KeyType {
	if k.openpgp != nil {
		return OpenPGPKey
	}
	return SigstoreKey
}

// errEncrypted means that a key needs a passphrase.
var errEncrypted = errors.New("the key is encrypted: provide its passphrase with --passphrase-file")

// ReadKey reads a private key. The key is either an armored OpenPGP key or a PEM key (PKCS #8, SEC 1, PKCS #1, or encrypted by cosign;
// ECDSA, RSA or Ed25519). The passphrase decrypts an encrypted key. A nil passphrase means the empty passphrase, cosign's default. If a
// nil passphrase does not decrypt the key, the error asks for a passphrase.
func ReadKey(data, passphrase []byte) (Key, error) {
	if bytes.Contains(data, []byte("-----BEGIN PGP ")) {
		e, err := readOpenPGPKey(data, passphrase)
		if err != nil {
			return Key{}, fmt.Errorf("reading OpenPGP signing key: %w", err)
		}
		return Key{openpgp: e}, nil
	}
	if block, _ := pem.Decode(data); block == nil {
		return Key{}, errors.New("reading signing key: it is neither an armored OpenPGP private key nor a PEM private key; " +
			"create a key with `cvo release keygen`")
	}
	encrypted := false
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(data, func(bool) ([]byte, error) {
		encrypted = true
		return append([]byte{}, passphrase...), nil // nil would mean an unencrypted key
	})
	if encrypted && err != nil && passphrase == nil {
		err = errEncrypted
	}
	if err != nil {
		return Key{}, fmt.Errorf("reading PEM signing key: %w", err)
	}
	signer, err := signature.LoadDefaultSigner(private)
	if err != nil {
		return Key{}, fmt.Errorf("reading PEM signing key: %w", err)
	}
	return Key{private: private, public: signer}, nil
}

func readOpenPGPKey(data, passphrase []byte) (*openpgp.Entity, error) {
	block, err := armor.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if block.Type != openpgp.PrivateKeyType {
		return nil, fmt.Errorf("it contains %s, but signing needs %s", block.Type, openpgp.PrivateKeyType)
	}
	entities, err := openpgp.ReadKeyRing(block.Body)
	if err != nil {
		return nil, err
	}
	if len(entities) != 1 || entities[0].PrivateKey == nil {
		return nil, fmt.Errorf("it contains %d keys: export only the private key for signing", len(entities))
	}
	e := entities[0]
	encrypted := e.PrivateKey.Encrypted
	for _, sub := range e.Subkeys {
		encrypted = encrypted || sub.PrivateKey != nil && sub.PrivateKey.Encrypted
	}
	if !encrypted {
		return e, nil
	}
	switch err := e.DecryptPrivateKeys(passphrase); {
	case err != nil && passphrase == nil:
		return nil, errEncrypted
	case err != nil:
		return nil, fmt.Errorf("decrypting the key: %w", err)
	}
	return e, nil
}

// signedClaim is the signed statement that the image with this digest has this name (containers/image signature format). The format
// defines the order and names of the fields.
type signedClaim struct {
	Critical criticalClaim `json:"critical"`
	Optional optionalClaim `json:"optional"`
}

type criticalClaim struct {
	Image struct {
		Digest string `json:"docker-manifest-digest"`
	} `json:"image"`
	Type     string `json:"type"`
	Identity struct {
		Reference string `json:"docker-reference"`
	} `json:"identity"`
}

type optionalClaim struct {
	Creator   string `json:"creator"`
	Timestamp int64  `json:"timestamp"`
}

// claimFor returns the claim as JSON. An empty reference selects the repository of the pullspec.
func claimFor(kind string, image release.Image, reference string, at time.Time) ([]byte, error) {
	if _, err := release.ParseDigest(string(image.Digest)); err != nil {
		return nil, err
	}
	if reference == "" {
		reference = image.Repository()
	}
	if reference == "" {
		return nil, errors.New("the claim needs a name for the image: add --reference")
	}
	c := signedClaim{Optional: optionalClaim{Creator: creator, Timestamp: at.Unix()}}
	c.Critical.Type = kind
	c.Critical.Image.Digest = string(image.Digest)
	c.Critical.Identity.Reference = reference
	return json.Marshal(c)
}

// readAllBounded reads up to limit bytes. It fails if there are more.
func readAllBounded(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	return data, err
}
