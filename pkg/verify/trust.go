package verify

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
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

// TrustSpec lists the roots. Every one of them must have signed, except members of thresholds.
type TrustSpec struct {
	OpenPGP  *OpenPGPTrust  `json:"openpgp,omitempty"`
	Sigstore *SigstoreTrust `json:"sigstore,omitempty"`
	// Thresholds ask for a number of some of the roots instead of every one.
	Thresholds []TrustedThreshold `json:"thresholds,omitempty"`
}

// TrustedThreshold asks for so many different signers of its members, which are names of roots of the same document.
type TrustedThreshold struct {
	Name     string   `json:"name"`
	Required int      `json:"required"`
	Members  []string `json:"members"`
}

// OpenPGPTrust lists keyrings and the stores in which their signatures are kept.
type OpenPGPTrust struct {
	Keyrings []TrustedKeyring `json:"keyrings"`
	// Stores are http, https or file URLs. The ConfigMaps of the cluster are searched in any case.
	Stores []string `json:"stores,omitempty"`
	// OpenPGPRules hold for all keyrings of the document.
	OpenPGPRules `json:",inline"`
}

// TrustedKeyring is one armored OpenPGP keyring.
type TrustedKeyring struct {
	Name    string `json:"name"`
	Armored string `json:"armored"`
}

// SigstoreTrust lists who signs into the image's registry.
type SigstoreTrust struct {
	// PublicKeys sign with a bare key pair.
	PublicKeys []TrustedPublicKey `json:"publicKeys,omitempty"`
	// Keyless sign with a short-lived certificate that Fulcio issued to an OpenID Connect identity.
	Keyless []TrustedAuthority `json:"keyless,omitempty"`
	// Certificates sign with a certificate of a PKI of one's own.
	Certificates []TrustedAuthority `json:"certificates,omitempty"`
}

// TrustedPublicKey is one PEM public key.
type TrustedPublicKey struct {
	Name string `json:"name"`
	PEM  string `json:"pem"`
	// Alternatives are further keys of the same owner, each PEM: a signature with any one of them is enough.
	Alternatives []string `json:"alternatives,omitempty"`
	// RekorKeys are PEM public keys of transparency logs, of which one must have an entry of the signature.
	RekorKeys string `json:"rekorKeys,omitempty"`
	// SignedIdentity says which name a signature must give the image; default any.
	SignedIdentity *configv1.PolicyIdentity `json:"signedIdentity,omitempty"`
}

// TrustedAuthority is a certificate authority, and whom it must have certified.
type TrustedAuthority struct {
	Name string `json:"name"`
	// TrustedRoot is a sigstore trusted_root.json; TrustedRootFile names one beside the document: a file in the same
	// folder, or a key of the same ConfigMap. Instead of either, the parts can be given by themselves.
	TrustedRoot     string `json:"trustedRoot,omitempty"`
	TrustedRootFile string `json:"trustedRootFile,omitempty"`
	// Roots and Intermediates are PEM certificates of the authority.
	Roots         string `json:"roots,omitempty"`
	Intermediates string `json:"intermediates,omitempty"`
	// RekorKeys are PEM public keys of transparency logs; with one, every signature must have an entry.
	RekorKeys string `json:"rekorKeys,omitempty"`
	// CTLogKeys are PEM public keys of certificate logs; with one, every certificate must have been in it.
	CTLogKeys string `json:"ctLogKeys,omitempty"`
	// TimestampAuthority is the PEM chain of a timestamp authority, its own certificate first.
	TimestampAuthority string `json:"timestampAuthority,omitempty"`
	// Identities are whom the certificate may be issued to; one of them is enough.
	Identities []Identity `json:"identities"`
	// SignedIdentity says which name a signature must give the image; default any.
	SignedIdentity *configv1.PolicyIdentity `json:"signedIdentity,omitempty"`
}

// What identifies a trust document, and how large one may be.
const (
	TrustAPIVersion = "cvo.cluster-version.github.io/v1alpha1"
	TrustKind       = "TrustPolicy"
	// TrustPolicyKey is the key of a ConfigMap under which a trust document is kept.
	TrustPolicyKey = "trust-policy.yaml"
	maxTrustSize   = 1 << 20
)

