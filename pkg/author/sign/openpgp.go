package sign

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	pgp "github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	yamlv2 "go.yaml.in/yaml/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

const (
	claimAtomic = "atomic container signature"
	// maxStoreSignatures is the maximum number of signatures of a digest in a store. Readers ignore additional signatures.
	maxStoreSignatures = 9
	maxConfigMapFile   = 2 << 20
)

// UnsignedClaim returns the message about an image for OpenPGP signers of container images.
func UnsignedClaim(img release.Image, at time.Time) ([]byte, error) {
	return claimFor(claimAtomic, img, "", at)
}

// OpenPGP signs the image's digest. It returns a binary signed OpenPGP message with the claim, in the format of OpenShift's verifier.
// reference is the image's name in the claim; empty selects the repository of its pullspec. It rejects a key that is revoked, expired at
// that time, not for signing, or shorter than verifiers accept by default.
func OpenPGP(image release.Image, key Key, reference string, at time.Time) ([]byte, error) {
	if key.openpgp == nil {
		return nil, errors.New("signing a message needs an OpenPGP key, but this is a sigstore key")
	}
	claim, err := claimFor(claimAtomic, image, reference, at)
	if err != nil {
		return nil, err
	}
	if signing, ok := key.openpgp.SigningKey(at); ok {
		if err := (openpgp.Rules{}).CheckKey(signing.PublicKey); err != nil {
			return nil, fmt.Errorf("signing with OpenPGP key %s: %w, because verifiers reject shorter keys: "+
				"create a longer key (`cvo release keygen --type openpgp`)", signing.PublicKey.KeyIdString(), err)
		}
	}
	var out bytes.Buffer
	config := &packet.Config{DefaultHash: crypto.SHA256, Time: func() time.Time { return at }}
	hints := &pgp.FileHints{IsBinary: true}
	w, err := pgp.Sign(&out, key.openpgp, hints, config)
	if err != nil {
		return nil, fmt.Errorf("signing with OpenPGP key %s: %w", key.openpgp.PrimaryKey.KeyIdString(), err)
	}
	if _, err := w.Write(claim); err != nil {
		return nil, fmt.Errorf("signing with OpenPGP key %s: %w", key.openpgp.PrimaryKey.KeyIdString(), err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("signing with OpenPGP key %s: %w", key.openpgp.PrimaryKey.KeyIdString(), err)
	}
	return out.Bytes(), nil
}

// WriteSignature adds a signature to a store in a folder, as <dir>/sha256=<hex>/signature-<n> with the first unused number. It returns the
// path of the file. It never changes existing signatures.
func WriteSignature(dir string, digest release.Digest, message []byte) (string, error) {
	if err := os.MkdirAll(filepath.Join(dir, store.Dir(digest)), 0o755); err != nil {
		return "", fmt.Errorf("writing signature: %w", err)
	}
	for n := 1; n <= maxStoreSignatures; n++ {
		path := filepath.Join(dir, filepath.FromSlash(store.Path(digest, n)))
		err := atomicfile.Create(path, 0o644, atomicfile.Content(message))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("writing signature: %w", err)
		}
		return path, nil
	}
	return "", fmt.Errorf("writing signature: %s already has %d signatures of %s, and readers ignore more: remove one",
		dir, maxStoreSignatures, digest)
}

// SignatureConfigMap returns the ConfigMap that adds a signature to a cluster, with the names that existing clients use. If present is not
// nil, the result is a copy with the signature added under the next number.
func SignatureConfigMap(present *corev1.ConfigMap, digest release.Digest, message []byte) (*corev1.ConfigMap, error) {
	name := "sha256-" + digest.Hex()
	cm := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: api.ConfigManagedNamespace, Name: name,
			Labels: map[string]string{api.VerificationSignatureLabel: ""},
		},
	}
	if present != nil {
		if present.Kind != "ConfigMap" || present.Namespace != cm.Namespace || present.Name != name {
			return nil, fmt.Errorf("it contains %s %s/%s, not ConfigMap %s/%s: choose another file", present.Kind, present.Namespace, present.Name,
				cm.Namespace, name)
		}
		cm = present.DeepCopy()
		if cm.Labels == nil {
			cm.Labels = map[string]string{}
		}
		cm.Labels[api.VerificationSignatureLabel] = ""
	}
	if cm.BinaryData == nil {
		cm.BinaryData = map[string][]byte{}
	}
	n := 1
	for ; ; n++ {
		if _, taken := cm.BinaryData[store.ConfigMapKey(digest, n)]; !taken {
			break
		}
	}
	cm.BinaryData[store.ConfigMapKey(digest, n)] = message
	return cm, nil
}

// WriteSignatureConfigMap writes a signature's ConfigMap as YAML for `kubectl apply`. If the file already has the ConfigMap for this
// digest, WriteSignatureConfigMap adds the signature.
func WriteSignatureConfigMap(file string, digest release.Digest, message []byte) error {
	present, err := readConfigMap(file)
	if err != nil {
		return fmt.Errorf("writing signature to %s: %w", file, err)
	}
	cm, err := SignatureConfigMap(present, digest, message)
	if err != nil {
		return fmt.Errorf("writing signature to %s: %w", file, err)
	}
	data, err := yaml.Marshal(cm)
	if err != nil {
		return fmt.Errorf("writing signature to %s: %w", file, err)
	}
	if err := atomicfile.Write(file, 0o644, atomicfile.Content(data)); err != nil {
		return fmt.Errorf("writing signature: %w", err)
	}
	return nil
}

func readConfigMap(file string) (*corev1.ConfigMap, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readAllBounded(f, maxConfigMapFile)
	if err != nil {
		return nil, err
	}
	var cm corev1.ConfigMap
	if err := yaml.UnmarshalStrict(data, &cm); err != nil {
		return nil, fmt.Errorf("it is not a ConfigMap: %w", err)
	}
	return &cm, CheckOneDocument(data)
}

// CheckOneDocument rejects the content of a file with several YAML documents, because sigs.k8s.io/yaml ignores all but the first. It does not
// check the first one. Empty documents, such as after a last line of three hyphens, do not count.
func CheckOneDocument(data []byte) error {
	documents := yamlv2.NewDecoder(bytes.NewReader(data))
	_ = documents.Decode(&struct{}{})
	for {
		var next *struct{} // nil if the document is empty
		err := documents.Decode(&next)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil, next != nil:
			return errors.New("it contains several YAML documents: write each ConfigMap to a file of its own")
		}
	}
}
