package cli_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/release/signing"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/fixture"
)

// runSigning runs cvo and returns its output.
func runSigning(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.New(command.Streams{In: &bytes.Buffer{}, Out: &out, Err: &bytes.Buffer{}})
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func signedBy(t *testing.T, trustFile string, img release.Image) ([]release.Evidence, error) {
	t.Helper()
	data, err := os.ReadFile(trustFile)
	require.NoError(t, err)
	trust, err := policy.Parse(trustFile, data)
	require.NoError(t, err)
	reader, err := image.New(image.Options{})
	require.NoError(t, err)
	v, err := verify.New(trust, verify.Sources{Attachments: reader}, nil)
	require.NoError(t, err)
	return v.Verify(t.Context(), img)
}

func pushRelease(t *testing.T) release.Image {
	t.Helper()
	img, err := fixture.PushRelease(t.Context(), fixture.StartRegistry(t), fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`)},
		"release-manifests/image-references": {Data: []byte(`{}`)},
	}, "platform/release:1.2.3")
	require.NoError(t, err)
	return img
}

func TestSignaturesOfGeneratedKeysVerify(t *testing.T) {
	for _, kind := range []string{"openpgp", "sigstore"} {
		t.Run("creates a "+kind+" key whose signatures its trust policy accepts", func(t *testing.T) {
			img, dir := pushRelease(t), filepath.Join(t.TempDir(), "keys")
			passphrase := filepath.Join(t.TempDir(), "passphrase")
			require.NoError(t, os.WriteFile(passphrase, []byte("secret\n"), 0o600))
			out, err := runSigning(t, "release", "keygen", "--type", kind, "--out", dir, "--passphrase-file", passphrase, "-o", "json")
			require.NoError(t, err)
			var made signing.GeneratedKey
			require.NoError(t, json.Unmarshal([]byte(out), &made))
			_, err = signedBy(t, made.Trust, img)
			require.ErrorIs(t, err, verify.ErrUnverified)

			args := []string{"release", "sign", img.Pullspec, "--key", made.Private, "--passphrase-file", passphrase, "-o", "json"}
			if kind == "openpgp" {
				args = append(args, "--store", filepath.Join(dir, "signatures"))
			}
			out, err = runSigning(t, args...)
			require.NoError(t, err)
			var signed signing.SignedRelease
			require.NoError(t, json.Unmarshal([]byte(out), &signed))
			assert.Equal(t, img.ByDigest(), signed.Image)
			assert.NotEmpty(t, signed.Signatures)

			evidence, err := signedBy(t, made.Trust, img)
			require.NoError(t, err)
			assert.Equal(t, "release", evidence[0].Root)
			assert.Equal(t, kind, evidence[0].Method)
		})
	}
}

// TestCosignKeysWithAnEmptyPassphraseSign uses a key as cosign creates it by default, without a passphrase file and with an empty one.
func TestCosignKeysWithAnEmptyPassphraseSign(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := cryptoutils.MarshalPrivateKeyToEncryptedDER(private, cryptoutils.StaticPasswordFunc([]byte{}))
	require.NoError(t, err)
	key := filepath.Join(t.TempDir(), "cosign.key")
	require.NoError(t, os.WriteFile(key, cryptoutils.PEMEncode("ENCRYPTED SIGSTORE PRIVATE KEY", der), 0o600))
	empty := filepath.Join(t.TempDir(), "passphrase")
	for _, content := range []string{"", "\n"} {
		require.NoError(t, os.WriteFile(empty, []byte(content), 0o600))
		for _, flags := range [][]string{nil, {"--passphrase-file", empty}} {
			_, err := runSigning(t, append([]string{"release", "sign", pushRelease(t).Pullspec, "--key", key}, flags...)...)
			require.NoError(t, err, "%q %v", content, flags)
		}
	}
}

// TestKeygenKeepsExistingKeys gives the command a folder with a file of a key. It must reject the folder before it reads
// the passphrase: a person who types one expects a key.
func TestKeygenKeepsExistingKeys(t *testing.T) {
	for kind, names := range map[string][]string{
		"openpgp": {"private.asc", "public.asc", "trust.yaml"}, "sigstore": {"private.pem", "public.pem", "trust.yaml"},
	} {
		for _, name := range names {
			dir := t.TempDir()
			file := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
			_, err := runSigning(t, "release", "keygen", "--type", kind, "--out", dir, "--passphrase-file", filepath.Join(dir, "missing"))
			require.ErrorContains(t, err, file+" already exists: choose another folder")
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Len(t, left, 1)
		}
	}
}

// emptyLayout returns an OCI layout without an image.
func emptyLayout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "oci-layout"), nil, 0o600))
	return dir
}

// TestSignatureInALayoutTravelsWithTheImage signs a release in a folder with two keys, and then copies it to a registry.
func TestSignatureInALayoutTravelsWithTheImage(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "release")
	_, err := runSigning(t, "release", "mirror", newMirrorable(t, false).image.ByDigest(), "--to-dir", folder, "--insecure-skip-verification")
	require.NoError(t, err)
	name := folder + ":1.2.3-x86_64"
	reader, err := image.New(image.Options{})
	require.NoError(t, err)
	img, err := reader.Resolve(t.Context(), name)
	require.NoError(t, err)
	keys := t.TempDir()
	var trusts []string
	for _, signer := range []string{"one", "two"} {
		dir := filepath.Join(keys, signer)
		_, err := runSigning(t, "release", "keygen", "--type", "sigstore", "--out", dir)
		require.NoError(t, err)
		trusts = append(trusts, filepath.Join(dir, "trust.yaml"))
		_, err = signedBy(t, trusts[len(trusts)-1], img)
		require.Error(t, err, "not signed yet")
		out, err := runSigning(t, "release", "sign", name, "--key", filepath.Join(dir, "private.pem"), "--reference", "registry.example/platform")
		require.NoError(t, err)
		assert.Contains(t, out, folder+":sha256-"+img.Digest.Hex()+".sig")
	}

	repository := fixture.StartRegistry(t).Host() + "/platform"
	_, err = runSigning(t, "release", "mirror", "--from-dir", folder, "--to", repository, "--trust", trusts[0])
	require.NoError(t, err)
	copied, err := reader.Resolve(t.Context(), repository+"@"+string(img.Digest))
	require.NoError(t, err)
	for _, trust := range trusts {
		for _, place := range []release.Image{img, copied} {
			evidence, err := signedBy(t, trust, place)
			require.NoError(t, err, "%s %s", trust, place.Pullspec)
			assert.Len(t, evidence, 1)
		}
	}
	for _, attach := range []string{"tag", "referrer"} {
		_, err := runSigning(t, "release", "sign", name, "--key", filepath.Join(keys, "one", "private.pem"), "--reference", "registry.example/platform", "--attach", attach)
		require.NoError(t, err, attach)
	}
}

// TestSignedReleaseIsTheOnlyImageOfItsLayout names the release by its folder, after each method of attaching a signature.
func TestSignedReleaseIsTheOnlyImageOfItsLayout(t *testing.T) {
	keys, folder := filepath.Join(t.TempDir(), "keys"), filepath.Join(t.TempDir(), "release")
	_, err := runSigning(t, "release", "keygen", "--type", "sigstore", "--out", keys)
	require.NoError(t, err)
	digest, _ := newRelease(t, "--from-dir", plainFolder(t, map[string]string{"web/web.yaml": plainManifests}), "--name", "1.0.0",
		"--operator-manifests", operatorSet(t), "--to-oci", folder)
	for _, attach := range []string{"tag", "referrer", "both"} {
		_, err := runSigning(t, "release", "sign", folder, "--key", filepath.Join(keys, "private.pem"), "--reference", "registry.example/platform", "--attach", attach)
		require.NoError(t, err, attach)
		out, errs, err := runCvo(t, "release", "info", folder, "--trust", filepath.Join(keys, "trust.yaml"))
		require.NoError(t, err, "%s: %s", attach, errs)
		assert.Contains(t, out, digest, attach)
	}
}

func TestSignRejectsWrongArguments(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"openpgp", "sigstore"} {
		_, err := runSigning(t, "release", "keygen", "--type", kind, "--out", filepath.Join(dir, kind))
		require.NoError(t, err)
	}
	pgp, pem := filepath.Join(dir, "openpgp", "private.asc"), filepath.Join(dir, "sigstore", "private.pem")
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"a missing image", []string{"release", "sign", "--key", pem}, "accepts 1 arg(s)"},
		{"a missing key", []string{"release", "sign", "x"}, "--key is required"},
		{"an OpenPGP signature without a destination", []string{"release", "sign", "x", "--key", pgp}, "use --store DIR or --configmap FILE"},
		{"an OpenPGP key and --attach", []string{"release", "sign", "x", "--key", pgp, "--attach", "tag"}, "--attach is for sigstore keys"},
		{"a sigstore key and --store", []string{"release", "sign", "x", "--key", pem, "--store", "y"}, "are for OpenPGP keys"},
		{"an OCI layout", []string{"release", "sign", emptyLayout(t) + ":1.0.0", "--key", pem}, "add --reference with the repository that the image gets"},
		{"an unknown attach mode", []string{"release", "sign", "x", "--key", pem, "--attach", "glue"}, "use tag, referrer or both"},
		{"an unknown output", []string{"release", "sign", "x", "--key", pem, "-o", "xml"}, "use text, json, yaml"},
		{"a missing folder", []string{"release", "keygen"}, "--out is required"},
		{"an unknown type", []string{"release", "keygen", "--out", dir, "--type", "x509"}, "use sigstore or openpgp"},
		{"a store that is not the URL of one", []string{"release", "keygen", "--type", "openpgp", "--out", dir, "--store", "javascript:alert(1)"}, "--store: signature store"},
		{"a store for a sigstore key", []string{"release", "keygen", "--out", dir, "--store", "https://x"}, "--store is for OpenPGP keys"},
	} {
		t.Run("rejects "+test.name, func(t *testing.T) {
			_, err := runSigning(t, test.args...)
			require.ErrorContains(t, err, test.want)
			assert.Equal(t, command.ExitUsage, command.ExitCode(err))
		})
	}
}
