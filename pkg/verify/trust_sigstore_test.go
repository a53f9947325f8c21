package verify_test

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
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

type object = map[string]any

// trustDocument is a TrustPolicy as YAML.
func trustDocument(t testing.TB, spec object) string {
	t.Helper()
	data, err := yaml.Marshal(object{"apiVersion": verify.TrustAPIVersion, "kind": verify.TrustKind, "spec": spec})
	require.NoError(t, err)
	return string(data)
}

// changed is a copy of an object with some fields set, or removed where the value is nil.
func changed(o object, fields object) object {
	out := maps.Clone(o)
	for k, v := range fields {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

func keylessIn(s *fixture.Sigstore) object {
	return object{
		"name": "ci", "roots": string(s.Roots()), "intermediates": string(s.Intermediates()), "rekorKeys": string(s.LogKey()),
		"ctLogKeys": string(s.CertificateLogKey()), "identities": []object{{"issuer": actions, "uri": workflow}},
	}
}

func TestTrustDocumentsOfSigstore(t *testing.T) {
	s := newSigstore(t)
	signed := attached(t)
	file, err := s.TrustedRoot()
	require.NoError(t, err)
	keyless := keylessIn(s)
	pki := object{"name": "pki", "roots": string(s.Roots()), "intermediates": string(s.Intermediates()), "identities": []object{{"email": alice}}}
	root := object{"name": "ci", "identities": keyless["identities"]}
	bare, err := fixture.NewSigstoreSigner()
	require.NoError(t, err)
	document := []byte(simpleSigning(digest))
	byCI := signed(s.Classic(ci(t, s), document, fixture.SigstoreForm{}))
	byAlice := signed(s.Classic(issue(t, s, fixture.SigstoreSubject{Email: alice, NotAfter: today.AddDate(1, 0, 0)}), document, fixture.SigstoreForm{Unlogged: true}))
	byKey := signed(s.Classic(bare, document, fixture.SigstoreForm{}))
	unlogged := signed(s.Classic(bare, document, fixture.SigstoreForm{Unlogged: true}))
	key := object{"name": "team", "pem": string(pemKey(t)), "alternatives": []string{string(bare.PublicKey())}, "rekorKeys": string(s.LogKey())}
	named := changed(key, object{"rekorKeys": nil, "signedIdentity": object{"matchPolicy": "ExactRepository", "exactRepository": object{"repository": "other.example/x"}}})

	for _, test := range []struct {
		name    string
		spec    object
		found   release.Attachment
		refusal string
	}{
		{"it trusts keyless signing by parts", object{"keyless": []object{keyless}}, byCI, ""},
		{"it trusts keyless signing by a trusted root", object{"keyless": []object{changed(root, object{"trustedRoot": string(file)})}}, byCI, ""},
		{"it trusts keyless signing by a trusted root beside it", object{"keyless": []object{changed(root, object{"trustedRootFile": "root.json"})}}, byCI, ""},
		{"it trusts a PKI", object{"certificates": []object{pki}}, byAlice, ""},
		{"it trusts an alternative key", object{"publicKeys": []object{key}}, byKey, ""},
		{"it asks for the log of a key", object{"publicKeys": []object{key}}, unlogged, "no entry of it in a transparency log"},
		{"it asks for the signed name", object{"publicKeys": []object{named}}, byKey, "which signedIdentity ExactRepository does not accept"},
		{"it asks for all of them", object{"publicKeys": []object{key}, "keyless": []object{keyless}}, byKey, "against certificate identities: ci"},
	} {
		t.Run(test.name, func(t *testing.T) {
			document := trustDocument(t, object{"sigstore": test.spec})
			dir := t.TempDir()
			path := filepath.Join(dir, "trust.yaml")
			require.NoError(t, os.WriteFile(path, []byte(document), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "root.json"), file, 0o600))
			fromFile, err := verify.ReadTrust(path)
			require.NoError(t, err)
			data := map[string]string{verify.TrustPolicyKey: document}
			if strings.Contains(document, "root.json") {
				data["root.json"] = string(file)
			}
			fromConfigMap, err := verify.ParseTrustData("ConfigMap ns/trust", data, nil)
			require.NoError(t, err)
			assert.Equal(t, "ConfigMap ns/trust", fromConfigMap.Name)
			for _, policy := range []verify.Policy{fromFile, fromConfigMap} {
				_, err := newVerifier(t, policy, verify.Sources{Attachments: attachments{found: []release.Attachment{test.found}}}).Verify(t.Context(), image())
				if test.refusal == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, verify.ErrUnverified)
				require.ErrorContains(t, err, test.refusal)
			}
		})
	}
}

