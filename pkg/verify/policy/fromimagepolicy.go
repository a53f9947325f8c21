package policy

import (
	"errors"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/verify/sigstore"
)

// FromImagePolicy returns a trust policy with the requirements of a ClusterImagePolicy. It omits the scopes, because a trust policy has
// none: its requirements apply to every release. It rejects an object that the API server would reject.
func FromImagePolicy(object configv1.ClusterImagePolicy) (Document, error) {
	fail := func(err error) (Document, error) {
		return Document{}, fmt.Errorf("creating a trust policy from ClusterImagePolicy %s: %w", object.Name, err)
	}
	if err := (ClusterImagePolicies{object}).Validate(); err != nil {
		return fail(err)
	}
	document := Document{
		APIVersion: APIVersion, Kind: Kind, Metadata: Metadata{Name: object.Name},
		Spec: Spec{Sigstore: sigstoreTrustOf(object)},
	}
	if _, err := document.policy(func(string) ([]byte, error) { return nil, errors.New("it refers to no file") }); err != nil {
		return fail(err)
	}
	return document, nil
}

// sigstoreTrustOf converts the root of trust of a valid object.
func sigstoreTrustOf(object configv1.ClusterImagePolicy) *SigstoreTrust {
	trust, identity := object.Spec.Policy.RootOfTrust, signedIdentityOf(object)
	switch trust.PolicyType {
	case configv1.PublicKeyRootOfTrust:
		return &SigstoreTrust{PublicKeys: []TrustedPublicKey{{
			Name: object.Name, PEM: string(trust.PublicKey.KeyData), RekorKeys: string(trust.PublicKey.RekorKeyData), SignedIdentity: identity,
		}}}
	case configv1.FulcioCAWithRekorRootOfTrust:
		fulcio := trust.FulcioCAWithRekor
		return &SigstoreTrust{Keyless: []TrustedAuthority{{
			Name: object.Name, Roots: string(fulcio.FulcioCAData), RekorKeys: string(fulcio.RekorKeyData), SignedIdentity: identity,
			Identities: []sigstore.Identity{{Issuer: fulcio.FulcioSubject.OIDCIssuer, Email: fulcio.FulcioSubject.SignedEmail}},
		}}}
	case configv1.PKIRootOfTrust:
		pki := trust.PKI
		return &SigstoreTrust{Certificates: []TrustedAuthority{{
			Name: object.Name, Roots: string(pki.CertificateAuthorityRootsData), Intermediates: string(pki.CertificateAuthorityIntermediatesData),
			SignedIdentity: identity,
			Identities:     []sigstore.Identity{{Email: pki.PKICertificateSubject.Email, Hostname: pki.PKICertificateSubject.Hostname}},
		}}}
	}
	return nil
}

// signedIdentityOf returns an object's requirement for the signed name. It makes the object's default explicit, because a trust policy
// accepts any name by default.
func signedIdentityOf(object configv1.ClusterImagePolicy) *configv1.PolicyIdentity {
	if identity := object.Spec.Policy.SignedIdentity; identity != nil {
		return identity
	}
	return &configv1.PolicyIdentity{MatchPolicy: configv1.IdentityMatchPolicyMatchRepoDigestOrExact}
}

// ConfigMapData returns the content of a ConfigMap with the document, in the form that ParseData reads.
func (t Document) ConfigMapData() (map[string]string, error) {
	document, err := yaml.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("writing trust policy %s: %w", t.Metadata.Name, err)
	}
	return map[string]string{DocumentKey: string(document)}, nil
}
