package verify

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	clusterImagePolicyKind = "ClusterImagePolicy"
	maxScopes              = 256
	// maxPolicies is how many ClusterImagePolicies its list type allows.
	maxPolicies = 1000
)

// ClusterImagePolicies are the ClusterImagePolicy objects of a cluster, or of files.
type ClusterImagePolicies []configv1.ClusterImagePolicy

// ParseClusterImagePolicies reads ClusterImagePolicy objects of config.openshift.io/v1: YAML or JSON, several documents
// and lists are fine. The name (a file's path) is part of messages. What the API server would refuse is refused.
func ParseClusterImagePolicies(name string, data []byte) (ClusterImagePolicies, error) {
	policies, err := parseClusterImagePolicies(data)
	if err == nil {
		err = policies.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("reading policy file %s: %w", name, err)
	}
	return policies, nil
}

func parseClusterImagePolicies(data []byte) (ClusterImagePolicies, error) {
	if len(data) > maxTrustSize {
		return nil, fmt.Errorf("larger than %d bytes", maxTrustSize)
	}
	var out ClusterImagePolicies
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		found, err := parsePolicyDocument(document)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	if len(out) == 0 {
		return nil, errors.New("it holds no ClusterImagePolicy")
	}
	return out, nil
}

// parsePolicyDocument reads one object, one list, or a document with nothing but comments.
func parsePolicyDocument(data []byte) (ClusterImagePolicies, error) {
	if err := manifest.CheckAliases(data); err != nil {
		return nil, err
	}
	document, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, concise(err)
	}
	if string(document) == "null" {
		return nil, nil
	}
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Items           []stdjson.RawMessage `json:"items"`
	}
	if err := stdjson.Unmarshal(document, &list); err != nil {
		return nil, err
	}
	group := configv1.GroupVersion.String()
	if list.APIVersion == group && list.Kind == clusterImagePolicyKind+"List" || list.APIVersion == "v1" && list.Kind == "List" {
		var out ClusterImagePolicies
		for _, item := range list.Items {
			policy, err := parsePolicyObject(item)
			if err != nil {
				return nil, err
			}
			out = append(out, policy)
		}
		return out, nil
	}
	policy, err := parsePolicyObject(document)
	return ClusterImagePolicies{policy}, err
}

func parsePolicyObject(data []byte) (configv1.ClusterImagePolicy, error) {
	var head metav1.TypeMeta
	var policy configv1.ClusterImagePolicy
	if err := stdjson.Unmarshal(data, &head); err != nil {
		return policy, err
	}
	if group := configv1.GroupVersion.String(); head.Kind != clusterImagePolicyKind || head.APIVersion != group {
		return policy, fmt.Errorf("it holds a %q of %q: expected a %s of %s", head.Kind, head.APIVersion, clusterImagePolicyKind, group)
	}
	return policy, strictYAML(data, &policy)
}

// Validate refuses what the API server would refuse, and what could never be satisfied.
func (p ClusterImagePolicies) Validate() error {
	if len(p) > maxPolicies {
		return fmt.Errorf("%d policies, at most %d are read", len(p), maxPolicies)
	}
	names := map[string]bool{}
	for _, policy := range p {
		if policy.Name == "" {
			return errors.New("a ClusterImagePolicy has no name: set metadata.name")
		}
		if names[policy.Name] {
			return fmt.Errorf("ClusterImagePolicy %s is there twice", policy.Name)
		}
		names[policy.Name] = true
		if err := validateClusterImagePolicy(policy); err != nil {
			return fmt.Errorf("ClusterImagePolicy %s: %w", policy.Name, err)
		}
	}
	return nil
}

func validateClusterImagePolicy(policy configv1.ClusterImagePolicy) error {
	switch n := len(policy.Spec.Scopes); {
	case n == 0:
		return errors.New("spec.scopes is empty, so it holds for no image: add a registry, namespace or repository")
	case n > maxScopes:
		return fmt.Errorf("spec.scopes has %d entries, at most %d are allowed", n, maxScopes)
	}
	for _, s := range policy.Spec.Scopes {
		if !scopePattern.MatchString(string(s)) {
			return fmt.Errorf("spec.scopes: %q is no scope: write host[:port][/path][:tag][@digest] in full, or *.domain", s)
		}
	}
	p, err := policyOf(policy)
	if err != nil {
		return err
	}
	return p.validate()
}

// scopePattern is what the API server accepts as a scope.
var scopePattern = regexp.MustCompile(`^(?:\*(?:\.` + labelPattern + `)+|` +
	`(?:localhost|` + domainPattern + `)(?::[0-9]+)?(?:/` + componentPattern + `)*` +
	`(?::` + tagPattern + `)?(?:@` + digestPattern + `)?)$`)

