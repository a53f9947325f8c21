package policy

import (
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

	"github.com/cluster-version/cvo/internal/aliases"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

// Document is an administrator's TrustPolicy, which lists the trusted signers (`--trust FILE`). It is the only way to replace the keys that
// a release ships.
type Document struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata,omitzero"`
	Spec       Spec     `json:"spec"`
}

// Metadata names a policy.
type Metadata struct {
	Name        string            `json:"name,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Spec lists the roots. Every root must sign, except members of thresholds.
type Spec struct {
	OpenPGP  *OpenPGPTrust  `json:"openpgp,omitempty"`
	Sigstore *SigstoreTrust `json:"sigstore,omitempty"`
	// Thresholds require signatures by a number of their members instead of all.
	Thresholds []TrustedThreshold `json:"thresholds,omitempty"`
}

// TrustedThreshold requires a number of different signers among its members, which are names of roots in the same document.
type TrustedThreshold struct {
	Name     string   `json:"name"`
	Required int      `json:"required"`
	Members  []string `json:"members"`
}

// OpenPGPTrust lists keyrings and the stores with their signatures.
type OpenPGPTrust struct {
	Keyrings []TrustedKeyring `json:"keyrings"`
	// Stores are http, https or file URLs. The ConfigMaps of the cluster are always searched as well.
	Stores []string `json:"stores,omitempty"`
	// Rules apply to all keyrings in the document.
	openpgp.Rules `json:",inline"`
}

// TrustedKeyring is one armored OpenPGP keyring.
type TrustedKeyring struct {
	Name    string `json:"name"`
	Armored string `json:"armored"`
}

// SigstoreTrust lists the signers that store their signatures in the image's registry.
type SigstoreTrust struct {
	// PublicKeys lists signers with a bare key pair.
	PublicKeys []TrustedPublicKey `json:"publicKeys,omitempty"`
	// Keyless lists signers with a short-lived certificate that Fulcio issued to an OpenID Connect identity.
	Keyless []TrustedAuthority `json:"keyless,omitempty"`
	// Certificates lists signers with a certificate of their own PKI.
	Certificates []TrustedAuthority `json:"certificates,omitempty"`
}

// TrustedPublicKey is one PEM public key.
type TrustedPublicKey struct {
	Name string `json:"name"`
	PEM  string `json:"pem"`
	// Alternatives are further PEM keys of the same owner. A signature with any of the keys is enough.
	Alternatives []string `json:"alternatives,omitempty"`
	// RekorKeys are PEM public keys of transparency logs. One of these logs must have an entry for each signature.
	RekorKeys string `json:"rekorKeys,omitempty"`
	// SignedIdentity restricts the image name in a signature; by default, any name is accepted.
	SignedIdentity *configv1.PolicyIdentity `json:"signedIdentity,omitempty"`
}

// TrustedAuthority is a certificate authority together with the accepted certificate identities.
type TrustedAuthority struct {
	Name string `json:"name"`
	// TrustedRoot is a sigstore trusted_root.json. TrustedRootFile is the name of such a file next to the document: in the same folder, or
	// under a key of the same ConfigMap. The other fields can specify its parts individually instead.
	TrustedRoot     string `json:"trustedRoot,omitempty"`
	TrustedRootFile string `json:"trustedRootFile,omitempty"`
	// Roots and Intermediates are PEM certificates of the authority.
	Roots         string `json:"roots,omitempty"`
	Intermediates string `json:"intermediates,omitempty"`
	// RekorKeys are PEM public keys of transparency logs. If set, every signature must have a log entry.
	RekorKeys string `json:"rekorKeys,omitempty"`
	// CTLogKeys are PEM public keys of certificate logs. If set, one of these logs must have logged every certificate.
	CTLogKeys string `json:"ctLogKeys,omitempty"`
	// TimestampAuthority is the PEM chain of a timestamp authority, starting with its own certificate.
	TimestampAuthority string `json:"timestampAuthority,omitempty"`
	// Identities are the accepted certificate identities. A certificate must match at least one.
	Identities []sigstore.Identity `json:"identities"`
	// SignedIdentity restricts the image name in a signature; by default, any name is accepted.
	SignedIdentity *configv1.PolicyIdentity `json:"signedIdentity,omitempty"`
}

// Type, key and maximum size of a trust document.
const (
	APIVersion = "cvo.cluster-version.github.io/v1alpha1"
	Kind       = "TrustPolicy"
	// DocumentKey is the key of a trust document in a ConfigMap.
	DocumentKey = "trust-policy.yaml"
	maxSize     = 1 << 20
)

const trustForms = "expected a TrustPolicy document (apiVersion " + APIVersion + "), a ConfigMap with " + DocumentKey +
	" or with verifier-public-key-* and store-* keys, an armored OpenPGP public keyring, or a PEM public key"

// Read reads a trust file and the files that it names; see Parse.
func Read(path string) (Policy, error) {
	data, err := readFile(path)
	if err != nil {
		return Policy{}, fmt.Errorf("reading trust file %s: %w", path, err)
	}
	return parseNamed(path, data, func(name string) ([]byte, error) { return readFile(filepath.Join(filepath.Dir(path), name)) })
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSize+1)) // The parser rejects larger files.
}

// Parse parses a trust file in one of four formats: a TrustPolicy document, a ConfigMap with such a document or with a release's keys, a
// bare armored OpenPGP keyring, or a bare PEM public key. The name (a file's path) becomes the name of the policy; a bare key gets the
// file's name. Unknown fields are errors, because a misspelled field would silently disable a check.
func Parse(name string, data []byte) (Policy, error) {
	return parseNamed(name, data, func(string) ([]byte, error) {
		return nil, errors.New("this document cannot refer to files: put the content inline as trustedRoot")
	})
}

// ParseData parses trust from the content of a ConfigMap: either a trust document under DocumentKey, with the files that it names under
// further keys, or the trust keys of a release. The name becomes the name of the policy.
func ParseData(name string, data map[string]string, binaryData map[string][]byte) (Policy, error) {
	p, err := parseTrustData(data, binaryData)
	if err == nil {
		p.Name = name
		err = p.Validate()
	}
	if err != nil {
		return Policy{}, fmt.Errorf("reading trust from %s: %w", name, err)
	}
	return p, nil
}

// fileReader reads a file that a trust document names.
type fileReader func(name string) ([]byte, error)

func parseNamed(name string, data []byte, files fileReader) (Policy, error) {
	p, err := parseTrust(name, data, files)
	if err != nil {
		return Policy{}, fmt.Errorf("reading trust file %s: %w", name, err)
	}
	p.Name = name
	if err := p.Validate(); err != nil {
		return Policy{}, fmt.Errorf("reading trust file %s: %w", name, err)
	}
	return p, nil
}

func parseTrust(name string, data []byte, files fileReader) (Policy, error) {
	if len(data) > maxSize {
		return Policy{}, fmt.Errorf("larger than %d bytes", maxSize)
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := aliases.Check(data); err != nil {
		return Policy{}, err
	}
	if err := yaml.Unmarshal(data, &head); err == nil && head.Kind != "" {
		if err := oneDocument(data); err != nil {
			return Policy{}, err
		}
		switch {
		case head.Kind == Kind && head.APIVersion == APIVersion:
			return parseDocument(data, files)
		case head.Kind == "ConfigMap" && head.APIVersion == "v1":
			return parseTrustConfigMap(data)
		case head.Kind == clusterImagePolicyKind:
			return Policy{}, errors.New("it is a ClusterImagePolicy, which only adds requirements to a root of trust: create a trust policy from it " +
				"with 'cvo trust from-image-policy NAME --policy FILE'")
		}
		return Policy{}, fmt.Errorf("it has kind %s of %s: %s", head.Kind, head.APIVersion, trustForms)
	}
	return parseBareKey(strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)), data)
}

func parseBareKey(name string, data []byte) (Policy, error) {
	if openpgp.IsArmored(data) {
		k, err := openpgp.NewKeyring(name, data)
		return Policy{Keyrings: []openpgp.Keyring{k}}, err
	}
	if block, _ := pem.Decode(data); block != nil {
		k, err := sigstore.NewPublicKey(name, data)
		return Policy{SigstoreKeys: []sigstore.PublicKey{k}}, err
	}
	return Policy{}, errors.New("its format is unknown: " + trustForms)
}

func parseDocument(data []byte, files fileReader) (Policy, error) {
	var doc Document
	if err := strictYAML(data, &doc); err != nil {
		return Policy{}, err
	}
	return doc.policy(files)
}

// strictYAML rejects unknown and duplicate fields.
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

// concise truncates a long error, because the library lists every duplicate key.
func concise(err error) error {
	const most = 500
	if text := err.Error(); len(text) > most {
		return api.Reworded(err, printable.Excerpt(text, most))
	}
	return err
}

func (t Document) policy(files fileReader) (Policy, error) {
	p := Policy{Name: t.Metadata.Name}
	if o := t.Spec.OpenPGP; o != nil {
		p.Rules = o.Rules
		for _, k := range o.Keyrings {
			keyring, err := openpgp.NewKeyring(k.Name, []byte(k.Armored))
			if err != nil {
				return Policy{}, err
			}
			p.Keyrings = append(p.Keyrings, keyring)
		}
		for _, s := range o.Stores {
			if _, err := store.Open(s, nil); err != nil {
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
		return Policy{}, errors.New("it lists no key: add keyrings under spec.openpgp, or public keys, keyless or certificates under spec.sigstore")
	}
	return p, nil
}

func (s *SigstoreTrust) addTo(p *Policy, files fileReader) error {
	for _, k := range s.PublicKeys {
		key, err := k.publicKey()
		if err != nil {
			return err
		}
		p.SigstoreKeys = append(p.SigstoreKeys, key)
	}
	for _, list := range []struct {
		entries []TrustedAuthority
		check   func(sigstore.Authority) error
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
		return errors.New("spec.sigstore is empty: add publicKeys, keyless or certificates")
	}
	return nil
}

func (k TrustedPublicKey) publicKey() (sigstore.PublicKey, error) {
	var alternatives [][]byte
	for _, a := range k.Alternatives {
		alternatives = append(alternatives, []byte(a))
	}
	key, err := sigstore.NewPublicKey(k.Name, []byte(k.PEM), alternatives...)
	if err != nil {
		return sigstore.PublicKey{}, err
	}
	key.SignedIdentity = k.SignedIdentity
	if k.RekorKeys != "" {
		log, err := sigstore.NewTrustRoot(sigstore.TrustRootOptions{LogKeys: []byte(k.RekorKeys)})
		if err != nil {
			return sigstore.PublicKey{}, fmt.Errorf("reading public key %q: %w", k.Name, err)
		}
		key.Log = &log
	}
	return key, nil
}

func (t TrustedAuthority) authority(files fileReader) (sigstore.Authority, error) {
	root, err := t.trustRoot(files)
	return sigstore.Authority{Name: t.Name, TrustRoot: root, Identities: t.Identities, SignedIdentity: t.SignedIdentity}, err
}

func (t TrustedAuthority) trustRoot(files fileReader) (sigstore.TrustRoot, error) {
	parts := t.Roots + t.Intermediates + t.RekorKeys + t.CTLogKeys + t.TimestampAuthority
	switch {
	case t.TrustedRoot != "" && t.TrustedRootFile != "":
		return sigstore.TrustRoot{}, errors.New("it has both trustedRoot and trustedRootFile: remove one")
	case t.TrustedRoot+t.TrustedRootFile != "" && parts != "":
		return sigstore.TrustRoot{}, errors.New("it has a trusted root and also parts of one (roots, intermediates, rekorKeys, ctLogKeys, timestampAuthority): remove one of the two")
	case t.TrustedRoot != "":
		return sigstore.ParseTrustRoot([]byte(t.TrustedRoot))
	case t.TrustedRootFile != "":
		if t.TrustedRootFile != filepath.Base(t.TrustedRootFile) || t.TrustedRootFile == ".." {
			return sigstore.TrustRoot{}, fmt.Errorf("trustedRootFile %q is a path: name a file next to the document", t.TrustedRootFile)
		}
		data, err := files(t.TrustedRootFile)
		if err != nil {
			return sigstore.TrustRoot{}, fmt.Errorf("reading trustedRootFile %q: %w", t.TrustedRootFile, err)
		}
		if len(data) > maxSize {
			return sigstore.TrustRoot{}, fmt.Errorf("trustedRootFile %q is larger than %d bytes", t.TrustedRootFile, maxSize)
		}
		return sigstore.ParseTrustRoot(data)
	}
	return sigstore.NewTrustRoot(sigstore.TrustRootOptions{
		Roots: []byte(t.Roots), Intermediates: []byte(t.Intermediates), LogKeys: []byte(t.RekorKeys),
		CertificateLogKeys: []byte(t.CTLogKeys), TimestampAuthority: []byte(t.TimestampAuthority),
	})
}

// keylessAuthority rejects an authority that is unsuitable for keyless signing. A certificate that is valid only for minutes needs a source
// of the signing time, and a name proves nothing without its issuer.
func keylessAuthority(a sigstore.Authority) error {
	if !a.TrustRoot.HasTimeSource() {
		return errors.New("short-lived certificates need a source of the signing time: add rekorKeys or timestampAuthority, or move the entry to certificates")
	}
	for _, i := range a.Identities {
		switch {
		case i.Issuer+i.IssuerRegexp == "":
			return fmt.Errorf("identity %s has no issuer: set issuer to its OpenID Connect provider, such as https://accounts.google.com", i)
		case i.Hostname != "":
			return fmt.Errorf("identity %s: keyless certificates have no host names: use email, uri or subjectRegexp", i)
		}
	}
	return nil
}

// ownAuthority rejects fields that do not apply to an organization's own PKI.
func ownAuthority(a sigstore.Authority) error {
	for _, i := range a.Identities {
		if i.Issuer+i.IssuerRegexp != "" {
			return fmt.Errorf("identity %s: PKI certificates have no OpenID Connect issuer: remove issuer, or move the entry to keyless", i)
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
	if _, ok := data[DocumentKey]; ok {
		if len(binaryData) > 0 {
			return Policy{}, errors.New("it has both binaryData and " + DocumentKey + ": put everything under data")
		}
		return parseTrustDocumentData(data)
	}
	p, unknown, err := fromConfigMapData(data, binaryData)
	if err != nil {
		if key, found := misnamed(data); found {
			return Policy{}, fmt.Errorf("key %q has a %s: rename the key to %s", key, Kind, DocumentKey)
		}
		return Policy{}, fmt.Errorf("it has no key %s, and %w", DocumentKey, err)
	}
	if len(unknown) > 0 {
		return Policy{}, fmt.Errorf("ConfigMap key %q is unknown: keys are %s<name> and %s<name>", unknown[0], keyPrefix, storePrefix)
	}
	return p, nil
}

// misnamed returns the first key with a trust document.
func misnamed(data map[string]string) (key string, found bool) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		text := []byte(data[key])
		var head struct {
			Kind string `json:"kind"`
		}
		if len(text) <= maxSize && aliases.Check(text) == nil && yaml.Unmarshal(text, &head) == nil && head.Kind == Kind {
			return key, true
		}
	}
	return "", false
}

// parseTrustDocumentData parses a document. It rejects unused keys, because an administrator may believe that they are trusted.
func parseTrustDocumentData(data map[string]string) (Policy, error) {
	document := data[DocumentKey]
	used := map[string]bool{DocumentKey: true}
	if len(document) > maxSize {
		return Policy{}, fmt.Errorf("larger than %d bytes", maxSize)
	}
	if err := aliases.Check([]byte(document)); err != nil {
		return Policy{}, err
	}
	if err := oneDocument([]byte(document)); err != nil {
		return Policy{}, err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(document), &head); err != nil || head.Kind != Kind || head.APIVersion != APIVersion {
		return Policy{}, fmt.Errorf("key %s contains no %s of %s", DocumentKey, Kind, APIVersion)
	}
	p, err := parseDocument([]byte(document), func(name string) ([]byte, error) {
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
			return Policy{}, fmt.Errorf("ConfigMap key %q is not used by %s: refer to it as a trustedRootFile, or remove it", key, DocumentKey)
		}
	}
	return p, nil
}

// oneDocument rejects a file with a second YAML document, which a decoder would silently ignore.
func oneDocument(data []byte) error {
	lines := strings.Split(string(data), "\n")
	first := slices.IndexFunc(lines, func(l string) bool {
		l = strings.TrimSpace(l)
		return l != "" && l != "---" && !strings.HasPrefix(l, "#")
	})
	for _, l := range lines[max(first, 0):] {
		if l == "---" || strings.HasPrefix(l, "--- ") || strings.HasPrefix(l, "---\r") {
			return errors.New("it contains several YAML documents: put all roots into one")
		}
	}
	return nil
}
