package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/policy"
)

//threat:clusterimagepolicy-only-policy
func TestTrustFromImagePolicyRequiresTheSameSigners(t *testing.T) {
	s := newSigstore(t)
	key := keyPolicy(pemKey(t))
	fulcio := "{rootOfTrust: {policyType: FulcioCAWithRekor, fulcioCAWithRekor: {fulcioCAData: " + b64(s.Roots()) + ", rekorKeyData: " + b64(s.LogKey()) +
		", fulcioSubject: {oidcIssuer: '" + accounts + "', signedEmail: " + alice + "}}}}"
	pki := "{rootOfTrust: {policyType: PKI, pki: {caRootsData: " + b64(s.Roots()) + ", caIntermediatesData: " + b64(s.Intermediates()) +
		", pkiCertificateSubject: {email: " + alice + ", hostname: build.example.com}}}}"
	for name, text := range map[string]string{
		"a public key":            key,
		"a public key with a log": strings.Replace(key, "keyData:", "rekorKeyData: "+b64(s.LogKey())+", keyData:", 1),
		"a Fulcio identity":       fulcio,
		"a PKI":                   pki,
		"a signed identity": strings.Replace(key, "{rootOfTrust",
			"{signedIdentity: {matchPolicy: RemapIdentity, remapIdentity: {prefix: mirror.example, signedPrefix: registry.example}}, rootOfTrust", 1),
	} {
		t.Run("it has the same requirements for "+name, func(t *testing.T) {
			policies, err := policy.ParseClusterImagePolicies("policy.yaml", []byte(imagePolicy("platform", "[registry.example]", text)))
			require.NoError(t, err)
			matching, err := policies.Matching("registry.example/platform/release:1")
			require.NoError(t, err)
			document, err := policy.FromImagePolicy(policies[0])
			require.NoError(t, err)
			data, err := document.ConfigMapData()
			require.NoError(t, err)
			trust, err := policy.ParseData("", data, nil)
			require.NoError(t, err)
			for i := range trust.SigstoreKeys {
				assert.Equal(t, "platform", trust.SigstoreKeys[i].Name)
				trust.SigstoreKeys[i].Name = "ClusterImagePolicy platform"
			}
			for i := range trust.Authorities {
				assert.Equal(t, "platform", trust.Authorities[i].Name)
				trust.Authorities[i].Name = "ClusterImagePolicy platform"
			}
			assert.Equal(t, matching[0].SigstoreKeys, trust.SigstoreKeys)
			require.Len(t, trust.Authorities, len(matching[0].Authorities))
			for i, a := range matching[0].Authorities {
				assert.Equal(t, a.Identities, trust.Authorities[i].Identities)
				assert.Equal(t, a.SignedIdentity, trust.Authorities[i].SignedIdentity)
			}
		})
	}
	policies, err := policy.ParseClusterImagePolicies("policy.yaml", []byte(imagePolicy("platform", "[registry.example]", key)))
	require.NoError(t, err)
	policies[0].Spec.Policy.RootOfTrust.PublicKey.KeyData = []byte("x")
	_, err = policy.FromImagePolicy(policies[0])
	require.ErrorContains(t, err, "creating a trust policy from ClusterImagePolicy platform")
}
