package policy

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/aliases"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/verify/reference"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
)

const (
	clusterImagePolicyKind = "ClusterImagePolicy"
	maxScopes              = 256
	// maxPolicies is the maximum number of objects in a ClusterImagePolicyList.
	maxPolicies = 1000
)

// ClusterImagePolicies are the ClusterImagePolicy objects of a cluster, or of files.
type ClusterImagePolicies []configv1.ClusterImagePolicy

// ParseClusterImagePolicies parses ClusterImagePolicy objects of config.openshift.io/v1 from YAML or JSON, including lists and several
// documents. Errors contain the name (a file's path). It rejects everything that the API server would reject.
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
	if len(data) > maxSize {
		return nil, fmt.Errorf("larger than %d bytes", maxSize)
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
		return nil, errors.New("it contains no ClusterImagePolicy")
	}
	return out, nil
}

// parsePolicyDocument parses one object, one list, or a document with only comments.
func parsePolicyDocument(data []byte) (ClusterImagePolicies, error) {
	if err := aliases.Check(data); err != nil {
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
		return policy, fmt.Errorf("it contains kind %q of %q, expected %s of %s", head.Kind, head.APIVersion, clusterImagePolicyKind, group)
	}
	return policy, strictYAML(data, &policy)
}

// Validate rejects policies that the API server would reject or that no signature could satisfy.
func (p ClusterImagePolicies) Validate() error {
	if len(p) > maxPolicies {
		return fmt.Errorf("%d policies, the limit is %d", len(p), maxPolicies)
	}
	names := map[string]bool{}
	for _, policy := range p {
		if policy.Name == "" {
			return errors.New("a ClusterImagePolicy has no name: set metadata.name")
		}
		if names[policy.Name] {
			return fmt.Errorf("ClusterImagePolicy %s is listed twice", policy.Name)
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
		return errors.New("spec.scopes is empty, so the policy applies to no image: add a registry, namespace or repository")
	case n > maxScopes:
		return fmt.Errorf("spec.scopes has %d entries, the limit is %d", n, maxScopes)
	}
	for _, s := range policy.Spec.Scopes {
		if !reference.IsScope(string(s)) {
			return fmt.Errorf("spec.scopes: %q is not a valid scope: write host[:port][/path][:tag][@digest] in full, or *.domain", s)
		}
	}
	p, err := policyOf(policy)
	if err != nil {
		return err
	}
	return p.Validate()
}

// Matching returns the policies that an image must satisfy in addition to the root of trust: one for each object with a scope that matches
// the requested pullspec, most specific scope first. Container runtimes use only the objects with the most specific scope. Here, no object
// lifts the requirements of another, less specific one. Invalid is set in the policy of an object that Validate rejects.
func (p ClusterImagePolicies) Matching(pullspec string) ([]Policy, error) {
	if len(p) == 0 {
		return nil, nil // even for a pullspec that no scope can match
	}
	scopes, err := reference.Scopes(pullspec)
	if err != nil {
		return nil, fmt.Errorf("looking for the ClusterImagePolicies of %s: %w", pullspec, err)
	}
	var out []Policy
	matched := map[string]bool{}
	for _, scope := range scopes {
		for _, object := range p.withScope(scope) {
			if matched[object.Name] {
				continue
			}
			matched[object.Name] = true
			policy, err := policyOf(object)
			if err == nil {
				err = policy.Validate()
			}
			if err != nil {
				policy = Policy{Invalid: err}
			}
			policy.Name, policy.Object = fmt.Sprintf("ClusterImagePolicy %s, scope %s", object.Name, scope), object.Name
			out = append(out, policy)
		}
	}
	return out, nil
}

// Covering returns the objects with a scope that matches the requested pullspec, without the metadata that no signature
// depends on.
func (p ClusterImagePolicies) Covering(pullspec string) (ClusterImagePolicies, error) {
	if len(p) == 0 {
		return nil, nil // even for a pullspec that no scope can match
	}
	scopes, err := reference.Scopes(pullspec)
	if err != nil {
		return nil, fmt.Errorf("looking for the ClusterImagePolicies of %s: %w", pullspec, err)
	}
	var out ClusterImagePolicies
	for _, object := range p {
		if slices.ContainsFunc(object.Spec.Scopes, func(s configv1.ImageScope) bool {
			return slices.Contains(scopes, reference.CanonicalScope(string(s)))
		}) {
			out = append(out, configv1.ClusterImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: object.Name}, Spec: object.Spec})
		}
	}
	return out, nil
}

