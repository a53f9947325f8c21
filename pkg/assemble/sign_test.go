package assemble_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	legacyopenpgp "golang.org/x/crypto/openpgp" //nolint:staticcheck // what OpenShift's operator reads signatures with
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/assemble"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

const signedDigest = release.Digest("sha256:3333333333333333333333333333333333333333333333333333333333333333")

var signingTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func signedImage() release.Image {
	return release.Image{Pullspec: "registry.example/platform/release:2.0.0", Digest: signedDigest}
}

func generate(t testing.TB, opts assemble.KeyOptions) (assemble.KeyPair, assemble.SigningKey) {
	t.Helper()
	opts.Time = signingTime
	pair, err := assemble.GenerateKey(opts)
	require.NoError(t, err)
	key, err := assemble.ReadSigningKey(pair.Private, opts.Passphrase)
	require.NoError(t, err)
	require.Equal(t, opts.Type, key.Type())
	return pair, key
}

func verifier(t testing.TB, trust []byte, sources verify.Sources) *verify.Verifier {
	t.Helper()
	policy, err := verify.ParseTrust("trust.yaml", trust)
	require.NoError(t, err)
	v, err := verify.New(policy, sources, nil)
	require.NoError(t, err)
	return v
}

func TestSignIntoStore(t *testing.T) {
	dir := t.TempDir()
	pair, key := generate(t, assemble.KeyOptions{
		Type: assemble.OpenPGPKey, Name: "team", Email: "team@example.com",
		Passphrase: []byte("secret"), Stores: []string{"file://" + dir},
	})
	assert.Contains(t, string(pair.Trust), "kind: TrustPolicy")
	_, err := assemble.ReadSigningKey(pair.Private, nil)
	require.ErrorContains(t, err, "--passphrase-file")
	_, err = assemble.ReadSigningKey(pair.Private, []byte("wrong"))
	require.Error(t, err)

	message, err := assemble.SignOpenPGP(signedImage(), key, "", signingTime)
	require.NoError(t, err)
	path, err := assemble.WriteSignature(dir, signedDigest, message)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "sha256="+signedDigest.Hex(), "signature-1"), path)

	evidence, err := verifier(t, pair.Trust, verify.Sources{}).Verify(t.Context(), signedImage())
	require.NoError(t, err)
	require.Len(t, evidence, 1)
	assert.Equal(t, "team", evidence[0].Root)
	assert.Equal(t, "team <team@example.com>", evidence[0].Identity)
	assert.Equal(t, signingTime, evidence[0].SignedAt)

	// OpenShift's operator reads the same message with the older library.
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

func TestSignaturesAreNeverOverwritten(t *testing.T) {
	dir := t.TempDir()
	for n := 1; n <= 9; n++ {
		path, err := assemble.WriteSignature(dir, signedDigest, []byte{byte(n)})
		require.NoError(t, err)
		assert.Equal(t, filepath.Join(dir, verify.StorePath(signedDigest, n)), path)
	}
	_, err := assemble.WriteSignature(dir, signedDigest, []byte("x"))
	require.ErrorContains(t, err, "holds 9 signatures")
	data, err := os.ReadFile(filepath.Join(dir, verify.StorePath(signedDigest, 1)))
	require.NoError(t, err)
	assert.Equal(t, []byte{1}, data)
}

func TestSignIntoConfigMap(t *testing.T) {
	pair, key := generate(t, assemble.KeyOptions{Type: assemble.OpenPGPKey})
	message, err := assemble.SignOpenPGP(signedImage(), key, "other.example/name", signingTime)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "signature.yaml")
	require.NoError(t, assemble.WriteSignatureConfigMap(file, signedDigest, []byte("somebody else's")))
	require.NoError(t, assemble.WriteSignatureConfigMap(file, signedDigest, message))

	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var cm corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict(data, &cm))
	assert.Equal(t, "openshift-config-managed", cm.Namespace)
	assert.Equal(t, "sha256-"+signedDigest.Hex(), cm.Name)
	assert.Equal(t, map[string]string{"release.openshift.io/verification-signatures": ""}, cm.Labels)
	store := verify.NewConfigMaps(func(context.Context) ([]verify.ConfigMapData, error) {
		return []verify.ConfigMapData{{Namespace: cm.Namespace, Name: cm.Name, BinaryData: cm.BinaryData}}, nil
	})
	evidence, err := verifier(t, pair.Trust, verify.Sources{Local: []verify.Store{store}}).Verify(t.Context(), signedImage())
	require.NoError(t, err)
	assert.Equal(t, "ConfigMap openshift-config-managed/"+cm.Name+" key "+cm.Name+"-2", evidence[0].Store)

	err = assemble.WriteSignatureConfigMap(file, "sha256:"+release.Digest(strings.Repeat("4", 64)), message)
	require.ErrorContains(t, err, "name another file")
	require.NoError(t, os.WriteFile(file, []byte("kind: ConfigMap\nmetadata: {title: x}\n"), 0o600))
	require.ErrorContains(t, assemble.WriteSignatureConfigMap(file, signedDigest, message), "something else than a ConfigMap")
}

// pushed starts a registry and pushes an image to it.
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

