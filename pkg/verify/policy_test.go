package verify_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

func indent(data []byte, by string) string {
	return by + strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", "\n"+by)
}

func pemKey(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	data, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	require.NoError(t, err)
	return data
}

func TestParseTrust(t *testing.T) {
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
		{"an armored keyring with text before it", "/etc/keys/vendor.asc", "pub 4096R/FD431D51\n\n" + string(armor), []string{"vendor"}, nil, nil},
		{"several armored keyrings in one file", "vendor.asc", string(armor) + "\n" + string(public(t, newEntity(t, "bob"))), []string{"vendor"}, nil, nil},
		{"a PEM public key", "team.pub", string(key), nil, []string{"team"}, nil},
	} {
		t.Run("it reads "+test.name, func(t *testing.T) {
			p, err := verify.ParseTrust(test.file, []byte(test.data))
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

func TestParseTrustRefuses(t *testing.T) {
	const head = "apiVersion: cvo.cluster-version.github.io/v1alpha1\nkind: TrustPolicy\n"
	key, armor := pemKey(t), public(t, newEntity(t, "alice"))
	sigstore := func(name string) string {
		return "    - name: " + name + "\n      pem: |\n" + indent(key, "        ") + "\n"
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	weakPEM, err := cryptoutils.MarshalPublicKeyToPEM(weak.Public())
	require.NoError(t, err)
	private, err := cryptoutils.MarshalPrivateKeyToPEM(weak)
	require.NoError(t, err)

	for _, test := range []struct{ name, data, want string }{
		{"an empty file", "", "no known form"},
		{"prose", "trust me", "no known form"},
		{"another kind", "apiVersion: v1\nkind: Secret\n", "it is a Secret of v1"},
		{"another version", "apiVersion: cvo.cluster-version.github.io/v9\nkind: TrustPolicy\n", "cvo.cluster-version.github.io/v9"},
		{"no key", head + "spec: {}\n", "names no key: add keyrings"},
		{"an empty list of keyrings", head + "spec: {openpgp: {stores: [https://x]}}\n", "spec.openpgp.keyrings"},
		{"an empty list of public keys", head + "spec: {sigstore: {}}\n", "spec.sigstore.publicKeys"},
		{"an unknown field", head + "spec: {openPGP: {}}\n", "unknown field"},
		{"a misspelled field", head + "spec:\n  sigstore:\n    publicKey: x\n", "unknown field"},
		{"a field twice", head + "spec: {}\nspec: {}\n", "already set"},
		{"two documents", head + "spec:\n  sigstore:\n    publicKeys:\n" + sigstore("a") + "---\n" + head, "several YAML documents"},
		{"a key without a name", head + "spec:\n  sigstore:\n    publicKeys:\n" + sigstore(`""`), "without a name"},
		{"two keys of one name", head + "spec:\n  sigstore:\n    publicKeys:\n" + sigstore("a") + sigstore("a"), `two keys named "a"`},
		{"a store of an unknown kind", head + "spec:\n  openpgp:\n    stores: [ftp://x]\n    keyrings:\n    - name: a\n      armored: |\n" +
			indent(armor, "        ") + "\n", `scheme "ftp"`},
		{"a weak key", string(weakPEM), "RSA with 1024 bits is too weak"},
		{"a private key", string(private), "it is a PEM PRIVATE KEY"},
		{"two PEM keys", string(key) + string(key), "several PEM blocks"},
		{"a ConfigMap without keys", "apiVersion: v1\nkind: ConfigMap\ndata: {store-a: https://x}\n", "verifier-public-key-<name>"},
		{"a ConfigMap with an unknown key", "apiVersion: v1\nkind: ConfigMap\ndata:\n  stores: x\n  verifier-public-key-a: |\n" + indent(armor, "    ") + "\n", `key "stores" is not known`},
		{"a large file", strings.Repeat("#", 1<<20+1), "larger than 1048576 bytes"},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			_, err := verify.ParseTrust("trust.yaml", []byte(test.data))
			require.ErrorContains(t, err, "reading trust file trust.yaml: ")
			assert.ErrorContains(t, err, test.want)
		})
	}
}

func TestPrivateKeyringsAreRefused(t *testing.T) {
	signer, err := fixture.NewSigner("alice", fixture.SignerOptions{})
	require.NoError(t, err)
	private, err := signer.PrivateKey()
	require.NoError(t, err)
	_, err = verify.NewKeyring("k", private)
	assert.ErrorContains(t, err, "private key")
}

func TestNewRefuses(t *testing.T) {
	key, err := verify.NewPublicKey("team", pemKey(t))
	require.NoError(t, err)
	alice := keyring(t, "vendor", newEntity(t, "alice"))
	for _, test := range []struct {
		name   string
		policy verify.Policy
		want   string
	}{
		{"a policy that trusts nobody", verify.Policy{}, "nothing is accepted"},
		{"a named policy that trusts nobody", verify.Policy{Name: "x"}, "trust policy x names no key"},
		{"keyrings without a place to look", verify.Policy{Keyrings: []verify.Keyring{alice}}, "add a URL to spec.openpgp.stores"},
		{"public keys without a registry", verify.Policy{SigstoreKeys: []verify.PublicKey{key}}, "the image's registry cannot be searched"},
		{"a keyring that was not made", verify.Policy{Keyrings: []verify.Keyring{{Name: "a"}}, Stores: []string{"https://x"}}, "make it with NewKeyring"},
		{"a public key that was not made", verify.Policy{SigstoreKeys: []verify.PublicKey{{Name: "a"}}}, "make it with NewPublicKey"},
		{"two roots of one name", verify.Policy{Keyrings: []verify.Keyring{alice, alice}, Stores: []string{"https://x"}}, "two keys named"},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			v, err := verify.New(test.policy, verify.Sources{}, nil)
			assert.Nil(t, v)
			require.ErrorContains(t, err, test.want)
			if test.policy.Empty() {
				assert.ErrorIs(t, err, verify.ErrNoPolicy)
			}
		})
	}
}

