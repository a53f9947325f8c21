package assemble

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/atomicfile"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

const (
	claimAtomic = "atomic container signature"
	// maxStoreSignatures is how many signatures of one digest a store can hold; readers look no further.
	maxStoreSignatures = 9
	maxConfigMapFile   = 2 << 20
)

// SignOpenPGP signs the image's digest and returns a binary OpenPGP signed message around the claim, in the form that
// OpenShift's verifier reads. The reference is the name that the claim gives the image, by default the repository of
// its pullspec. A key that is revoked, expired at that time, not meant for signing or shorter than those that verifiers
// take by default is refused.
func SignOpenPGP(image release.Image, key SigningKey, reference string, at time.Time) ([]byte, error) {
	if key.openpgp == nil {
		return nil, errors.New("signing a message takes an OpenPGP key, this is a sigstore key")
	}
	claim, err := claimFor(claimAtomic, image, reference, at)
	if err != nil {
		return nil, err
	}
	if signing, ok := key.openpgp.SigningKey(at); ok {
		if err := (verify.OpenPGPRules{}).CheckKey(signing.PublicKey); err != nil {
			return nil, fmt.Errorf("signing with OpenPGP key %s: %w, or the signature is refused: "+
				"make a longer one (`cvo release keygen --type openpgp` makes one that is long enough)", signing.PublicKey.KeyIdString(), err)
		}
	}
	var out bytes.Buffer
	config := &packet.Config{DefaultHash: crypto.SHA256, Time: func() time.Time { return at }}
	hints := &openpgp.FileHints{IsBinary: true}
	w, err := openpgp.Sign(&out, key.openpgp, hints, config)
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

// WriteSignature adds a signature to a store that is a folder, as <dir>/sha256=<hex>/signature-<n> with the first free
// number, and returns the file's path. Signatures that are there are never changed.
func WriteSignature(dir string, digest release.Digest, message []byte) (string, error) {
	if err := os.MkdirAll(filepath.Join(dir, verify.StoreDir(digest)), 0o755); err != nil {
		return "", fmt.Errorf("writing signature: %w", err)
	}
	for n := 1; n <= maxStoreSignatures; n++ {
		path := filepath.Join(dir, filepath.FromSlash(verify.StorePath(digest, n)))
		err := atomicfile.Create(path, 0o644, atomicfile.Content(message))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("writing signature: %w", err)
		}
		return path, nil
	}
	return "", fmt.Errorf("writing signature: %s holds %d signatures of %s already, and readers look at no more: remove one",
		dir, maxStoreSignatures, digest)
}

// SignatureConfigMap returns the ConfigMap by which a signature is brought into a cluster, with the names that
// existing clients give it. The present ConfigMap, if not nil, is kept and gets the signature under the next number.
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
			return nil, fmt.Errorf("it holds %s %s/%s, not ConfigMap %s/%s: name another file", present.Kind, present.Namespace, present.Name,
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
		if _, taken := cm.BinaryData[verify.ConfigMapKey(digest, n)]; !taken {
			break
		}
	}
	cm.BinaryData[verify.ConfigMapKey(digest, n)] = message
	return cm, nil
}

// WriteSignatureConfigMap writes that ConfigMap as YAML, ready for `kubectl apply`; if the file holds the ConfigMap of
// this digest already, the signature is added to it.
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
		return nil, fmt.Errorf("it holds something else than a ConfigMap: %w", err)
	}
	return &cm, nil
}
