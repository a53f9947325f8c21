package policy_test

import (
	"crypto/rand"
	"crypto/rsa"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/policy"
)

func TestTrustDocumentsAreParsed(t *testing.T) {
	key, armor := pemKey(t), public(t, newEntity(t, "alice"))
	for _, test := range []struct {
		name, file, data string
		keyrings, keys   []string
		stores           []string
	}{
		{"a TrustPolicy", "trust.yaml", `# who signs our releases
apiVersion: cvo.cluster-version.github.io/v1alpha1
kind: TrustPolicy
metadata: {name: platform}
spec:
  openpgp:
    keyrings:
    - name: vendor
      armored: |
` + indent(armor, "        ") + `
    stores: [https://mirror.example/signatures]
  sigstore:
    publicKeys:
    - name: team
      pem: |
` + indent(key, "        ") + "\n", []string{"vendor"}, []string{"team"}, []string{"https://mirror.example/signatures"}},
		{"a ConfigMap", "cm.yaml", `---
apiVersion: v1
kind: ConfigMap
metadata: {name: release-verification}
data:
  store-a: " https://mirror.example/a "
  verifier-public-key-vendor: |
` + indent(armor, "    ") + "\n", []string{"verifier-public-key-vendor"}, nil, []string{"https://mirror.example/a"}},
		{"an armored keyring after other text", "/etc/keys/vendor.asc", "pub 4096R/FD431D51\n\n" + string(armor), []string{"vendor"}, nil, nil},
		{"several armored keyrings in one file", "vendor.asc", string(armor) + "\n" + string(public(t, newEntity(t, "bob"))), []string{"vendor"}, nil, nil},
		{"a PEM public key", "team.pub", string(key), nil, []string{"team"}, nil},
	} {
		t.Run("it reads "+test.name, func(t *testing.T) {
			p, err := policy.Parse(test.file, []byte(test.data))
			require.NoError(t, err)
			assert.Equal(t, test.file, p.Name)
			var keyrings, keys []string
			for _, k := range p.Keyrings {
				keyrings = append(keyrings, k.Name)
			}
			for _, k := range p.SigstoreKeys {
				keys = append(keys, k.Name)
			}
			assert.Equal(t, test.keyrings, keyrings)
			assert.Equal(t, test.keys, keys)
			assert.Equal(t, test.stores, p.Stores)
		})
	}
}

//threat:weak-algorithms-md5 a weak key
//threat:misspelled-field-disables a misspelled field
//threat:private-key-where a private key
func TestInvalidTrustFilesAreRejected(t *testing.T) {
	const head = "apiVersion: cvo.cluster-version.github.io/v1alpha1\nkind: TrustPolicy\n"
	key, armor := pemKey(t), public(t, newEntity(t, "alice"))
	signer := func(name string) string {
		return "    - name: " + name + "\n      pem: |\n" + indent(key, "        ") + "\n"
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	weakPEM, err := cryptoutils.MarshalPublicKeyToPEM(weak.Public())
	require.NoError(t, err)
	private, err := cryptoutils.MarshalPrivateKeyToPEM(weak)
	require.NoError(t, err)

	for _, test := range []struct{ name, data, want string }{
		{"an empty file", "", "its format is unknown"},
		{"prose", "trust me", "its format is unknown"},
		{"another kind", "apiVersion: v1\nkind: Secret\n", "it has kind Secret of v1"},
		{"another version", "apiVersion: cvo.cluster-version.github.io/v9\nkind: TrustPolicy\n", "cvo.cluster-version.github.io/v9"},
		{"no key", head + "spec: {}\n", "lists no key: add keyrings"},
		{"an empty list of keyrings", head + "spec: {openpgp: {stores: [https://x]}}\n", "spec.openpgp.keyrings"},
		{"an empty list of public keys", head + "spec: {sigstore: {}}\n", "add publicKeys"},
		{"an unknown field", head + "spec: {openPGP: {}}\n", "unknown field"},
		{"a misspelled field", head + "spec:\n  sigstore:\n    publicKey: x\n", "unknown field"},
		{"a field twice", head + "spec: {}\nspec: {}\n", "already set"},
		{"two documents", head + "spec:\n  sigstore:\n    publicKeys:\n" + signer("a") + "---\n" + head, "several YAML documents"},
		{"a key without a name", head + "spec:\n  sigstore:\n    publicKeys:\n" + signer(`""`), "without a name"},
		{"two keys of one name", head + "spec:\n  sigstore:\n    publicKeys:\n" + signer("a") + signer("a"), `two keys named "a"`},
		{"a store of an unknown kind", head + "spec:\n  openpgp:\n    stores: [ftp://x]\n    keyrings:\n    - name: a\n      armored: |\n" +
			indent(armor, "        ") + "\n", `scheme "ftp"`},
		{"a weak key", string(weakPEM), "RSA with 1024 bits is too weak"},
		{"a private key", string(private), "it is a PEM PRIVATE KEY"},
		{"two PEM keys", string(key) + string(key), "several PEM blocks"},
		{"a ConfigMap without keys", "apiVersion: v1\nkind: ConfigMap\ndata: {store-a: https://x}\n", "verifier-public-key-<name>"},
		{"a ConfigMap with an unknown key", "apiVersion: v1\nkind: ConfigMap\ndata:\n  stores: x\n  verifier-public-key-a: |\n" + indent(armor, "    ") + "\n", `key "stores" is unknown`},
		{"a large file", strings.Repeat("#", 1<<20+1), "larger than 1048576 bytes"},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			_, err := policy.Parse("trust.yaml", []byte(test.data))
			require.ErrorContains(t, err, "reading trust file trust.yaml: ")
			assert.ErrorContains(t, err, test.want)
		})
	}
}