// withScope returns the objects that have the given scope, sorted by name.
func (p ClusterImagePolicies) withScope(scope string) ClusterImagePolicies {
	var out ClusterImagePolicies
	for _, object := range p {
		if slices.ContainsFunc(object.Spec.Scopes, func(s configv1.ImageScope) bool { return reference.CanonicalScope(string(s)) == scope }) {
			out = append(out, object)
		}
	}
	sorted.By(out, func(a, b configv1.ClusterImagePolicy) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Require returns the policy of one image: a root of trust and, in addition, every matching ClusterImagePolicy. err is the
// error of finding the root.
func Require(root Policy, err error, matching []Policy) (Policy, error) {
	if err != nil {
		return Policy{}, requireRoot(err, matching)
	}
	root.Additional = matching
	return root, nil
}

// requireRoot replaces ErrNone if ClusterImagePolicies match the image. The new error explains that they are not a root of
// trust, and names the command that creates one from the most specific policy. Other errors stay unchanged.
func requireRoot(err error, matching []Policy) error {
	if !errors.Is(err, ErrNone) || len(matching) == 0 {
		return err
	}
	names := make([]string, len(matching))
	for i, policy := range matching {
		names[i] = policy.Name
	}
	return api.Reworded(err, fmt.Sprintf("no image is accepted, because no root of trust is configured: %s only adds requirements to one. "+
		"If its signer may sign every release of this cluster, apply the trust policy that 'cvo trust from-image-policy %s' prints",
		strings.Join(names, "; "), matching[0].Object))
}

// policyOf returns the root of trust in an object, with the object's name.
func policyOf(policy configv1.ClusterImagePolicy) (Policy, error) {
	name := clusterImagePolicyKind + " " + policy.Name
	trust := policy.Spec.Policy.RootOfTrust
	identity := signedIdentityOf(policy)
	if err := oneRootOfTrust(trust); err != nil {
		return Policy{}, err
	}
	p := Policy{Name: name}
	switch trust.PolicyType {
	case configv1.PublicKeyRootOfTrust:
		key, err := sigstore.NewPublicKey(name, trust.PublicKey.KeyData)
		if err != nil {
			return Policy{}, err
		}
		if len(trust.PublicKey.RekorKeyData) > 0 {
			log, err := sigstore.NewTrustRoot(sigstore.TrustRootOptions{LogKeys: trust.PublicKey.RekorKeyData})
			if err != nil {
				return Policy{}, err
			}
			key.Log = &log
		}
		key.SignedIdentity = identity
		p.SigstoreKeys = []sigstore.PublicKey{key}
	case configv1.FulcioCAWithRekorRootOfTrust:
		fulcio := trust.FulcioCAWithRekor
		root, err := sigstore.NewTrustRoot(sigstore.TrustRootOptions{Roots: fulcio.FulcioCAData, LogKeys: fulcio.RekorKeyData})
		if err != nil {
			return Policy{}, err
		}
		a := sigstore.Authority{Name: name, TrustRoot: root, SignedIdentity: identity, Identities: []sigstore.Identity{{
			Issuer: fulcio.FulcioSubject.OIDCIssuer, Email: fulcio.FulcioSubject.SignedEmail,
		}}}
		if err := keylessAuthority(a); err != nil {
			return Policy{}, err
		}
		p.Authorities = []sigstore.Authority{a}
	case configv1.PKIRootOfTrust:
		root, err := sigstore.NewTrustRoot(sigstore.TrustRootOptions{
			Roots: trust.PKI.CertificateAuthorityRootsData, Intermediates: trust.PKI.CertificateAuthorityIntermediatesData,
		})
		if err != nil {
			return Policy{}, err
		}
		p.Authorities = []sigstore.Authority{{Name: name, TrustRoot: root, SignedIdentity: identity, Identities: []sigstore.Identity{{
			Email: trust.PKI.PKICertificateSubject.Email, Hostname: trust.PKI.PKICertificateSubject.Hostname,
		}}}}
	}
	return p, nil
}

// oneRootOfTrust checks that exactly the field for the policy type is set.
func oneRootOfTrust(trust configv1.PolicyRootOfTrust) error {
	set := map[configv1.PolicyType]bool{
		configv1.PublicKeyRootOfTrust:         trust.PublicKey != nil,
		configv1.FulcioCAWithRekorRootOfTrust: trust.FulcioCAWithRekor != nil,
		configv1.PKIRootOfTrust:               trust.PKI != nil,
	}
	if _, known := set[trust.PolicyType]; !known {
		return fmt.Errorf("rootOfTrust.policyType %q is unknown: use %s, %s or %s", trust.PolicyType,
			configv1.PublicKeyRootOfTrust, configv1.FulcioCAWithRekorRootOfTrust, configv1.PKIRootOfTrust)
	}
	for policyType, is := range set {
		if is != (policyType == trust.PolicyType) {
			return fmt.Errorf("rootOfTrust.policyType is %s: set the field of that name and no other root of trust", trust.PolicyType)
		}
	}
	return nil
}
