package policy_test

import (
	"crypto/rand"
	"crypto/rsa"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/fixture/signing"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

type object = map[string]any

// trustDocument returns a TrustPolicy as YAML.
func trustDocument(t testing.TB, spec object) string {
	t.Helper()
	data, err := yaml.Marshal(object{"apiVersion": policy.APIVersion, "kind": policy.Kind, "spec": spec})
	require.NoError(t, err)
	return string(data)
}

// changed returns a copy of an object with some fields set, or removed if the value is nil.
func changed(o object, fields object) object {
	out := maps.Clone(o)
	for k, v := range fields {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

func keylessIn(s *sigstoretest.Deployment) object {
	return object{
		"name": "ci", "roots": string(s.Roots()), "intermediates": string(s.Intermediates()), "rekorKeys": string(s.LogKey()),
		"ctLogKeys": string(s.CertificateLogKey()), "identities": []object{{"issuer": actions, "uri": workflow}},
	}
}

func TestSigstoreTrustDocumentsVerify(t *testing.T) {
	s := newSigstore(t)
	signed := attached(t)
	file, err := s.TrustedRoot()
	require.NoError(t, err)
	keyless := keylessIn(s)
	pki := object{"name": "pki", "roots": string(s.Roots()), "intermediates": string(s.Intermediates()), "identities": []object{{"email": alice}}}
	root := object{"name": "ci", "identities": keyless["identities"]}
	bare, err := sigstoretest.NewSigner()
	require.NoError(t, err)
	document := []byte(simpleSigning(digest))
	byCI := signed(s.Classic(ci(t, s), document, sigstoretest.Form{}))
	byAlice := signed(s.Classic(issue(t, s, sigstoretest.Subject{Email: alice, NotAfter: today.AddDate(1, 0, 0)}), document, sigstoretest.Form{Unlogged: true}))
	byKey := signed(s.Classic(bare, document, sigstoretest.Form{}))
	unlogged := signed(s.Classic(bare, document, sigstoretest.Form{Unlogged: true}))
	key := object{"name": "team", "pem": string(pemKey(t)), "alternatives": []string{string(bare.PublicKey())}, "rekorKeys": string(s.LogKey())}
	named := changed(key, object{"rekorKeys": nil, "signedIdentity": object{"matchPolicy": "ExactRepository", "exactRepository": object{"repository": "other.example/x"}}})

	for _, test := range []struct {
		name    string
		spec    object
		found   release.Attachment
		refusal string
	}{
		{"it trusts keyless signing with the parts of a trusted root", object{"keyless": []object{keyless}}, byCI, ""},
		{"it trusts keyless signing with a trusted root", object{"keyless": []object{changed(root, object{"trustedRoot": string(file)})}}, byCI, ""},
		{"it trusts keyless signing with a trusted root in a file", object{"keyless": []object{changed(root, object{"trustedRootFile": "root.json"})}}, byCI, ""},
		{"it trusts a PKI", object{"certificates": []object{pki}}, byAlice, ""},
		{"it trusts an alternative key", object{"publicKeys": []object{key}}, byKey, ""},
		{"it requires the log of a key", object{"publicKeys": []object{key}}, unlogged, "no entry in a trusted transparency log"},
		{"it requires the signed name", object{"publicKeys": []object{named}}, byKey, "which signedIdentity ExactRepository does not accept"},
		{"it requires all roots", object{"publicKeys": []object{key}, "keyless": []object{keyless}}, byKey, "signed with a bare key, not with a certificate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			document := trustDocument(t, object{"sigstore": test.spec})
			dir := t.TempDir()
			path := filepath.Join(dir, "trust.yaml")
			require.NoError(t, os.WriteFile(path, []byte(document), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "root.json"), file, 0o600))
			fromFile, err := policy.Read(path)
			require.NoError(t, err)
			data := map[string]string{policy.DocumentKey: document}
			if strings.Contains(document, "root.json") {
				data["root.json"] = string(file)
			}
			fromConfigMap, err := policy.ParseData("ConfigMap ns/trust", data, nil)
			require.NoError(t, err)
			assert.Equal(t, "ConfigMap ns/trust", fromConfigMap.Name)
			for _, trust := range []policy.Policy{fromFile, fromConfigMap} {
				err := refusal(trust, test.found, signing.Image())
				if test.refusal == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, test.refusal)
			}
		})
	}
}

