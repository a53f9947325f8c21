package sign_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/google/go-containerregistry/pkg/name"
	ggcrregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	legacyopenpgp "golang.org/x/crypto/openpgp" //nolint:staticcheck // OpenShift's operator uses this library
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/author/sign"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

const signedDigest = release.Digest("sha256:3333333333333333333333333333333333333333333333333333333333333333")

var signingTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func signedImage() release.Image {
	return release.Image{Pullspec: "registry.example/platform/release:2.0.0", Digest: signedDigest}
}

func generate(t testing.TB, opts sign.KeyOptions) (sign.KeyPair, sign.Key) {
	t.Helper()
	opts.Time = signingTime
	pair, err := sign.GenerateKey(opts)
	require.NoError(t, err)
	key, err := sign.ReadKey(pair.Private, opts.Passphrase)
	require.NoError(t, err)
	require.Equal(t, opts.Type, key.Type())
	return pair, key
}

func verifier(t testing.TB, trust []byte, sources verify.Sources) *verify.Verifier {
	t.Helper()
	p, err := policy.Parse("trust.yaml", trust)
	require.NoError(t, err)
	v, err := verify.New(p, sources, nil)
	require.NoError(t, err)
	return v
}

func TestSignatureInAStoreVerifies(t *testing.T) {
	dir := t.TempDir()
	pair, key := generate(t, sign.KeyOptions{
		Type: sign.OpenPGPKey, Name: "team", Email: "team@example.com",
		Passphrase: []byte("secret"), Stores: []string{"file://" + dir},
	})
	assert.Contains(t, string(pair.Trust), "kind: TrustPolicy")
	_, err := sign.ReadKey(pair.Private, nil)
	require.ErrorContains(t, err, "--passphrase-file")
	_, err = sign.ReadKey(pair.Private, []byte("wrong"))
	require.Error(t, err)

	message, err := sign.OpenPGP(signedImage(), key, "", signingTime)
	require.NoError(t, err)
	path, err := sign.WriteSignature(dir, signedDigest, message)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "sha256="+signedDigest.Hex(), "signature-1"), path)

	evidence, err := verifier(t, pair.Trust, verify.Sources{}).Verify(t.Context(), signedImage())
	require.NoError(t, err)
	require.Len(t, evidence, 1)
	assert.Equal(t, "team", evidence[0].Root)
	assert.Equal(t, "team <team@example.com>", evidence[0].Identity)
	assert.Equal(t, signingTime, evidence[0].SignedAt)

	// OpenShift's operator reads the same message with the legacy library.
	ring, err := legacyopenpgp.ReadArmoredKeyRing(bytes.NewReader(pair.Public))
	require.NoError(t, err)
	details, err := legacyopenpgp.ReadMessage(bytes.NewReader(message), ring, nil, nil)
	require.NoError(t, err)
	body, err := io.ReadAll(details.UnverifiedBody)
	require.NoError(t, err)
	require.NoError(t, details.SignatureError)
	assert.NotNil(t, details.Signature)
	assert.JSONEq(t, `{"critical":{"image":{"docker-manifest-digest":"`+string(signedDigest)+`"},"type":"atomic container signature",`+
		`"identity":{"docker-reference":"registry.example/platform/release"}},"optional":{"creator":"cvo","timestamp":1772366400}}`, string(body))
}

//threat:signatures-other-signers
func TestSignaturesAreNeverOverwritten(t *testing.T) {
	dir := t.TempDir()
	for n := 1; n <= 9; n++ {
		path, err := sign.WriteSignature(dir, signedDigest, []byte{byte(n)})
		require.NoError(t, err)
		assert.Equal(t, filepath.Join(dir, store.Path(signedDigest, n)), path)
	}
	_, err := sign.WriteSignature(dir, signedDigest, []byte("x"))
	require.ErrorContains(t, err, "already has 9 signatures")
	data, err := os.ReadFile(filepath.Join(dir, store.Path(signedDigest, 1)))
	require.NoError(t, err)
	assert.Equal(t, []byte{1}, data)
}

