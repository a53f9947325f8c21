package policy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/policy"
)

//threat:trust-files-trust
func FuzzParse(f *testing.F) {
	f.Add("apiVersion: cvo.cluster-version.github.io/v1alpha1\nkind: TrustPolicy\nspec: {sigstore: {publicKeys: [{name: a, pem: b}]}}\n")
	f.Add("apiVersion: v1\nkind: ConfigMap\ndata: {verifier-public-key-a: b, store-c: https://d}\n")
	f.Add(string(public(f, newEntity(f, "alice"))))
	f.Add(string(pemKey(f)))
	f.Fuzz(func(t *testing.T, data string) {
		p, err := policy.Parse("trust.yaml", []byte(data))
		assert.Equal(t, err != nil, p.Empty())
	})
}

//threat:trust-files-trust
func FuzzDocument(f *testing.F) {
	s := newSigstore(f)
	file, err := s.TrustedRoot()
	require.NoError(f, err)
	keyless := keylessIn(s)
	f.Add(trustDocument(f, object{"sigstore": object{"keyless": []object{keyless}}}), "{}")
	f.Add(trustDocument(f, object{"sigstore": object{"keyless": []object{{"name": "x", "trustedRootFile": "file", "identities": keyless["identities"]}}}}), string(file))
	f.Add(trustDocument(f, object{
		"sigstore":   object{"publicKeys": []object{{"name": "a", "pem": string(pemKey(f)), "signedIdentity": object{"matchPolicy": "MatchRepository"}}}},
		"thresholds": []object{{"name": "t", "required": 1, "members": []string{"a"}}},
	}), "")
	f.Fuzz(func(t *testing.T, document, file string) {
		for _, data := range []map[string]string{{policy.DocumentKey: document}, {policy.DocumentKey: document, "file": file}} {
			trust, err := policy.ParseData("ConfigMap", data, nil)
			assert.Equal(t, err != nil, trust.Empty())
		}
	})
}

//threat:clusterimagepolicies
func FuzzClusterImagePolicy(f *testing.F) {
	s := newSigstore(f)
	f.Add(imagePolicy("a", "[a.example/b:c, '*.example']", keyPolicy(pemKey(f))), "a.example/b:c")
	f.Add(imagePolicy("a", "[localhost:5000]", fmt.Sprintf("{signedIdentity: {matchPolicy: RemapIdentity, remapIdentity: {prefix: a.example, signedPrefix: b.example}}, "+
		"rootOfTrust: {policyType: PKI, pki: {caRootsData: %s, pkiCertificateSubject: {email: a@b}}}}", b64(s.Roots()))), "localhost:5000/x@"+string(digest))
	f.Add("apiVersion: v1\nkind: List\nitems: []\n---\n", "busybox")
	f.Fuzz(func(t *testing.T, data, pullspec string) {
		policies, err := policy.ParseClusterImagePolicies("policy.yaml", []byte(data))
		assert.Equal(t, err != nil, len(policies) == 0)
		matching, err := policies.Matching(pullspec)
		if err != nil {
			assert.Empty(t, matching)
		}
		for _, trust := range matching {
			assert.False(t, trust.Empty())
		}
	})
}
