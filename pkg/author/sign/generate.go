package sign

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

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/pkg/verify/policy"
)

// openPGPBits is the size of generated RSA keys for OpenPGP. OpenShift's verifier does not support EdDSA.
const openPGPBits = 3072

// encryptedPEM is cosign's PEM type for encrypted private keys.
const encryptedPEM = "ENCRYPTED SIGSTORE PRIVATE KEY"

// KeyOptions configure GenerateKey.
type KeyOptions struct {
	// Type is the type of the key; default SigstoreKey.
	Type KeyType
	// Name is the name of the root of trust and of the OpenPGP user; default "release".
	Name string
	// Email is the email address of the OpenPGP user; may be empty.
	Email string
	// Passphrase encrypts the private key. If empty, the key is not encrypted.
	Passphrase []byte
	// Stores are the URLs of signature stores for the trust policy (only for OpenPGP).
	Stores []string
	// Time is the creation time recorded in the key.
	Time time.Time
}

// KeyPair is a key pair with a trust policy that accepts its signatures.
type KeyPair struct {
	Type KeyType
	// Private and Public are armored (OpenPGP) or PEM-encoded (sigstore).
	Private, Public []byte
	// Trust is a TrustPolicy document for --trust.
	Trust []byte
}

// GenerateKey creates a key pair and a trust policy that accepts its signatures. OpenPGP keys are RSA keys that never expire. Sigstore
// keys are ECDSA P-256 keys. GenerateKey fails for an unknown type, and for a sigstore key with stores.
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
			return KeyPair{}, errors.New("signature stores are for OpenPGP keys; sigstore signatures are stored in the image's registry")
		}
	default:
		return KeyPair{}, fmt.Errorf("unknown key type %q: use openpgp or sigstore", opts.Type)
	}
	pair, spec, err := generate(opts)
	if err != nil {
		return KeyPair{}, fmt.Errorf("generating %s key: %w", opts.Type, err)
	}
	pair.Type = opts.Type
	document := policy.Document{
		APIVersion: policy.APIVersion, Kind: policy.Kind,
		Metadata: policy.Metadata{Name: opts.Name}, Spec: spec,
	}
	if pair.Trust, err = yaml.Marshal(document); err != nil {
		return KeyPair{}, fmt.Errorf("generating %s key: %w", opts.Type, err)
	}
	return pair, nil
}

func generateOpenPGP(opts KeyOptions) (KeyPair, policy.Spec, error) {
	config := &packet.Config{
		Algorithm: packet.PubKeyAlgoRSA, RSABits: openPGPBits, DefaultHash: crypto.SHA256,
		Time: func() time.Time { return opts.Time },
	}
	e, err := openpgp.NewEntity(opts.Name, "", opts.Email, config)
	if err != nil {
		return KeyPair{}, policy.Spec{}, err
	}
	public, err := armored(openpgp.PublicKeyType, e.Serialize)
	if err != nil {
		return KeyPair{}, policy.Spec{}, err
	}
	if len(opts.Passphrase) > 0 {
		if err := e.EncryptPrivateKeys(opts.Passphrase, config); err != nil {
			return KeyPair{}, policy.Spec{}, err
		}
	}
	private, err := armored(openpgp.PrivateKeyType, func(w io.Writer) error { return e.SerializePrivateWithoutSigning(w, config) })
	if err != nil {
		return KeyPair{}, policy.Spec{}, err
	}
	spec := policy.Spec{OpenPGP: &policy.OpenPGPTrust{
		Keyrings: []policy.TrustedKeyring{{Name: opts.Name, Armored: string(public)}}, Stores: opts.Stores,
	}}
	return KeyPair{Private: private, Public: public}, spec, nil
}

func generateSigstore(opts KeyOptions) (KeyPair, policy.Spec, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, policy.Spec{}, err
	}
	public, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	if err != nil {
		return KeyPair{}, policy.Spec{}, err
	}
	private, err := privatePEM(key, opts.Passphrase)
	if err != nil {
		return KeyPair{}, policy.Spec{}, err
	}
	spec := policy.Spec{Sigstore: &policy.SigstoreTrust{
		PublicKeys: []policy.TrustedPublicKey{{Name: opts.Name, PEM: string(public)}},
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

// keyFiles returns the names of the files with the private and the public key.
func keyFiles(kind KeyType) (private, public string) {
	if kind == OpenPGPKey {
		return openPGPPrivateFile, openPGPPublicFile
	}
	return pemPrivateFile, pemPublicFile
}

// CheckFolder returns an error if the folder has a file that WriteFolder would write for a pair of that type.
func CheckFolder(dir string, kind KeyType) error {
	private, public := keyFiles(kind)
	for _, name := range []string{private, public, TrustFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("writing key: %s already exists: choose another folder", filepath.Join(dir, name))
		}
	}
	return nil
}

// WriteFolder writes the key pair and the trust policy to a folder, which it creates if needed. It returns the path of the private key. It
// never overwrites a file, because a lost key cannot be recovered.
func (p KeyPair) WriteFolder(dir string) (string, error) {
	if err := CheckFolder(dir, p.Type); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("writing key: %w", err)
	}
	private, public := keyFiles(p.Type)
	files := []struct {
		name string
		data []byte
		mode fs.FileMode
	}{{private, p.Private, 0o600}, {public, p.Public, 0o644}, {TrustFile, p.Trust, 0o644}}
	for _, f := range files {
		if err := atomicfile.Create(filepath.Join(dir, f.name), f.mode, atomicfile.Content(f.data)); err != nil {
			return "", fmt.Errorf("writing key: %w", err)
		}
	}
	return filepath.Join(dir, private), nil
}
