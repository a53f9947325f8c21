package assemble

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/atomicfile"
	"github.com/cluster-version/cvo/pkg/verify"
)

// openPGPBits is the RSA key size of OpenPGP keys that we make. RSA, because OpenShift's verifier reads no EdDSA keys.
const openPGPBits = 3072

// encryptedPEM is the PEM type under which cosign keeps encrypted private keys.
const encryptedPEM = "ENCRYPTED SIGSTORE PRIVATE KEY"

// KeyOptions say what key to make.
type KeyOptions struct {
	// Type defaults to SigstoreKey.
	Type KeyType
	// Name names the root of trust and the OpenPGP user; default "release".
	Name string
	// Email belongs to the OpenPGP user; may be empty.
	Email string
	// Passphrase encrypts the private key; empty leaves it as it is.
	Passphrase []byte
	// Stores are the URLs of signature stores that the trust policy names (OpenPGP only).
	Stores []string
	// Time is when the key says it was made.
	Time time.Time
}

// KeyPair is a new key and what others need to trust it.
type KeyPair struct {
	Type KeyType
	// Private and Public are armored (OpenPGP) or PEM (sigstore).
	Private, Public []byte
	// Trust is a TrustPolicy document for --trust.
	Trust []byte
}

// GenerateKey makes a key pair and the trust policy that accepts its signatures: OpenPGP as RSA without expiry,
// sigstore as ECDSA P-256.
func GenerateKey(opts KeyOptions) (KeyPair, error) {
	if opts.Type == "" {
		opts.Type = SigstoreKey
	}
	if opts.Name == "" {
		opts.Name = "release"
	}
	generate := generateSigstore
	switch opts.Type {
	case OpenPGPKey:
		generate = generateOpenPGP
	case SigstoreKey:
		if len(opts.Stores) > 0 {
			return KeyPair{}, errors.New("sigstore signatures are kept in the image's registry: stores are for OpenPGP keys")
		}
	default:
		return KeyPair{}, fmt.Errorf("unknown key type %q: use openpgp or sigstore", opts.Type)
	}
	pair, spec, err := generate(opts)
	if err != nil {
		return KeyPair{}, fmt.Errorf("generating %s key: %w", opts.Type, err)
	}
	pair.Type = opts.Type
	policy := verify.TrustPolicy{
		APIVersion: verify.TrustAPIVersion, Kind: verify.TrustKind,
		Metadata: verify.TrustMetadata{Name: opts.Name}, Spec: spec,
	}
	if pair.Trust, err = yaml.Marshal(policy); err != nil {
		return KeyPair{}, fmt.Errorf("generating %s key: %w", opts.Type, err)
	}
	return pair, nil
}

func generateOpenPGP(opts KeyOptions) (KeyPair, verify.TrustSpec, error) {
	config := &packet.Config{
		Algorithm: packet.PubKeyAlgoRSA, RSABits: openPGPBits, DefaultHash: crypto.SHA256,
		Time: func() time.Time { return opts.Time },
	}
	e, err := openpgp.NewEntity(opts.Name, "", opts.Email, config)
	if err != nil {
		return KeyPair{}, verify.TrustSpec{}, err
	}
	public, err := armored(openpgp.PublicKeyType, e.Serialize)
	if err != nil {
		return KeyPair{}, verify.TrustSpec{}, err
	}
	if len(opts.Passphrase) > 0 {
		if err := e.EncryptPrivateKeys(opts.Passphrase, config); err != nil {
			return KeyPair{}, verify.TrustSpec{}, err
		}
	}
	private, err := armored(openpgp.PrivateKeyType, func(w io.Writer) error { return e.SerializePrivateWithoutSigning(w, config) })
	if err != nil {
		return KeyPair{}, verify.TrustSpec{}, err
	}
	spec := verify.TrustSpec{OpenPGP: &verify.OpenPGPTrust{
		Keyrings: []verify.TrustedKeyring{{Name: opts.Name, Armored: string(public)}}, Stores: opts.Stores,
	}}
	return KeyPair{Private: private, Public: public}, spec, nil
}

func generateSigstore(opts KeyOptions) (KeyPair, verify.TrustSpec, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, verify.TrustSpec{}, err
	}
	public, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	if err != nil {
		return KeyPair{}, verify.TrustSpec{}, err
	}
	private, err := privatePEM(key, opts.Passphrase)
	if err != nil {
		return KeyPair{}, verify.TrustSpec{}, err
	}
	spec := verify.TrustSpec{Sigstore: &verify.SigstoreTrust{
		PublicKeys: []verify.TrustedPublicKey{{Name: opts.Name, PEM: string(public)}},
	}}
	return KeyPair{Private: private, Public: public}, spec, nil
}

func privatePEM(key crypto.PrivateKey, passphrase []byte) ([]byte, error) {
	if len(passphrase) == 0 {
		return cryptoutils.MarshalPrivateKeyToPEM(key)
	}
	der, err := cryptoutils.MarshalPrivateKeyToEncryptedDER(key, cryptoutils.StaticPasswordFunc(passphrase))
	if err != nil {
		return nil, err
	}
	return cryptoutils.PEMEncode(encryptedPEM, der), nil
}

func armored(kind string, serialize func(w io.Writer) error) ([]byte, error) {
	var out bytes.Buffer
	w, err := armor.Encode(&out, kind, nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(serialize(w), w.Close()); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Names of the files that WriteFolder writes.
const (
	TrustFile          = "trust.yaml"
	openPGPPrivateFile = "private.asc"
	openPGPPublicFile  = "public.asc"
	pemPrivateFile     = "private.pem"
	pemPublicFile      = "public.pem"
)

// WriteFolder writes the pair and the trust policy into a folder, which is made if it is not there, and returns the
// private key's path. No file is ever overwritten: a key that is lost cannot be made again.
func (p KeyPair) WriteFolder(dir string) (string, error) {
	private, public := pemPrivateFile, pemPublicFile
	if p.Type == OpenPGPKey {
		private, public = openPGPPrivateFile, openPGPPublicFile
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("writing key: %w", err)
	}
	files := []struct {
		name string
		data []byte
		mode fs.FileMode
	}{{private, p.Private, 0o600}, {public, p.Public, 0o644}, {TrustFile, p.Trust, 0o644}}
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); err == nil {
			return "", fmt.Errorf("writing key: %s is there already: name another folder", filepath.Join(dir, f.name))
		}
	}
	for _, f := range files {
		if err := atomicfile.Create(filepath.Join(dir, f.name), f.mode, atomicfile.Content(f.data)); err != nil {
			return "", fmt.Errorf("writing key: %w", err)
		}
	}
	return filepath.Join(dir, private), nil
}