//threat:misspelled-field-disables
func TestInvalidSigstoreTrustDocumentsAreRejected(t *testing.T) {
	s := newSigstore(t)
	file, err := s.TrustedRoot()
	require.NoError(t, err)
	keyless := keylessIn(s)
	leaf := issue(t, s, sigstoretest.Subject{Email: alice})
	leafPEM, err := cryptoutils.MarshalCertificateToPEM(leaf.Certificate)
	require.NoError(t, err)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	weakPEM, err := cryptoutils.MarshalPublicKeyToPEM(weak.Public())
	require.NoError(t, err)
	one := func(fields object) object { return object{"keyless": []object{changed(keyless, fields)}} }
	who := func(fields object) object { return one(object{"identities": []object{fields}}) }
	own := func(fields object) object {
		return object{"certificates": []object{changed(object{"name": "pki", "roots": string(s.Roots()), "identities": []object{{"email": alice}}}, fields)}}
	}
	key := object{"name": "team", "pem": string(pemKey(t))}
	keyed := func(fields object) object { return object{"publicKeys": []object{changed(key, fields)}} }
	for _, test := range []struct {
		name string
		spec object
		want string
	}{
		{"no signer", object{}, "spec.sigstore is empty"},
		{"keyless signing without a log", one(object{"rekorKeys": nil}), "short-lived certificates need a source of the signing time"},
		{"keyless signing without an issuer", who(object{"uri": workflow}), "has no issuer"},
		{"keyless signing by host name", who(object{"issuer": actions, "hostname": "x.example.com"}), "keyless certificates have no host names"},
		{"an authority without a name", one(object{"name": ""}), "without a name"},
		{"two of one name", object{"publicKeys": []object{changed(key, object{"name": "ci"})}, "keyless": []object{keyless}}, `two keys named "ci"`},
		{"no root certificate", one(object{"roots": nil, "intermediates": nil}), "it has no certificate authority"},
		{"intermediates without a root", one(object{"roots": nil}), "there are intermediates but no roots"},
		{"a signer's certificate as a root", one(object{"roots": string(leafPEM)}), "is not a certificate authority"},
		{"a key as a root", one(object{"roots": string(pemKey(t))}), "it contains a PEM PUBLIC KEY, expected a CERTIFICATE"},
		{"an invalid root", one(object{"roots": "x"}), "it contains no PEM block"},
		{"an invalid log key", one(object{"rekorKeys": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"}), "reading log keys"},
		{"a weak log key", one(object{"ctLogKeys": string(weakPEM)}), "RSA with 1024 bits is too weak"},
		{"a log key that is not ECDSA", one(object{"rekorKeys": string(pemOf(t, newKey(t, "Ed25519")))}), "needs a trusted_root.json"},
		{"no identity", one(object{"identities": []object{}}), "would accept every certificate of the authority"},
		{"an empty identity", who(object{"issuer": actions}), "an identity has no subject"},
		{"a subject and a regular expression", who(object{"issuer": actions, "uri": workflow, "subjectRegexp": ".*"}), "both subjectRegexp and a subject"},
		{"an issuer and a regular expression", who(object{"issuer": actions, "issuerRegexp": ".*", "uri": workflow}), "both issuer and issuerRegexp"},
		{"an invalid regular expression", who(object{"issuer": actions, "subjectRegexp": "("}), "reading regular expression"},
		{"a regular expression that leaves its group", who(object{"issuer": actions, "subjectRegexp": "x)|(?:.*"}), "reading regular expression"},
		{"a trusted root twice", one(object{"roots": nil, "intermediates": nil, "rekorKeys": nil, "ctLogKeys": nil, "trustedRoot": string(file), "trustedRootFile": "x"}), "both trustedRoot and trustedRootFile"},
		{"a trusted root and its parts", one(object{"trustedRoot": string(file)}), "it has a trusted root and also parts of one"},
		{"an invalid trusted root", object{"keyless": []object{{"name": "x", "trustedRoot": "{", "identities": keyless["identities"]}}}, "reading sigstore trusted root"},
		{"a path to a trusted root", object{"keyless": []object{{"name": "x", "trustedRootFile": "../x", "identities": keyless["identities"]}}}, "is a path: name a file next to the document"},
		{"a missing trusted root", object{"keyless": []object{{"name": "x", "trustedRootFile": "x", "identities": keyless["identities"]}}}, `reading trustedRootFile "x"`},
		{"an issuer in a PKI", own(object{"identities": []object{{"email": alice, "issuer": actions}}}), "PKI certificates have no OpenID Connect issuer"},
		{"an unknown match policy of a name", keyed(object{"signedIdentity": object{"matchPolicy": "Sometimes"}}), `matchPolicy "Sometimes" is unknown`},
		{"an unknown field of an identity", who(object{"issuer": actions, "url": workflow}), "unknown field"},
		{"a key twice", keyed(object{"alternatives": []string{key["pem"].(string)}}), "the same key is listed twice"},
		{"an invalid log key next to a valid key", keyed(object{"rekorKeys": "x"}), "it contains no PEM block"},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			_, err := policy.Parse("trust.yaml", []byte(trustDocument(t, object{"sigstore": test.spec})))
			require.ErrorContains(t, err, "reading trust file trust.yaml: ")
			assert.ErrorContains(t, err, test.want)
		})
	}

	good := trustDocument(t, object{"sigstore": object{"publicKeys": []object{key}}})
	for _, test := range []struct {
		name string
		data map[string]string
		want string
	}{
		{"a document under another key", map[string]string{"policy.yaml": good}, `key "policy.yaml" has a TrustPolicy: rename the key to trust-policy.yaml`},
		{"no document", map[string]string{"x": "y"}, "it has no key trust-policy.yaml"},
		{"a document of another kind", map[string]string{policy.DocumentKey: "kind: ConfigMap"}, "contains no TrustPolicy"},
		{"an unused key", map[string]string{policy.DocumentKey: good, "verifier-public-key-x": "y"}, `ConfigMap key "verifier-public-key-x" is not used`},
		{"a missing trusted root", map[string]string{policy.DocumentKey: trustDocument(t, object{"sigstore": object{"keyless": []object{
			{"name": "x", "trustedRootFile": "x", "identities": keyless["identities"]},
		}}})}, "the ConfigMap has no such key"},
		{"two documents", map[string]string{policy.DocumentKey: good + "---\n" + good}, "several YAML documents"},
	} {
		t.Run("it rejects a ConfigMap with "+test.name, func(t *testing.T) {
			_, err := policy.ParseData("ConfigMap ns/trust", test.data, nil)
			require.ErrorContains(t, err, "reading trust from ConfigMap ns/trust: ")
			assert.ErrorContains(t, err, test.want)
		})
	}
}