func TestTrustFileSetsTheOpenPGPRules(t *testing.T) {
	head := "apiVersion: " + policy.APIVersion + "\nkind: TrustPolicy\nspec:\n  openpgp:\n    keyrings:\n    - name: k\n      armored: |\n" +
		indent(public(t, newEntity(t, "alice")), "        ") + "\n"
	for _, test := range []struct {
		name, rules string
		want        openpgp.Rules
		err         string
	}{
		{"is strict by default", "", openpgp.Rules{}, ""},
		{
			"reads all rules", "    refuseExpiredKeys: true\n    unsafeAllowSHA1: true\n    unsafeMinimumRSABits: 1024\n",
			openpgp.Rules{RefuseExpiredKeys: true, UnsafeAllowSHA1: true, UnsafeMinimumRSABits: 1024},
			"",
		},
		{"rejects other names", "    allowSHA1: true\n", openpgp.Rules{}, `unknown field "spec.openpgp.allowSHA1"`},
		{"rejects another spelling", "    unsafeAllowSha1: true\n", openpgp.Rules{}, `unknown field "spec.openpgp.unsafeAllowSha1"`},
		{"rejects an invalid length", "    unsafeMinimumRSABits: 512\n", openpgp.Rules{}, "unsafeMinimumRSABits is 512: set it between 1024 and 2047"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			p, err := policy.Parse("trust.yaml", []byte(head+test.rules))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, p.Rules)
		})
	}
}

// TestDocumentedTrustFilesParse parses every example in the user documentation.
func TestDocumentedTrustFilesParse(t *testing.T) {
	var data []byte
	for _, page := range []string{"trust.md", "signatures.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "user", page))
		require.NoError(t, err)
		data = append(data, text...)
	}
	file, err := newSigstore(t).TrustedRoot()
	require.NoError(t, err)
	counts := map[string]int{}
	for _, match := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(data), -1) {
		example := match[1]
		kind := regexp.MustCompile(`(?m)^kind: (\w+)`).FindStringSubmatch(example)
		require.NotNil(t, kind, example)
		counts[kind[1]]++
		if kind[1] == "ClusterImagePolicy" {
			policies, err := policy.ParseClusterImagePolicies("signatures.md", []byte(example))
			require.NoError(t, err, example)
			assert.Len(t, policies, strings.Count(example, "kind: "))
			continue
		}
		dir := t.TempDir()
		path := filepath.Join(dir, "trust.yaml")
		require.NoError(t, os.WriteFile(path, []byte(example), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "trusted_root.json"), file, 0o600))
		trust, err := policy.Read(path)
		require.NoError(t, err, example)
		assert.Equal(t, path, trust.Name)
		assert.Equal(t, strings.Contains(example, "thresholds:"), len(trust.Thresholds) > 0)
	}
	assert.Equal(t, map[string]int{"TrustPolicy": 5, "ConfigMap": 2, "ClusterImagePolicy": 1}, counts)
}