func TestSignatureInAConfigMapVerifies(t *testing.T) {
	pair, key := generate(t, sign.KeyOptions{Type: sign.OpenPGPKey})
	message, err := sign.OpenPGP(signedImage(), key, "other.example/name", signingTime)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "signature.yaml")
	require.NoError(t, sign.WriteSignatureConfigMap(file, signedDigest, []byte("another signer's")))
	require.NoError(t, sign.WriteSignatureConfigMap(file, signedDigest, message))

	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var cm corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict(data, &cm))
	assert.Equal(t, "openshift-config-managed", cm.Namespace)
	assert.Equal(t, "sha256-"+signedDigest.Hex(), cm.Name)
	assert.Equal(t, map[string]string{"release.openshift.io/verification-signatures": ""}, cm.Labels)
	configMaps := store.NewConfigMaps(func(context.Context) ([]store.ConfigMapData, error) {
		return []store.ConfigMapData{{Namespace: cm.Namespace, Name: cm.Name, BinaryData: cm.BinaryData}}, nil
	})
	evidence, err := verifier(t, pair.Trust, verify.Sources{Local: []store.Store{configMaps}}).Verify(t.Context(), signedImage())
	require.NoError(t, err)
	assert.Equal(t, "ConfigMap openshift-config-managed/"+cm.Name+" key "+cm.Name+"-2", evidence[0].Store)

	err = sign.WriteSignatureConfigMap(file, "sha256:"+release.Digest(strings.Repeat("4", 64)), message)
	require.ErrorContains(t, err, "choose another file")
	require.NoError(t, os.WriteFile(file, []byte("kind: ConfigMap\nmetadata: {title: x}\n"), 0o600))
	require.ErrorContains(t, sign.WriteSignatureConfigMap(file, signedDigest, message), "is not a ConfigMap")

	require.NoError(t, os.WriteFile(file, slices.Concat(data, []byte("---\n# the end\n---\n")), 0o600))
	require.NoError(t, sign.WriteSignatureConfigMap(file, signedDigest, message), "empty documents")

	require.NoError(t, os.WriteFile(file, slices.Concat(data, []byte("---\n---\nkind: ConfigMap\n")), 0o600))
	require.ErrorContains(t, sign.WriteSignatureConfigMap(file, signedDigest, message), "several YAML documents")
}

// pushed starts a registry and pushes an image.
func pushed(t *testing.T, referrers bool) release.Image {
	t.Helper()
	server := httptest.NewServer(ggcrregistry.New(ggcrregistry.WithReferrersSupport(referrers), ggcrregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	pullspec := strings.TrimPrefix(server.URL, "http://") + "/platform/release:2.0.0"
	img, err := random.Image(512, 2)
	require.NoError(t, err)
	tag, err := name.NewTag(pullspec)
	require.NoError(t, err)
	require.NoError(t, remote.Write(tag, img, remote.WithContext(t.Context())))
	resolved, err := imageReader(t).Resolve(t.Context(), pullspec)
	require.NoError(t, err)
	digest, err := img.Digest()
	require.NoError(t, err)
	require.Equal(t, digest.String(), string(resolved.Digest))
	return resolved
}

func TestSignatureInARegistryVerifies(t *testing.T) {
	pair, generated := generate(t, sign.KeyOptions{Type: sign.SigstoreKey, Name: "team", Passphrase: []byte("secret")})
	keys := map[string]struct {
		key   sign.Key
		trust []byte
	}{"a generated key": {generated, pair.Trust}}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for kind, private := range map[string]crypto.Signer{"RSA": rsaKey, "Ed25519": edKey} {
		data, err := cryptoutils.MarshalPrivateKeyToPEM(private)
		require.NoError(t, err)
		key, err := sign.ReadKey(data, nil)
		require.NoError(t, err)
		public, err := cryptoutils.MarshalPublicKeyToPEM(private.Public())
		require.NoError(t, err)
		keys[kind] = struct {
			key   sign.Key
			trust []byte
		}{key, public}
	}
	writer := registry.New(registry.Options{})
	reader, err := image.New(image.Options{})
	require.NoError(t, err)
	for kind, k := range keys {
		for _, attach := range []sign.Attach{sign.AttachTag, sign.AttachReferrer, sign.AttachBoth} {
			for _, referrers := range []bool{true, false} {
				t.Run(fmt.Sprintf("it signs with %s, attached as %s, referrers API %t", kind, attach, referrers), func(t *testing.T) {
					img := pushed(t, referrers)
					check := verifier(t, k.trust, verify.Sources{Attachments: reader})
					_, err := check.Verify(t.Context(), img)
					require.ErrorIs(t, err, verify.ErrUnverified)

					refs, err := sign.Sigstore(t.Context(), writer, img, k.key, sign.SigstoreOptions{Attach: attach, Time: signingTime})
					require.NoError(t, err)
					if attach == sign.AttachBoth {
						assert.Len(t, refs, 2)
					} else {
						assert.Len(t, refs, 1)
					}
					evidence, err := check.Verify(t.Context(), img)
					require.NoError(t, err)
					assert.Equal(t, refs[0], evidence[0].Store)
				})
			}
		}
	}
}

//threat:signatures-other-signers
func TestSignaturesOfOthersAreKept(t *testing.T) {
	img := pushed(t, true)
	writer := registry.New(registry.Options{})
	reader, err := image.New(image.Options{})
	require.NoError(t, err)
	var trust [][]byte
	for _, n := range []string{"one", "two", "three"} {
		pair, key := generate(t, sign.KeyOptions{Type: sign.SigstoreKey, Name: n})
		trust = append(trust, pair.Trust)
		_, err := sign.Sigstore(t.Context(), writer, img, key, sign.SigstoreOptions{Time: signingTime})
		require.NoError(t, err)
	}
	for _, policy := range trust {
		_, err := verifier(t, policy, verify.Sources{Attachments: reader}).Verify(t.Context(), img)
		require.NoError(t, err)
	}
	found := 0
	for _, err := range reader.Attachments(t.Context(), img) {
		require.NoError(t, err)
		found++
	}
	assert.Equal(t, 6, found)
}

//threat:keys-overwritten-readable
func TestInvalidKeysAreRejected(t *testing.T) {
	pgp, _ := generate(t, sign.KeyOptions{Type: sign.OpenPGPKey})
	pem, sigstore := generate(t, sign.KeyOptions{Type: sign.SigstoreKey, Passphrase: []byte("x")})
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"an empty file", nil, "cvo release keygen"},
		{"a public OpenPGP key", pgp.Public, "PGP PUBLIC KEY BLOCK, but signing needs PGP PRIVATE KEY BLOCK"},
		{"a public PEM key", pem.Public, "reading PEM signing key"},
		{"an encrypted PEM key", pem.Private, "--passphrase-file"},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			_, err := sign.ReadKey(test.data, nil)
			assert.ErrorContains(t, err, test.want)
		})
	}
	_, err := sign.OpenPGP(signedImage(), sigstore, "", signingTime)
	require.ErrorContains(t, err, "needs an OpenPGP key")
	key, err := sign.ReadKey(pgp.Private, nil)
	require.NoError(t, err)
	_, err = sign.Sigstore(t.Context(), registry.New(registry.Options{}), signedImage(), key, sign.SigstoreOptions{})
	require.ErrorContains(t, err, "needs a sigstore key")
	_, err = sign.OpenPGP(release.Image{Pullspec: "x", Digest: "sha256:x"}, key, "", signingTime)
	require.ErrorContains(t, err, "64 hex digits")
}

