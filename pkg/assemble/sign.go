package assemble

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

// KeyType is a kind of signing key; it decides the form of signatures and where they are kept.
type KeyType string

const (
	// OpenPGPKey signs messages that are kept in signature stores.
	OpenPGPKey KeyType = "openpgp"
	// SigstoreKey signs documents that are kept beside the image in its registry.
	SigstoreKey KeyType = "sigstore"
)

// creator is written into claims.
const creator = "cvo"

// SigningKey is a private key that signs release images. Make it with ReadSigningKey.
type SigningKey struct {
	openpgp *openpgp.Entity
	private any
	public  signature.PublicKeyProvider
}

// Type tells what the key can make.
func (k SigningKey) Type() KeyType {
	if k.openpgp != nil {
		return OpenPGPKey
	}
	return SigstoreKey
}

// ReadSigningKey reads a private key: OpenPGP (armored), or PEM (PKCS #8, SEC 1, PKCS #1, or encrypted as cosign
// writes it; ECDSA, RSA or Ed25519). The kind is told from the content. The passphrase is used if the key is
// encrypted; an encrypted key without a passphrase is an error.
func ReadSigningKey(data, passphrase []byte) (SigningKey, error) {
	if bytes.Contains(data, []byte("-----BEGIN PGP ")) {
		e, err := readOpenPGPKey(data, passphrase)
		if err != nil {
			return SigningKey{}, fmt.Errorf("reading OpenPGP signing key: %w", err)
		}
		return SigningKey{openpgp: e}, nil
	}
	if block, _ := pem.Decode(data); block == nil {
		return SigningKey{}, errors.New("reading signing key: neither an armored OpenPGP private key nor a PEM private key; " +
			"`cvo release keygen` makes one")
	}
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(data, func(bool) ([]byte, error) {
		if len(passphrase) == 0 {
			return nil, errors.New("the key is encrypted: name a file with its passphrase by --passphrase-file")
		}
		return passphrase, nil
	})
	if err != nil {
		return SigningKey{}, fmt.Errorf("reading PEM signing key: %w", err)
	}
	signer, err := signature.LoadDefaultSigner(private)
	if err != nil {
		return SigningKey{}, fmt.Errorf("reading PEM signing key: %w", err)
	}
	return SigningKey{private: private, public: signer}, nil
}

func readOpenPGPKey(data, passphrase []byte) (*openpgp.Entity, error) {
	block, err := armor.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if block.Type != openpgp.PrivateKeyType {
		return nil, fmt.Errorf("it is a %s, signing takes a %s", block.Type, openpgp.PrivateKeyType)
	}
	entities, err := openpgp.ReadKeyRing(block.Body)
	if err != nil {
		return nil, err
	}
	if len(entities) != 1 || entities[0].PrivateKey == nil {
		return nil, fmt.Errorf("it holds %d keys: export the one private key that is to sign", len(entities))
	}
	e := entities[0]
	encrypted := e.PrivateKey.Encrypted
	for _, sub := range e.Subkeys {
		encrypted = encrypted || sub.PrivateKey != nil && sub.PrivateKey.Encrypted
	}
	if !encrypted {
		return e, nil
	}
	if len(passphrase) == 0 {
		return nil, errors.New("the key is encrypted: name a file with its passphrase by --passphrase-file")
	}
	if err := e.DecryptPrivateKeys(passphrase); err != nil {
		return nil, fmt.Errorf("decrypting it: %w", err)
	}
	return e, nil
}

// signedClaim is the statement that gets signed (containers/image signature format): the digest is an image of that
// name. Field order and names are part of the format.
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

// claimFor writes the claim; the reference defaults to the repository of the pullspec.
func claimFor(kind string, image release.Image, reference string, at time.Time) ([]byte, error) {
	if _, err := release.ParseDigest(string(image.Digest)); err != nil {
		return nil, err
	}
	if reference == "" {
		reference = image.Repository()
	}
	if reference == "" {
		return nil, errors.New("the claim needs a name for the image: give --reference")
	}
	c := signedClaim{Optional: optionalClaim{Creator: creator, Timestamp: at.Unix()}}
	c.Critical.Type = kind
	c.Critical.Image.Digest = string(image.Digest)
	c.Critical.Identity.Reference = reference
	return json.Marshal(c)
}

// readAllBounded reads what we wrote earlier, and not more than a signature file can sensibly hold.
func readAllBounded(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	return data, err
}