const trustForms = "expected a TrustPolicy document (apiVersion " + TrustAPIVersion + "), a ConfigMap with " + TrustPolicyKey +
	" or with verifier-public-key-* and store-* keys, an armored OpenPGP public keyring, or a PEM public key"

// ReadTrust reads a trust file and what it names beside itself; see ParseTrust.
func ReadTrust(path string) (Policy, error) {
	data, err := readTrustFile(path)
	if err != nil {
		return Policy{}, fmt.Errorf("reading trust file %s: %w", path, err)
	}
	return parseNamedTrust(path, data, func(name string) ([]byte, error) { return readTrustFile(filepath.Join(filepath.Dir(path), name)) })
}

func readTrustFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxTrustSize+1)) // Who parses it refuses what is too large.
}

// ParseTrust reads a trust file in any of four forms: our TrustPolicy document, a ConfigMap with such a document or
// with the keys of a release, a bare armored OpenPGP keyring, a bare PEM public key. The name (a file's path) becomes
// the policy's name; a bare key is named after the file. Fields that are not known are refused, because a field that
// is misspelled in a trust file would be a check that silently does not happen.
func ParseTrust(name string, data []byte) (Policy, error) {
	return parseNamedTrust(name, data, func(string) ([]byte, error) {
		return nil, errors.New("no files are beside this document: put it inline as trustedRoot")
	})
}

// ParseTrustData reads trust from the content of a ConfigMap: a trust document under TrustPolicyKey, with the files that
// it names under keys beside it, or the keys by which a release carries its trust. The name becomes the policy's name.
func ParseTrustData(name string, data map[string]string, binaryData map[string][]byte) (Policy, error) {
	p, err := parseTrustData(data, binaryData)
	if err == nil {
		p.Name = name
		err = p.validate()
	}
	if err != nil {
		return Policy{}, fmt.Errorf("reading trust from %s: %w", name, err)
	}
	return p, nil
}

// beside reads what a trust document names beside itself.
type beside func(name string) ([]byte, error)

func parseNamedTrust(name string, data []byte, files beside) (Policy, error) {
	p, err := parseTrust(name, data, files)
	if err != nil {
		return Policy{}, fmt.Errorf("reading trust file %s: %w", name, err)
	}
	p.Name = name
	if err := p.validate(); err != nil {
		return Policy{}, fmt.Errorf("reading trust file %s: %w", name, err)
	}
	return p, nil
}

