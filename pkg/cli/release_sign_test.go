package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

// runSigning runs cvo and returns what it prints.
func runSigning(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := New(Streams{In: &bytes.Buffer{}, Out: &out, Err: &bytes.Buffer{}})
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func signedBy(t *testing.T, trustFile string, img release.Image) ([]release.Evidence, error) {
	t.Helper()
	data, err := os.ReadFile(trustFile)
	require.NoError(t, err)
	policy, err := verify.ParseTrust(trustFile, data)
	require.NoError(t, err)
	reader, err := image.New(image.Options{})
	require.NoError(t, err)
	v, err := verify.New(policy, verify.Sources{Attachments: reader}, nil)
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

func TestKeygenAndSign(t *testing.T) {
	for _, kind := range []string{"openpgp", "sigstore"} {
		t.Run("it makes a "+kind+" key whose signatures its trust policy accepts", func(t *testing.T) {
			img, dir := pushRelease(t), filepath.Join(t.TempDir(), "keys")
			passphrase := filepath.Join(t.TempDir(), "passphrase")
			require.NoError(t, os.WriteFile(passphrase, []byte("secret\n"), 0o600))
			out, err := runSigning(t, "release", "keygen", "--type", kind, "--out", dir, "--passphrase-file", passphrase, "-o", "json")
			require.NoError(t, err)
			var made madeKey
			require.NoError(t, json.Unmarshal([]byte(out), &made))
			_, err = signedBy(t, made.Trust, img)
			require.ErrorIs(t, err, verify.ErrUnverified)

			args := []string{"release", "sign", img.Pullspec, "--key", made.Private, "--passphrase-file", passphrase, "-o", "json"}
			if kind == "openpgp" {
				args = append(args, "--store", filepath.Join(dir, "signatures"))
			}
			out, err = runSigning(t, args...)
			require.NoError(t, err)
			var signed signedRelease
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

func TestSignUsage(t *testing.T) {
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
		{"no image", []string{"release", "sign", "--key", pem}, "accepts 1 arg(s)"},
		{"no key", []string{"release", "sign", "x"}, "--key is required"},
		{"no place for an OpenPGP signature", []string{"release", "sign", "x", "--key", pgp}, "use --store DIR or --configmap FILE"},
		{"an OpenPGP key and --attach", []string{"release", "sign", "x", "--key", pgp, "--attach", "tag"}, "--attach is for sigstore keys"},
		{"a sigstore key and --store", []string{"release", "sign", "x", "--key", pem, "--store", "y"}, "are for OpenPGP keys"},
		{"an unknown way to attach", []string{"release", "sign", "x", "--key", pem, "--attach", "glue"}, "use tag, referrer or both"},
		{"an unknown output", []string{"release", "sign", "x", "--key", pem, "-o", "xml"}, "use text, json, yaml"},
		{"no folder", []string{"release", "keygen"}, "--out is required"},
		{"an unknown type", []string{"release", "keygen", "--out", dir, "--type", "x509"}, "use sigstore or openpgp"},
		{"a store for a sigstore key", []string{"release", "keygen", "--out", dir, "--store", "https://x"}, "--store is for OpenPGP keys"},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			_, err := runSigning(t, test.args...)
			require.ErrorContains(t, err, test.want)
			assert.Equal(t, ExitUsage, ExitCode(err))
		})
	}
}
