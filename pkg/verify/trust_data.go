package verify

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// TrustData returns the content of a ConfigMap that says the same as a trust file and what it names beside itself, for a
// cluster to keep: ParseTrustData reads it. The file must be one that ReadTrust accepts.
func TrustData(path string) (data map[string]string, binaryData map[string][]byte, err error) {
	if _, err := ReadTrust(path); err != nil {
		return nil, nil, err
	}
	content, err := readTrustFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading trust file %s: %w", path, err)
	}
	var head struct {
		Kind       string            `json:"kind"`
		Data       map[string]string `json:"data"`
		BinaryData map[string][]byte `json:"binaryData"`
	}
	switch err := yaml.Unmarshal(content, &head); {
	case err == nil && head.Kind == TrustKind:
		data = map[string]string{TrustPolicyKey: string(content)}
		_, err = parseTrustPolicy(content, func(name string) ([]byte, error) {
			file, err := readTrustFile(filepath.Join(filepath.Dir(path), name))
			data[name] = string(file)
			return file, err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("reading trust file %s: %w", path, err)
		}
	case err == nil && head.Kind != "":
		data, binaryData = head.Data, head.BinaryData
	default:
		document, err := yaml.Marshal(bareKeyPolicy(path, content))
		if err != nil {
			return nil, nil, fmt.Errorf("writing the trust of %s: %w", path, err)
		}
		data = map[string]string{TrustPolicyKey: string(document)}
	}
	// What was read from a file has to mean something without it, too.
	if _, err := ParseTrustData(path, data, binaryData); err != nil {
		return nil, nil, err
	}
	return data, binaryData, nil
}

// bareKeyPolicy is the document that trusts one key and says nothing else.
func bareKeyPolicy(path string, key []byte) TrustPolicy {
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	policy := TrustPolicy{APIVersion: TrustAPIVersion, Kind: TrustKind}
	if block, _ := pem.Decode(key); block != nil && !bytes.Contains(key, []byte(armorStart)) {
		policy.Spec.Sigstore = &SigstoreTrust{PublicKeys: []TrustedPublicKey{{Name: name, PEM: string(key)}}}
		return policy
	}
	policy.Spec.OpenPGP = &OpenPGPTrust{Keyrings: []TrustedKeyring{{Name: name, Armored: string(key)}}}
	return policy
}
