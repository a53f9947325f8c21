package policy

import (
	"encoding/pem"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
)

// ConfigMapData returns the content of a ConfigMap that is equivalent to a trust file and the files that it names. ParseData reads this
// content. ConfigMapData rejects a file that Read rejects.
func ConfigMapData(path string) (data map[string]string, binaryData map[string][]byte, err error) {
	if _, err := Read(path); err != nil {
		return nil, nil, err
	}
	content, err := readFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading trust file %s: %w", path, err)
	}
	var head struct {
		Kind       string            `json:"kind"`
		Data       map[string]string `json:"data"`
		BinaryData map[string][]byte `json:"binaryData"`
	}
	switch err := yaml.Unmarshal(content, &head); {
	case err == nil && head.Kind == Kind:
		data = map[string]string{DocumentKey: string(content)}
		_, err = parseDocument(content, func(name string) ([]byte, error) {
			file, err := readFile(filepath.Join(filepath.Dir(path), name))
			data[name] = string(file)
			return file, err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("reading trust file %s: %w", path, err)
		}
	case err == nil && head.Kind != "":
		data, binaryData = head.Data, head.BinaryData
	default:
		if data, err = bareKeyPolicy(path, content).ConfigMapData(); err != nil {
			return nil, nil, err
		}
	}
	// The content must be valid without the other files.
	if _, err := ParseData(path, data, binaryData); err != nil {
		return nil, nil, err
	}
	return data, binaryData, nil
}

// bareKeyPolicy returns a document that trusts one key and has no other settings.
func bareKeyPolicy(path string, key []byte) Document {
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	policy := Document{APIVersion: APIVersion, Kind: Kind}
	if block, _ := pem.Decode(key); block != nil && !openpgp.IsArmored(key) {
		policy.Spec.Sigstore = &SigstoreTrust{PublicKeys: []TrustedPublicKey{{Name: name, PEM: string(key)}}}
		return policy
	}
	policy.Spec.OpenPGP = &OpenPGPTrust{Keyrings: []TrustedKeyring{{Name: name, Armored: string(key)}}}
	return policy
}