// For returns the policy that holds for an image, by the name under which it was asked for: the objects that have the
// most specific of all scopes that match. If several objects have it, all of them must be satisfied, as container
// runtimes have it. False means that no scope matches.
func (p ClusterImagePolicies) For(pullspec string) (Policy, bool, error) {
	if len(p) == 0 {
		return Policy{}, false, nil // Whatever the image's name is, such as one that no scope can have.
	}
	scopes, err := scopesOf(pullspec)
	if err != nil {
		return Policy{}, false, fmt.Errorf("looking for the ClusterImagePolicy of %s: %w", pullspec, err)
	}
	for _, scope := range scopes {
		var merged Policy
		var names []string
		for _, policy := range p {
			if !slices.ContainsFunc(policy.Spec.Scopes, func(s configv1.ImageScope) bool { return canonicalScope(string(s)) == scope }) {
				continue
			}
			one, err := policyOf(policy)
			if err != nil {
				return Policy{}, false, fmt.Errorf("ClusterImagePolicy %s: %w", policy.Name, err)
			}
			merged.SigstoreKeys = append(merged.SigstoreKeys, one.SigstoreKeys...)
			merged.Authorities = append(merged.Authorities, one.Authorities...)
			names = append(names, policy.Name)
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		merged.Name = fmt.Sprintf("ClusterImagePolicy %s, scope %s", strings.Join(names, ", "), scope)
		return merged, true, merged.validate()
	}
	return Policy{}, false, nil
}

// scopesOf lists the scopes that match an image, the most specific first (containers-policy.json(5), docker
// transport): the image itself, its repository, the namespaces around it, the host, and wildcards over its domain.
func scopesOf(pullspec string) ([]string, error) {
	n, err := parsePullspec(pullspec)
	if err != nil {
		return nil, err
	}
	var out []string
	add := func(s string) { out = append(out, s) }
	if n.digest != "" {
		if n.tag != "" {
			add(n.repository + ":" + n.tag + "@" + n.digest)
		}
		add(n.repository + "@" + n.digest)
	}
	if n.tag != "" {
		add(n.repository + ":" + n.tag)
	}
	scope := n.repository
	for {
		add(scope)
		slash := strings.LastIndex(scope, "/")
		if slash < 0 {
			break
		}
		scope = scope[:slash]
	}
	domain, _, _ := strings.Cut(scope, ":")
	for {
		_, parent, ok := strings.Cut(domain, ".")
		if !ok {
			return out, nil
		}
		domain = parent
		add("*." + domain)
	}
}

// policyOf returns the one root of trust that an object describes, named for the object.
func policyOf(policy configv1.ClusterImagePolicy) (Policy, error) {
	name := clusterImagePolicyKind + " " + policy.Name
	trust := policy.Spec.Policy.RootOfTrust
	identity := policy.Spec.Policy.SignedIdentity
	if identity == nil {
		identity = &configv1.PolicyIdentity{MatchPolicy: configv1.IdentityMatchPolicyMatchRepoDigestOrExact}
	}
	if err := oneRootOfTrust(trust); err != nil {
		return Policy{}, err
	}
	p := Policy{Name: name}
	switch trust.PolicyType {
	case configv1.PublicKeyRootOfTrust:
		key, err := NewPublicKey(name, trust.PublicKey.KeyData)
		if err != nil {
			return Policy{}, err
		}
		if len(trust.PublicKey.RekorKeyData) > 0 {
			log, err := NewTrustRoot(TrustRootOptions{LogKeys: trust.PublicKey.RekorKeyData})
			if err != nil {
				return Policy{}, err
			}
			key.Log = &log
		}
		key.SignedIdentity = identity
		p.SigstoreKeys = []PublicKey{key}
	case configv1.FulcioCAWithRekorRootOfTrust:
		fulcio := trust.FulcioCAWithRekor
		root, err := NewTrustRoot(TrustRootOptions{Roots: fulcio.FulcioCAData, LogKeys: fulcio.RekorKeyData})
		if err != nil {
			return Policy{}, err
		}
		a := Authority{Name: name, TrustRoot: root, SignedIdentity: identity, Identities: []Identity{{
			Issuer: fulcio.FulcioSubject.OIDCIssuer, Email: fulcio.FulcioSubject.SignedEmail,
		}}}
		if err := keylessAuthority(a); err != nil {
			return Policy{}, err
		}
		p.Authorities = []Authority{a}
	case configv1.PKIRootOfTrust:
		root, err := NewTrustRoot(TrustRootOptions{
			Roots: trust.PKI.CertificateAuthorityRootsData, Intermediates: trust.PKI.CertificateAuthorityIntermediatesData,
		})
		if err != nil {
			return Policy{}, err
		}
		p.Authorities = []Authority{{Name: name, TrustRoot: root, SignedIdentity: identity, Identities: []Identity{{
			Email: trust.PKI.PKICertificateSubject.Email, Hostname: trust.PKI.PKICertificateSubject.Hostname,
		}}}}
	}
	return p, nil
}

// oneRootOfTrust wants the field that goes with the policy type and no other.
func oneRootOfTrust(trust configv1.PolicyRootOfTrust) error {
	set := map[configv1.PolicyType]bool{
		configv1.PublicKeyRootOfTrust:         trust.PublicKey != nil,
		configv1.FulcioCAWithRekorRootOfTrust: trust.FulcioCAWithRekor != nil,
		configv1.PKIRootOfTrust:               trust.PKI != nil,
	}
	if _, known := set[trust.PolicyType]; !known {
		return fmt.Errorf("rootOfTrust.policyType %q is not known: use %s, %s or %s", trust.PolicyType,
			configv1.PublicKeyRootOfTrust, configv1.FulcioCAWithRekorRootOfTrust, configv1.PKIRootOfTrust)
	}
	for policyType, is := range set {
		if is != (policyType == trust.PolicyType) {
			return fmt.Errorf("rootOfTrust.policyType is %s: it needs the field of that name, and no other root of trust beside it", trust.PolicyType)
		}
	}
	return nil
}