func TestVerifierThatWasNotMadeAcceptsNothing(t *testing.T) {
	for _, v := range []*verify.Verifier{nil, {}} {
		_, err := v.Verify(t.Context(), image())
		require.ErrorIs(t, err, verify.ErrNoPolicy)
	}
}

func TestForceUnsafe(t *testing.T) {
	forced := verify.ForceUnsafe(image(), verify.ErrUnverified)
	assert.Equal(t, release.Verified{Image: image(), Forced: verify.ErrUnverified}, forced)
	assert.Error(t, verify.ForceUnsafe(image(), nil).Forced)
}

func manifestOf(t testing.TB, data string) *manifest.Manifest {
	t.Helper()
	m := &manifest.Manifest{File: "0000_90_keys_configmap.yaml", Document: 1, Object: &unstructured.Unstructured{}}
	require.NoError(t, yaml.Unmarshal([]byte(data), &m.Object.Object))
	return m
}

func TestFromManifests(t *testing.T) {
	cm := func(annotation, data string) *manifest.Manifest {
		return manifestOf(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: ns, name: c, annotations: {"+annotation+"}}\n"+data)
	}
	const annotation = `release.openshift.io/verification-config-map: ""`
	keys := "data:\n  store-a: https://x/a\n  other: left out\n  verifier-public-key-a: |\n" + indent(public(t, newEntity(t, "alice")), "    ")
	secret := manifestOf(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {"+annotation+"}}")

	p, err := verify.FromManifests([]*manifest.Manifest{secret, cm("a: b", keys), cm(annotation, keys), cm(annotation, "")})
	require.NoError(t, err)
	assert.Equal(t, "ConfigMap ns/c of the release", p.Name)
	assert.Equal(t, []string{"https://x/a"}, p.Stores)
	assert.Equal(t, "verifier-public-key-a", p.Keyrings[0].Name)

	_, err = verify.FromManifests([]*manifest.Manifest{secret, cm("a: b", keys)})
	require.ErrorIs(t, err, verify.ErrNoPolicy)
	_, err = verify.FromManifests([]*manifest.Manifest{cm(annotation, strings.Replace(keys, "store-a", "stores", 1))})
	require.ErrorContains(t, err, "it names no store")
	_, err = verify.FromConfigMap(cm("a: b", keys))
	require.ErrorContains(t, err, "it lacks the annotation")
	_, err = verify.FromConfigMap(cm(annotation, "data: {store-a: https://x}"))
	require.ErrorContains(t, err, "reading trust from 0000_90_keys_configmap.yaml[1] ConfigMap ns/c: it names no key")
}

func TestRealTrust(t *testing.T) {
	for _, version := range []string{"4.22.9", "4.23.0"} {
		files, err := filepath.Glob(filepath.Join(fixture.Testdata(t), "payloads", version, "*", "*cluster-update-keys_configmap.yaml"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		data, err := os.ReadFile(files[0])
		require.NoError(t, err)
		p, err := verify.FromConfigMap(manifestOf(t, string(data)))
		require.NoError(t, err)
		assert.Len(t, p.Stores, 2)
		require.Len(t, p.Keyrings, 1)
		assert.Equal(t, "verifier-public-key-redhat", p.Keyrings[0].Name)
		_, err = verify.New(p, verify.Sources{}, nil)
		require.NoError(t, err)
		_, err = verify.ParseTrust("configmap.yaml", data)
		require.NoError(t, err)
	}
}

func FuzzTrust(f *testing.F) {
	f.Add("apiVersion: cvo.cluster-version.github.io/v1alpha1\nkind: TrustPolicy\nspec: {sigstore: {publicKeys: [{name: a, pem: b}]}}\n")
	f.Add("apiVersion: v1\nkind: ConfigMap\ndata: {verifier-public-key-a: b, store-c: https://d}\n")
	f.Add(string(public(f, newEntity(f, "alice"))))
	f.Add(string(pemKey(f)))
	f.Fuzz(func(t *testing.T, data string) {
		p, err := verify.ParseTrust("trust.yaml", []byte(data))
		assert.Equal(t, err != nil, p.Empty())
	})
}
