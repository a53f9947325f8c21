package verify

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// TrustPolicy is the document that an administrator writes to say whom to trust (`--trust FILE`). It replaces what a
// release brings along.
type TrustPolicy struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Metadata   TrustMetadata `json:"metadata,omitzero"`
	Spec       TrustSpec     `json:"spec"`
}

// TrustMetadata names a policy.
type TrustMetadata struct {
	Name        string            `json:"name,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// TrustSpec lists the roots. Every one of them must have signed.
type TrustSpec struct {
	OpenPGP  *OpenPGPTrust  `json:"openpgp,omitempty"`
	Sigstore *SigstoreTrust `json:"sigstore,omitempty"`
}

// OpenPGPTrust lists keyrings and the stores in which their signatures are kept.
type OpenPGPTrust struct {
	Keyrings []TrustedKeyring `json:"keyrings"`
	// Stores are http, https or file URLs. The ConfigMaps of the cluster are searched in any case.
	Stores []string `json:"stores,omitempty"`
	// RefuseExpiredKeys: see Policy.
	RefuseExpiredKeys bool `json:"refuseExpiredKeys,omitempty"`
}

// TrustedKeyring is one armored OpenPGP keyring.
type TrustedKeyring struct {
	Name    string `json:"name"`
	Armored string `json:"armored"`
}

// SigstoreTrust lists keys that sign into the image's registry.
type SigstoreTrust struct {
	PublicKeys []TrustedPublicKey `json:"publicKeys"`
}

// TrustedPublicKey is one PEM public key.
type TrustedPublicKey struct {
	Name string `json:"name"`
	PEM  string `json:"pem"`
}

// What identifies a trust document, and how large one may be.
const (
	TrustAPIVersion = "cvo.cluster-version.github.io/v1alpha1"
	TrustKind       = "TrustPolicy"
	maxTrustSize    = 1 << 20
)

const trustForms = "expected a TrustPolicy document (apiVersion " + TrustAPIVersion + "), a ConfigMap with verifier-public-key-* and store-* keys, " +
	"an armored OpenPGP public keyring, or a PEM public key"

// ParseTrust reads a trust file in any of four forms: our TrustPolicy document, the ConfigMap by which releases carry
// their keys, a bare armored OpenPGP keyring, a bare PEM public key. The name (a file's path) becomes the policy's
// name; a bare key is named after the file. Fields that are not known are refused, because a field that is
// misspelled in a trust file would be a check that silently does not happen.
func ParseTrust(name string, data []byte) (Policy, error) {
	p, err := parseTrust(name, data)
	if err != nil {
		return Policy{}, fmt.Errorf("reading trust file %s: %w", name, err)
	}
	p.Name = name
	if err := p.validate(); err != nil {
		return Policy{}, fmt.Errorf("reading trust file %s: %w", name, err)
	}
	return p, nil
}

func parseTrust(name string, data []byte) (Policy, error) {
	if len(data) > maxTrustSize {
		return Policy{}, fmt.Errorf("larger than %d bytes", maxTrustSize)
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(data, &head); err == nil && head.Kind != "" {
		if err := oneDocument(data); err != nil {
			return Policy{}, err
		}
		switch {
		case head.Kind == TrustKind && head.APIVersion == TrustAPIVersion:
			return parseTrustPolicy(data)
		case head.Kind == "ConfigMap" && head.APIVersion == "v1":
			return parseTrustConfigMap(data)
		}
		return Policy{}, fmt.Errorf("it is a %s of %s: %s", head.Kind, head.APIVersion, trustForms)
	}
	return parseBareKey(strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)), data)
}

func parseBareKey(name string, data []byte) (Policy, error) {
	if bytes.Contains(data, []byte(armorStart)) {
		k, err := NewKeyring(name, data)
		return Policy{Keyrings: []Keyring{k}}, err
	}
	if block, _ := pem.Decode(data); block != nil {
		k, err := NewPublicKey(name, data)
		return Policy{SigstoreKeys: []PublicKey{k}}, err
	}
	return Policy{}, errors.New("it is in no known form: " + trustForms)
}

func parseTrustPolicy(data []byte) (Policy, error) {
	document, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Policy{}, err
	}
	var doc TrustPolicy
	strict, err := json.UnmarshalStrict(document, &doc)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return Policy{}, err
	}
	return doc.Policy()
}

// Policy returns the policy that the document describes.
func (t TrustPolicy) Policy() (Policy, error) {
	p := Policy{Name: t.Metadata.Name}
	if o := t.Spec.OpenPGP; o != nil {
		p.RefuseExpiredKeys = o.RefuseExpiredKeys
		for _, k := range o.Keyrings {
			keyring, err := NewKeyring(k.Name, []byte(k.Armored))
			if err != nil {
				return Policy{}, err
			}
			p.Keyrings = append(p.Keyrings, keyring)
		}
		for _, s := range o.Stores {
			if _, err := OpenStore(s, nil); err != nil {
				return Policy{}, err
			}
			p.Stores = append(p.Stores, strings.TrimSpace(s))
		}
		if len(p.Keyrings) == 0 {
			return Policy{}, errors.New("spec.openpgp lists no keyring: add one to spec.openpgp.keyrings")
		}
	}
	if s := t.Spec.Sigstore; s != nil {
		for _, k := range s.PublicKeys {
			key, err := NewPublicKey(k.Name, []byte(k.PEM))
			if err != nil {
				return Policy{}, err
			}
			p.SigstoreKeys = append(p.SigstoreKeys, key)
		}
		if len(p.SigstoreKeys) == 0 {
			return Policy{}, errors.New("spec.sigstore lists no key: add one to spec.sigstore.publicKeys")
		}
	}
	if p.Empty() {
		return Policy{}, errors.New("it names no key: add keyrings under spec.openpgp or public keys under spec.sigstore")
	}
	return p, nil
}

func parseTrustConfigMap(data []byte) (Policy, error) {
	var cm struct {
		Data       map[string]string `json:"data"`
		BinaryData map[string][]byte `json:"binaryData"`
	}
	if err := yaml.Unmarshal(data, &cm); err != nil {
		return Policy{}, err
	}
	p, unknown, err := fromConfigMapData(cm.Data, cm.BinaryData)
	if err != nil {
		return Policy{}, err
	}
	if len(unknown) > 0 {
		return Policy{}, fmt.Errorf("ConfigMap key %q is not known: keys are %s<name> and %s<name>", unknown[0], keyPrefix, storePrefix)
	}
	return p, nil
}

// oneDocument refuses a file with a second YAML document, which a decoder would leave out without a word.
func oneDocument(data []byte) error {
	lines := strings.Split(string(data), "\n")
	first := slices.IndexFunc(lines, func(l string) bool {
		l = strings.TrimSpace(l)
		return l != "" && l != "---" && !strings.HasPrefix(l, "#")
	})
	for _, l := range lines[max(first, 0):] {
		if l == "---" || strings.HasPrefix(l, "--- ") || strings.HasPrefix(l, "---\r") {
			return errors.New("it holds several YAML documents: put every root into one")
		}
	}
	return nil
}