func TestSignIntoRegistry(t *testing.T) {
	pair, generated := generate(t, assemble.KeyOptions{Type: assemble.SigstoreKey, Name: "team", Passphrase: []byte("secret")})
	keys := map[string]struct {
		key   assemble.SigningKey
		trust []byte
	}{"a generated key": {generated, pair.Trust}}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for kind, private := range map[string]crypto.Signer{"RSA": rsaKey, "Ed25519": edKey} {
		data, err := cryptoutils.MarshalPrivateKeyToPEM(private)
		require.NoError(t, err)
		key, err := assemble.ReadSigningKey(data, nil)
		require.NoError(t, err)
		public, err := cryptoutils.MarshalPublicKeyToPEM(private.Public())
		require.NoError(t, err)
		keys[kind] = struct {
			key   assemble.SigningKey
			trust []byte
		}{key, public}
	}
	writer := registry.New(registry.Options{})
	reader, err := image.New(image.Options{})
	require.NoError(t, err)
	for kind, k := range keys {
		for _, attach := range []assemble.Attach{assemble.AttachTag, assemble.AttachReferrer, assemble.AttachBoth} {
			for _, referrers := range []bool{true, false} {
				t.Run(fmt.Sprintf("it signs by %s, attached as %s, referrers API %t", kind, attach, referrers), func(t *testing.T) {
					img := pushed(t, referrers)
					check := verifier(t, k.trust, verify.Sources{Attachments: reader})
					_, err := check.Verify(t.Context(), img)
					require.ErrorIs(t, err, verify.ErrUnverified)

					refs, err := assemble.SignSigstore(t.Context(), writer, img, k.key, assemble.SigstoreOptions{Attach: attach, Time: signingTime})
					require.NoError(t, err)
					if attach == assemble.AttachBoth {
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

func TestSignaturesOfOthersStay(t *testing.T) {
	img := pushed(t, true)
	writer := registry.New(registry.Options{})
	reader, err := image.New(image.Options{})
	require.NoError(t, err)
	var trust [][]byte
	for _, n := range []string{"one", "two", "three"} {
		pair, key := generate(t, assemble.KeyOptions{Type: assemble.SigstoreKey, Name: n})
		trust = append(trust, pair.Trust)
		_, err := assemble.SignSigstore(t.Context(), writer, img, key, assemble.SigstoreOptions{Time: signingTime})
		require.NoError(t, err)
	}
	for _, policy := range trust {
		_, err := verifier(t, policy, verify.Sources{Attachments: reader}).Verify(t.Context(), img)
		require.NoError(t, err)
	}
	found, err := reader.Attachments(t.Context(), img)
	require.NoError(t, err)
	assert.Len(t, found, 6)
}

func TestReadSigningKeyRefuses(t *testing.T) {
	pgp, _ := generate(t, assemble.KeyOptions{Type: assemble.OpenPGPKey})
	pem, sigstore := generate(t, assemble.KeyOptions{Type: assemble.SigstoreKey, Passphrase: []byte("x")})
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "cvo release keygen"},
		{"a public OpenPGP key", pgp.Public, "PGP PUBLIC KEY BLOCK, signing takes a PGP PRIVATE KEY BLOCK"},
		{"a public PEM key", pem.Public, "reading PEM signing key"},
		{"an encrypted PEM key", pem.Private, "--passphrase-file"},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			_, err := assemble.ReadSigningKey(test.data, nil)
			assert.ErrorContains(t, err, test.want)
		})
	}
	_, err := assemble.SignOpenPGP(signedImage(), sigstore, "", signingTime)
	require.ErrorContains(t, err, "takes an OpenPGP key")
	key, err := assemble.ReadSigningKey(pgp.Private, nil)
	require.NoError(t, err)
	_, err = assemble.SignSigstore(t.Context(), registry.New(registry.Options{}), signedImage(), key, assemble.SigstoreOptions{})
	require.ErrorContains(t, err, "takes a sigstore key")
	_, err = assemble.SignOpenPGP(release.Image{Pullspec: "x", Digest: "sha256:x"}, key, "", signingTime)
	require.ErrorContains(t, err, "64 hex digits")
}

func TestSignOpenPGPRefusesShortKeys(t *testing.T) {
	for bits, want := range map[int]string{1024: "it has 1024 bits, at least 2048 are required", 2048: ""} {
		e, err := openpgp.NewEntity("short", "", "", &packet.Config{
			Algorithm: packet.PubKeyAlgoRSA, RSABits: bits, Time: func() time.Time { return signingTime.Add(-time.Hour) },
		})
		require.NoError(t, err)
		var private bytes.Buffer
		w, err := armor.Encode(&private, openpgp.PrivateKeyType, nil)
		require.NoError(t, err)
		require.NoError(t, errors.Join(e.SerializePrivate(w, nil), w.Close()))
		key, err := assemble.ReadSigningKey(private.Bytes(), nil)
		require.NoError(t, err)
		_, err = assemble.SignOpenPGP(signedImage(), key, "", signingTime)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "cvo release keygen")
	}
}

func TestKeysAreNeverOverwritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	pair, _ := generate(t, assemble.KeyOptions{Type: assemble.SigstoreKey})
	private, err := pair.WriteFolder(dir)
	require.NoError(t, err)
	info, err := os.Stat(private)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, err = pair.WriteFolder(dir)
	require.ErrorContains(t, err, "is there already")
}

func imageReader(t *testing.T) *image.Reader {
	t.Helper()
	r, err := image.New(image.Options{})
	require.NoError(t, err)
	return r
}