// TestEmptyPassphraseIsTried uses keys with an empty passphrase, which cosign creates by default.
func TestEmptyPassphraseIsTried(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for kind, passphrase := range map[string]string{"an empty": "", "a": "secret"} {
		der, err := cryptoutils.MarshalPrivateKeyToEncryptedDER(private, cryptoutils.StaticPasswordFunc([]byte(passphrase)))
		require.NoError(t, err)
		key := cryptoutils.PEMEncode("ENCRYPTED SIGSTORE PRIVATE KEY", der)
		for given, attempt := range map[string][]byte{"no passphrase": nil, "an empty passphrase": {}} {
			t.Run("it tries "+given+" for a key with "+kind+" passphrase", func(t *testing.T) {
				_, err := sign.ReadKey(key, attempt)
				switch {
				case passphrase == "":
					require.NoError(t, err)
				case attempt == nil:
					require.ErrorContains(t, err, "the key is encrypted: provide its passphrase with --passphrase-file")
				default:
					require.ErrorContains(t, err, "decrypt")
				}
			})
		}
	}
}

func TestOpenPGPRejectsShortKeys(t *testing.T) {
	for bits, want := range map[int]string{1024: "it has 1024 bits, at least 2048 are required", 2048: ""} {
		e, err := openpgp.NewEntity("short", "", "", &packet.Config{
			Algorithm: packet.PubKeyAlgoRSA, RSABits: bits, Time: func() time.Time { return signingTime.Add(-time.Hour) },
		})
		require.NoError(t, err)
		var private bytes.Buffer
		w, err := armor.Encode(&private, openpgp.PrivateKeyType, nil)
		require.NoError(t, err)
		require.NoError(t, errors.Join(e.SerializePrivate(w, nil), w.Close()))
		key, err := sign.ReadKey(private.Bytes(), nil)
		require.NoError(t, err)
		_, err = sign.OpenPGP(signedImage(), key, "", signingTime)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "cvo release keygen")
	}
}

//threat:keys-overwritten-readable
func TestKeysAreNeverOverwritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	pair, _ := generate(t, sign.KeyOptions{Type: sign.SigstoreKey})
	private, err := pair.WriteFolder(dir)
	require.NoError(t, err)
	info, err := os.Stat(private)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, err = pair.WriteFolder(dir)
	require.ErrorContains(t, err, "already exists")
}

func imageReader(t *testing.T) *image.Reader {
	t.Helper()
	r, err := image.New(image.Options{})
	require.NoError(t, err)
	return r
}
