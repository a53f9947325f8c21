package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	verifysigstore "github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture"
)

// password protects the keys that cosign creates. cosign reads it from the environment.
const password = "not a secret"

// classic makes cosign 3 sign as cosign 2 did by default: to the tag sha256-<hex>.sig, with annotations.
var classic = []string{"--use-signing-config=false", "--new-bundle-format=false", "--tlog-upload=false"}

// verified runs our command that checks whether an image is signed according to a trust file.
func verified(t *testing.T, pullspec, trust string) (code int, answer map[string]any) {
	t.Helper()
	out, err := cvo(t, "release", "verify", pullspec, "--trust", trust, "-o", "json")
	if out != "" {
		require.NoError(t, json.Unmarshal([]byte(out), &answer))
	}
	return command.ExitCode(err), answer
}

func assertVerified(t *testing.T, pullspec, trust string) {
	t.Helper()
	code, _ := verified(t, pullspec, trust)
	assert.Zero(t, code)
}

func assertRefused(t *testing.T, pullspec, trust string) {
	t.Helper()
	code, _ := verified(t, pullspec, trust)
	assert.Equal(t, command.ExitRefused, code)
}

//threat:our-signatures-worth
func TestCosignKeySignaturesVerify(t *testing.T) {
	dir := t.TempDir()
	noServices := filepath.Join(dir, "no-services.json")
	run(t, dir, "cosign", "signing-config", "create", "--out="+noServices)
	run(t, dir, "cosign", "generate-key-pair")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "other"), 0o700))
	run(t, filepath.Join(dir, "other"), "cosign", "generate-key-pair")
	key, trust, other := filepath.Join(dir, "cosign.key"), filepath.Join(dir, "cosign.pub"), filepath.Join(dir, "other", "cosign.pub")

	for _, test := range []struct {
		name string
		args []string
	}{
		{"accepts a bundle beside the image", []string{"--signing-config=" + noServices}},
		{"accepts a signature under a tag", classic},
	} {
		t.Run(test.name, func(t *testing.T) {
			pullspec, _ := newRelease(t, fixture.StartRegistry(t))
			assertRefused(t, pullspec, trust)
			run(t, dir, "cosign", append([]string{"sign", "--yes", "--key=" + key, pullspec}, test.args...)...)
			assertVerified(t, pullspec, trust)
			assertRefused(t, pullspec, other)
		})
	}
}

//threat:our-signatures-worth
func TestCosignVerifiesOurSignatures(t *testing.T) {
	dir := t.TempDir()
	run(t, dir, "cosign", "generate-key-pair")
	phrase := filepath.Join(dir, "passphrase")
	require.NoError(t, os.WriteFile(phrase, []byte(password), 0o600))
	for _, test := range []struct {
		name, attach string
		args         []string
	}{
		{"accepts a bundle beside the image", "referrer", nil},
		{"accepts a signature under a tag", "tag", []string{"--new-bundle-format=false"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			pullspec, _ := newRelease(t, fixture.StartRegistry(t))
			_, err := cvo(t, "release", "sign", pullspec, "--key", filepath.Join(dir, "cosign.key"), "--passphrase-file", phrase, "--attach", test.attach)
			require.NoError(t, err)
			run(t, dir, "cosign", append([]string{"verify", "--key=" + filepath.Join(dir, "cosign.pub"), "--insecure-ignore-tlog", pullspec}, test.args...)...)
		})
	}
}

//threat:our-signatures-worth
func TestCosignKeylessSignaturesVerify(t *testing.T) {
	s := startSigstore(t)
	for _, test := range []struct {
		name, root string
		args       []string
	}{
		{
			"accepts a bundle with a log entry beside the image", s.trustedRoot,
			[]string{"--signing-config=" + s.signingConfig, "--trusted-root=" + s.trustedRoot},
		},
		{
			"accepts a signature with a timestamp under a tag", s.withoutLog,
			append([]string{"--fulcio-url=" + s.fulcio, "--timestamp-server-url=" + s.authority}, classic...),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			trust := func(t *testing.T, identity verifysigstore.Identity) string {
				t.Helper()
				return writeTrust(t, policy.SigstoreTrust{Keyless: []policy.TrustedAuthority{{
					Name: "team", TrustedRoot: read(t, test.root), Identities: []verifysigstore.Identity{identity},
				}}})
			}
			pullspec, _ := newRelease(t, fixture.StartRegistry(t))
			run(t, s.dir, "cosign", append([]string{
				"sign", "--yes", "--identity-token=" + s.issuer.token(t, "release@team.example"), pullspec,
			}, test.args...)...)
			assertVerified(t, pullspec, trust(t, verifysigstore.Identity{Issuer: s.issuer.url, Email: "release@team.example"}))
			assertRefused(t, pullspec, trust(t, verifysigstore.Identity{Issuer: s.issuer.url, Email: "someone@team.example"}))
			assertRefused(t, pullspec, trust(t, verifysigstore.Identity{Issuer: "https://issuer.example", Email: "release@team.example"}))

			another, _ := newRelease(t, fixture.StartRegistry(t))
			assertRefused(t, another, trust(t, verifysigstore.Identity{Issuer: s.issuer.url, Email: "release@team.example"}))
		})
	}
}

func writeTrust(t *testing.T, signers policy.SigstoreTrust) (path string) {
	t.Helper()
	data, err := yaml.Marshal(policy.Document{
		APIVersion: policy.APIVersion, Kind: policy.Kind, Spec: policy.Spec{Sigstore: &signers},
	})
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "trust.yaml")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}