func parseTrust(name string, data []byte, files beside) (Policy, error) {
	if len(data) > maxTrustSize {
		return Policy{}, fmt.Errorf("larger than %d bytes", maxTrustSize)
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := manifest.CheckAliases(data); err != nil {
		return Policy{}, err
	}
	if err := yaml.Unmarshal(data, &head); err == nil && head.Kind != "" {
		if err := oneDocument(data); err != nil {
			return Policy{}, err
		}
		switch {
		case head.Kind == TrustKind && head.APIVersion == TrustAPIVersion:
			return parseTrustPolicy(data, files)
		case head.Kind == "ConfigMap" && head.APIVersion == "v1":
			return parseTrustConfigMap(data)
		case head.Kind == clusterImagePolicyKind:
			return Policy{}, errors.New("it is a ClusterImagePolicy, which holds for some images only: give it as --policy FILE")
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

func parseTrustPolicy(data []byte, files beside) (Policy, error) {
	var doc TrustPolicy
	if err := strictYAML(data, &doc); err != nil {
		return Policy{}, err
	}
	return doc.policy(files)
}

// strictYAML refuses fields that are not known and fields that are there twice.
func strictYAML(data []byte, into any) error {
	document, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return concise(err)
	}
	strict, err := json.UnmarshalStrict(document, into)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	return err
}

// concise leaves of a long error its start: the library tells of every key that is repeated.
func concise(err error) error {
	const most = 500
	if text := err.Error(); len(text) > most {
		return api.Reworded(err, api.Excerpt(text, most))
	}
	return err
}

func (t TrustPolicy) policy(files beside) (Policy, error) {
	p := Policy{Name: t.Metadata.Name}
	if o := t.Spec.OpenPGP; o != nil {
		p.OpenPGPRules = o.OpenPGPRules
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
		if err := s.addTo(&p, files); err != nil {
			return Policy{}, err
		}
	}
	for _, threshold := range t.Spec.Thresholds {
		p.Thresholds = append(p.Thresholds, Threshold(threshold))
	}
	if p.Empty() {
		return Policy{}, errors.New("it names no key: add keyrings under spec.openpgp, or public keys, keyless or certificates under spec.sigstore")
	}
	return p, nil
}

func (s *SigstoreTrust) addTo(p *Policy, files beside) error {
	for _, k := range s.PublicKeys {
		key, err := k.publicKey()
		if err != nil {
			return err
		}
		p.SigstoreKeys = append(p.SigstoreKeys, key)
	}
	for _, list := range []struct {
		entries []TrustedAuthority
		check   func(Authority) error
	}{{s.Keyless, keylessAuthority}, {s.Certificates, ownAuthority}} {
		for _, t := range list.entries {
			a, err := t.authority(files)
			if err == nil {
				err = list.check(a)
			}
			if err != nil {
				return fmt.Errorf("spec.sigstore: %q: %w", t.Name, err)
			}
			p.Authorities = append(p.Authorities, a)
		}
	}
	if len(p.SigstoreKeys)+len(p.Authorities) == 0 {
		return errors.New("spec.sigstore lists nobody: add to spec.sigstore.publicKeys, keyless or certificates")
	}
	return nil
}

func (k TrustedPublicKey) publicKey() (PublicKey, error) {
	var alternatives [][]byte
	for _, a := range k.Alternatives {
		alternatives = append(alternatives, []byte(a))
	}
	key, err := NewPublicKey(k.Name, []byte(k.PEM), alternatives...)
	if err != nil {
		return PublicKey{}, err
	}
	key.SignedIdentity = k.SignedIdentity
	if k.RekorKeys != "" {
		log, err := NewTrustRoot(TrustRootOptions{LogKeys: []byte(k.RekorKeys)})
		if err != nil {
			return PublicKey{}, fmt.Errorf("reading public key %q: %w", k.Name, err)
		}
		key.Log = &log
	}
	return key, nil
}

func (t TrustedAuthority) authority(files beside) (Authority, error) {
	root, err := t.trustRoot(files)
	return Authority{Name: t.Name, TrustRoot: root, Identities: t.Identities, SignedIdentity: t.SignedIdentity}, err
}

func (t TrustedAuthority) trustRoot(files beside) (TrustRoot, error) {
	parts := t.Roots + t.Intermediates + t.RekorKeys + t.CTLogKeys + t.TimestampAuthority
	switch {
	case t.TrustedRoot != "" && t.TrustedRootFile != "":
		return TrustRoot{}, errors.New("it has both trustedRoot and trustedRootFile: leave one out")
	case t.TrustedRoot+t.TrustedRootFile != "" && parts != "":
		return TrustRoot{}, errors.New("it has a trusted root and parts of one (roots, intermediates, rekorKeys, ctLogKeys, timestampAuthority): leave one out")
	case t.TrustedRoot != "":
		return ParseTrustRoot([]byte(t.TrustedRoot))
	case t.TrustedRootFile != "":
		if t.TrustedRootFile != filepath.Base(t.TrustedRootFile) || t.TrustedRootFile == ".." {
			return TrustRoot{}, fmt.Errorf("trustedRootFile %q is a path: name a file beside the document", t.TrustedRootFile)
		}
		data, err := files(t.TrustedRootFile)
		if err != nil {
			return TrustRoot{}, fmt.Errorf("reading trustedRootFile %q: %w", t.TrustedRootFile, err)
		}
		if len(data) > maxTrustSize {
			return TrustRoot{}, fmt.Errorf("trustedRootFile %q is larger than %d bytes", t.TrustedRootFile, maxTrustSize)
		}
		return ParseTrustRoot(data)
	}
	return NewTrustRoot(TrustRootOptions{
		Roots: []byte(t.Roots), Intermediates: []byte(t.Intermediates), LogKeys: []byte(t.RekorKeys),
		CertificateLogKeys: []byte(t.CTLogKeys), TimestampAuthority: []byte(t.TimestampAuthority),
	})
}

// keylessAuthority refuses what would not be keyless signing: a certificate that lives for minutes needs somebody who
// says when it was used, and a name is worth nothing without who vouched for it.
func keylessAuthority(a Authority) error {
	if !a.TrustRoot.keepsTime() {
		return errors.New("nobody says when a short-lived certificate was used: add rekorKeys or timestampAuthority, or list it under certificates")
	}
	for _, i := range a.Identities {
		switch {
		case i.Issuer+i.IssuerRegexp == "":
			return fmt.Errorf("identity %s has no issuer: set issuer to who vouches for it, such as https://accounts.google.com", i)
		case i.Hostname != "":
			return fmt.Errorf("identity %s: keyless certificates have no host name: use email, uri or subjectRegexp", i)
		}
	}
	return nil
}

// ownAuthority refuses what a PKI of one's own does not have.
func ownAuthority(a Authority) error {
	for _, i := range a.Identities {
		if i.Issuer+i.IssuerRegexp != "" {
			return fmt.Errorf("identity %s: certificates of a PKI name no OpenID Connect issuer: leave it out, or list it under keyless", i)
		}
	}
	return nil
}

func parseTrustConfigMap(data []byte) (Policy, error) {
	var cm struct {
		Data       map[string]string `json:"data"`
		BinaryData map[string][]byte `json:"binaryData"`
	}
	if err := yaml.Unmarshal(data, &cm); err != nil {
		return Policy{}, err
	}
	return parseTrustData(cm.Data, cm.BinaryData)
}

func parseTrustData(data map[string]string, binaryData map[string][]byte) (Policy, error) {
	if _, ok := data[TrustPolicyKey]; ok {
		if len(binaryData) > 0 {
			return Policy{}, errors.New("it has binaryData beside " + TrustPolicyKey + ": put everything under data")
		}
		return parseTrustDocumentData(data)
	}
	p, unknown, err := fromConfigMapData(data, binaryData)
	if err != nil {
		return Policy{}, fmt.Errorf("it has no key %s, and %w", TrustPolicyKey, err)
	}
	if len(unknown) > 0 {
		return Policy{}, fmt.Errorf("ConfigMap key %q is not known: keys are %s<name> and %s<name>", unknown[0], keyPrefix, storePrefix)
	}
	return p, nil
}

// parseTrustDocumentData reads a document and refuses what it does not use: a key beside it would be trust that somebody
// thinks is there.
func parseTrustDocumentData(data map[string]string) (Policy, error) {
	document := data[TrustPolicyKey]
	used := map[string]bool{TrustPolicyKey: true}
	if len(document) > maxTrustSize {
		return Policy{}, fmt.Errorf("larger than %d bytes", maxTrustSize)
	}
	if err := manifest.CheckAliases([]byte(document)); err != nil {
		return Policy{}, err
	}
	if err := oneDocument([]byte(document)); err != nil {
		return Policy{}, err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(document), &head); err != nil || head.Kind != TrustKind || head.APIVersion != TrustAPIVersion {
		return Policy{}, fmt.Errorf("key %s holds no %s of %s", TrustPolicyKey, TrustKind, TrustAPIVersion)
	}
	p, err := parseTrustPolicy([]byte(document), func(name string) ([]byte, error) {
		used[name] = true
		content, ok := data[name]
		if !ok {
			return nil, errors.New("the ConfigMap has no such key")
		}
		return []byte(content), nil
	})
	if err != nil {
		return Policy{}, err
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if !used[key] {
			return Policy{}, fmt.Errorf("ConfigMap key %q is not used by %s: name it as a trustedRootFile, or remove it", key, TrustPolicyKey)
		}
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