func TestTrustDocumentsOfSigstoreAreRefused(t *testing.T) {
	s := newSigstore(t)
	file, err := s.TrustedRoot()
	require.NoError(t, err)
	keyless := keylessIn(s)
	leaf := issue(t, s, fixture.SigstoreSubject{Email: alice})
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
		{"nobody", object{}, "spec.sigstore lists nobody"},
		{"keyless signing without a log", one(object{"rekorKeys": nil}), "nobody says when a short-lived certificate was used"},
		{"keyless signing without an issuer", who(object{"uri": workflow}), "has no issuer"},
		{"keyless signing by host name", who(object{"issuer": actions, "hostname": "x.example.com"}), "keyless certificates have no host name"},
		{"an authority without a name", one(object{"name": ""}), "without a name"},
		{"two of one name", object{"publicKeys": []object{changed(key, object{"name": "ci"})}, "keyless": []object{keyless}}, `two keys named "ci"`},
		{"no root", one(object{"roots": nil, "intermediates": nil}), "it names no certificate authority"},
		{"intermediates without a root", one(object{"roots": nil}), "there are intermediates but no roots"},
		{"a signer's certificate as a root", one(object{"roots": string(leafPEM)}), "is no certificate authority"},
		{"a key as a root", one(object{"roots": string(pemKey(t))}), "it holds a PEM PUBLIC KEY, expected a CERTIFICATE"},
		{"a root that is none", one(object{"roots": "x"}), "no PEM block in it"},
		{"a log key that is none", one(object{"rekorKeys": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"}), "reading log keys"},
		{"a weak log key", one(object{"ctLogKeys": string(weakPEM)}), "RSA with 1024 bits is too weak"},
		{"a log key that is not ECDSA", one(object{"rekorKeys": string(pemOf(t, newKey(t, "Ed25519")))}), "needs a trusted_root.json"},
		{"no identity", one(object{"identities": []object{}}), "would accept whomever the authority certifies"},
		{"an empty identity", who(object{"issuer": actions}), "an identity names no subject"},
		{"a subject and a regular expression", who(object{"issuer": actions, "uri": workflow, "subjectRegexp": ".*"}), "both subjectRegexp and a subject"},
		{"an issuer and a regular expression", who(object{"issuer": actions, "issuerRegexp": ".*", "uri": workflow}), "both issuer and issuerRegexp"},
		{"a regular expression that is none", who(object{"issuer": actions, "subjectRegexp": "("}), "reading regular expression"},
		{"a regular expression that breaks out", who(object{"issuer": actions, "subjectRegexp": "x)|(?:.*"}), "reading regular expression"},
		{"a trusted root twice", one(object{"roots": nil, "intermediates": nil, "rekorKeys": nil, "ctLogKeys": nil, "trustedRoot": string(file), "trustedRootFile": "x"}), "both trustedRoot and trustedRootFile"},
		{"a trusted root and its parts", one(object{"trustedRoot": string(file)}), "it has a trusted root and parts of one"},
		{"a trusted root that is none", object{"keyless": []object{{"name": "x", "trustedRoot": "{", "identities": keyless["identities"]}}}, "reading sigstore trusted root"},
		{"a path to a trusted root", object{"keyless": []object{{"name": "x", "trustedRootFile": "../x", "identities": keyless["identities"]}}}, "is a path: name a file beside the document"},
		{"a trusted root that is not there", object{"keyless": []object{{"name": "x", "trustedRootFile": "x", "identities": keyless["identities"]}}}, `reading trustedRootFile "x"`},
		{"an issuer in a PKI", own(object{"identities": []object{{"email": alice, "issuer": actions}}}), "certificates of a PKI name no OpenID Connect issuer"},
		{"an unknown way to match a name", keyed(object{"signedIdentity": object{"matchPolicy": "Sometimes"}}), `matchPolicy "Sometimes" is not known`},
		{"an unknown field of an identity", who(object{"issuer": actions, "url": workflow}), "unknown field"},
		{"a key twice", keyed(object{"alternatives": []string{key["pem"].(string)}}), "the same key is there twice"},
		{"a log key beside a key that is none", keyed(object{"rekorKeys": "x"}), "no PEM block in it"},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			_, err := verify.ParseTrust("trust.yaml", []byte(trustDocument(t, object{"sigstore": test.spec})))
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
		{"no document", map[string]string{"x": "y"}, "it has no key trust-policy.yaml"},
		{"a document of another kind", map[string]string{verify.TrustPolicyKey: "kind: ConfigMap"}, "holds no TrustPolicy"},
		{"a key that nobody uses", map[string]string{verify.TrustPolicyKey: good, "verifier-public-key-x": "y"}, `ConfigMap key "verifier-public-key-x" is not used`},
		{"a trusted root that is not there", map[string]string{verify.TrustPolicyKey: trustDocument(t, object{"sigstore": object{"keyless": []object{
			{"name": "x", "trustedRootFile": "x", "identities": keyless["identities"]},
		}}})}, "the ConfigMap has no such key"},
		{"two documents", map[string]string{verify.TrustPolicyKey: good + "---\n" + good}, "several YAML documents"},
	} {
		t.Run("it refuses a ConfigMap with "+test.name, func(t *testing.T) {
			_, err := verify.ParseTrustData("ConfigMap ns/trust", test.data, nil)
			require.ErrorContains(t, err, "reading trust from ConfigMap ns/trust: ")
			assert.ErrorContains(t, err, test.want)
		})
	}
}
