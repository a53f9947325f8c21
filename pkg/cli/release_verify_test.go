package cli_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
	"github.com/cluster-version/cvo/test/golden"
)

const workflow = "https://github.com/platform/release/.github/workflows/build.yaml@refs/heads/main"

// pushedRelease is a small release in a registry.
func pushedRelease(t *testing.T, files fstest.MapFS) release.Image {
	t.Helper()
	all := fstest.MapFS{
		"manifests/0000_00_operator_00_namespace.yaml": {Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: operator}\n")},
		"release-manifests/release-metadata":           {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`)},
		"release-manifests/image-references":           {Data: []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"}}`)},
	}
	maps.Copy(all, files)
	img, err := fixture.PushRelease(t.Context(), fixture.StartRegistry(t), all, "platform/release:1.2.3")
	require.NoError(t, err)
	return img
}

func runVerify(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	cmd.SetArgs(append([]string{"release", "verify"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// written writes a value as YAML to a file and returns its path.
func written(t *testing.T, name string, value any) string {
	t.Helper()
	data, err := yaml.Marshal(value)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

type fields = map[string]any

func trustDocument(spec fields) fields {
	return fields{"apiVersion": "cvo.cluster-version.github.io/v1alpha1", "kind": "TrustPolicy", "metadata": fields{"name": "platform"}, "spec": spec}
}

// verifyGolden compares output with a golden file after replacing the values that differ in each run.
func verifyGolden(t *testing.T, file, output string, img release.Image) {
	t.Helper()
	for _, mask := range []struct{ pattern, name string }{
		{regexp.QuoteMeta(string(img.Digest)), "DIGEST"},
		{regexp.QuoteMeta(img.Digest.Hex()), "HEX"},
		{regexp.QuoteMeta(strings.Split(img.Pullspec, "/")[0]), "REGISTRY"},
		{`sha256:[0-9a-f]{64}`, "REFERRER"},
		{`[0-9a-f]{64}`, "SHA256"},
		{`[0-9A-F]{40}`, "FINGERPRINT"},
		{`[0-9A-F]{16}\b`, "KEYID"},
		{`/[^ "]*/(trust\.yaml|signatures\.yaml|policies\.yaml)`, "DIR/$1"},
	} {
		output = regexp.MustCompile(mask.pattern).ReplaceAllString(output, mask.name)
	}
	golden.AssertFile(t, filepath.Join("testdata", "release_verify", file), output)
}

func TestReleaseVerifyReportsSignatures(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	img := pushedRelease(t, nil)
	sigstore, err := sigstoretest.New(at)
	require.NoError(t, err)
	builder, err := sigstore.Issue(sigstoretest.Subject{URI: workflow, Issuer: "https://token.actions.githubusercontent.com"})
	require.NoError(t, err)
	team, err := sigstoretest.NewSigner()
	require.NoError(t, err)
	vendor, err := fixture.NewSigner("vendor", fixture.SignerOptions{Created: at})
	require.NoError(t, err)
	message, err := vendor.Sign(img)
	require.NoError(t, err)
	armored, err := vendor.PublicKey()
	require.NoError(t, err)
	statement := `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":"` + img.Digest.Hex() +
		`"}}],"predicateType":"https://sigstore.dev/cosign/sign/v1","predicate":{}}`
	bundle, err := sigstore.Statement(builder, []byte(statement), sigstoretest.Form{})
	require.NoError(t, err)
	document, err := fixture.SimpleSigning(img)
	require.NoError(t, err)
	tagged, err := sigstore.Classic(team, document, sigstoretest.Form{Unlogged: true})
	require.NoError(t, err)
	require.NoError(t, fixture.PushAttachment(t.Context(), img, bundle))
	require.NoError(t, fixture.PushAttachment(t.Context(), img, tagged))

	keyless := fields{
		"name": "ci", "roots": string(sigstore.Roots()), "intermediates": string(sigstore.Intermediates()),
		"rekorKeys": string(sigstore.LogKey()), "ctLogKeys": string(sigstore.CertificateLogKey()),
		"identities": []fields{{"issuer": "https://token.actions.githubusercontent.com", "uri": workflow}},
	}
	teamKey := fields{"name": "team", "pem": string(team.PublicKey())}
	stranger, err := sigstoretest.NewSigner()
	require.NoError(t, err)
	trust := written(t, "trust.yaml", trustDocument(fields{
		"openpgp":  fields{"keyrings": []fields{{"name": "vendor", "armored": string(armored)}}},
		"sigstore": fields{"publicKeys": []fields{teamKey}, "keyless": []fields{keyless}},
	}))
	refusing := written(t, "trust.yaml", trustDocument(fields{
		"sigstore": fields{"publicKeys": []fields{teamKey, {"name": "stranger", "pem": string(stranger.PublicKey())}}},
	}))
	threshold := written(t, "trust.yaml", trustDocument(fields{
		"sigstore":   fields{"publicKeys": []fields{teamKey, {"name": "stranger", "pem": string(stranger.PublicKey())}}, "keyless": []fields{keyless}},
		"thresholds": []fields{{"name": "two-of-three", "required": 2, "members": []string{"team", "stranger", "ci"}}},
	}))
	signatures := written(t, "signatures.yaml", fields{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"namespace": "openshift-config-managed", "name": "signatures"},
		"binaryData": fields{"sha256-" + img.Digest.Hex() + "-1": message},
	})

	for _, test := range []struct {
		name, golden string
		args         []string
		exit         int
	}{
		{"prints the signers", "verified.txt", []string{"--trust", trust, "--signatures", signatures}, 0},
		{"prints the signers as JSON", "verified.json", []string{"--trust", trust, "--signatures", signatures, "-o", "json"}, 0},
		{"counts the signers of a threshold", "threshold.txt", []string{"--trust", threshold}, 0},
		{"prints the missing signers", "refused.txt", []string{"--trust", refusing}, command.ExitRefused},
		{"prints the missing signers as JSON", "refused.json", []string{"--trust", refusing, "-o", "json"}, command.ExitRefused},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, ref := range []string{img.Pullspec, img.ByDigest()} {
				stdout, stderr, err := runVerify(t, append([]string{ref}, test.args...)...)
				require.Equal(t, test.exit, command.ExitCode(err), "%v", err)
				verifyGolden(t, test.golden, stdout, img)
				if test.exit == 0 && strings.HasSuffix(test.golden, ".txt") {
					assert.Contains(t, stderr, "does not prove that a release is recent")
				}
			}
		})
	}

	t.Run("prints the same data as YAML, with signatures from a folder", func(t *testing.T) {
		asJSON, _, err := runVerify(t, img.Pullspec, "--trust", trust, "--signatures", filepath.Dir(signatures), "-o", "json")
		require.NoError(t, err)
		asYAML, _, err := runVerify(t, img.Pullspec, "--trust", trust, "--signatures", filepath.Dir(signatures), "-o", "yaml")
		require.NoError(t, err)
		converted, err := yaml.YAMLToJSON([]byte(asYAML))
		require.NoError(t, err)
		assert.JSONEq(t, asJSON, string(converted))
		assert.Contains(t, asJSON, "signatures.yaml: ConfigMap openshift-config-managed/signatures")
	})

	t.Run("applies ClusterImagePolicies to the given name", func(t *testing.T) {
		policies := written(t, "policies.yaml", fields{
			"apiVersion": "config.openshift.io/v1", "kind": "ClusterImagePolicy", "metadata": fields{"name": "platform"},
			"spec": fields{"scopes": []string{"vendor.example"}, "policy": fields{
				"rootOfTrust":    fields{"policyType": "PublicKey", "publicKey": fields{"keyData": team.PublicKey()}},
				"signedIdentity": fields{"matchPolicy": "ExactRepository", "exactRepository": fields{"repository": "mirror.example/release"}},
			}},
		})
		claim, err := fixture.SimpleSigning(release.Image{Pullspec: "mirror.example/release:1", Digest: img.Digest})
		require.NoError(t, err)
		named, err := sigstore.Classic(team, claim, sigstoretest.Form{Unlogged: true})
		require.NoError(t, err)

		root := []string{img.Pullspec, "--trust", trust, "--signatures", signatures, "--policy", policies}
		asVendor := append(slices.Clone(root), "--as", "vendor.example/platform/release:1.2.3")
		_, stderr, err := runVerify(t, root...)
		require.NoError(t, err)
		assert.Contains(t, stderr, "No ClusterImagePolicy has a scope that matches")
		_, _, err = runVerify(t, asVendor...)
		require.Equal(t, command.ExitRefused, command.ExitCode(err))
		require.ErrorContains(t, err, "against ClusterImagePolicy platform, scope vendor.example;")
		require.ErrorContains(t, err, "which signedIdentity ExactRepository does not accept")
		require.NoError(t, fixture.PushAttachment(t.Context(), img, named))
		stdout, _, err := runVerify(t, asVendor...)
		require.NoError(t, err)
		assert.Regexp(t, `(?m)^And: +ClusterImagePolicy platform, scope vendor.example$`, stdout)

		_, _, err = runVerify(t, img.Pullspec, "--trust", refusing, "--policy", policies, "--as", "vendor.example/platform/release:1.2.3")
		require.Equal(t, command.ExitRefused, command.ExitCode(err), "a policy does not replace the root of trust")
		require.ErrorContains(t, err, "against public keys: stranger (trust from ")
	})

	t.Run("accepts the keys of a release with a warning", func(t *testing.T) {
		cm, err := yaml.Marshal(fields{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{
				"namespace": "openshift-config-managed", "name": "release-verification",
				"annotations": fields{
					"release.openshift.io/verification-config-map":                "",
					"include.release.openshift.io/self-managed-high-availability": "true",
				},
			},
			"data": fields{"verifier-public-key-vendor": string(armored), "store-none": "file:///nowhere"},
		})
		require.NoError(t, err)
		running := pushedRelease(t, fstest.MapFS{"release-manifests/0000_90_keys_configmap.yaml": {Data: cm}})
		stdout, stderr, err := runVerify(t, img.Pullspec, "--release", running.Pullspec, "--signatures", signatures)
		require.NoError(t, err)
		assert.Contains(t, stdout, "verifier-public-key-vendor")
		assert.Contains(t, stderr, "whose own signatures were not checked")

		_, stderr, err = runVerify(t, running.Pullspec, "--release", running.Pullspec)
		require.Equal(t, command.ExitRefused, command.ExitCode(err))
		assert.Contains(t, stderr, "these keys come from the release itself")
	})

	t.Run("rejects contradictory flags", func(t *testing.T) {
		for _, test := range []struct {
			args []string
			exit int
			want string
		}{
			{[]string{img.Pullspec}, command.ExitUsage, "name a root of trust"},
			{[]string{"--trust", trust}, command.ExitUsage, "accepts 1 arg"},
			{[]string{img.Pullspec, "--policy", trust}, command.ExitUsage, "cvo trust from-image-policy"},
			{[]string{img.Pullspec, "--trust", trust, "--release", "x"}, command.ExitUsage, "omit --release"},
			{[]string{img.Pullspec, "--trust", trust, "-o", "xml"}, command.ExitUsage, "use text, json, yaml"},
			{[]string{img.Pullspec, "--trust", trust, "--timeout", "0s"}, command.ExitUsage, "use a positive duration"},
			{[]string{img.Pullspec, "--trust", refusing, "--signatures", signatures}, command.ExitUsage, "names no keyring"},
			{[]string{img.Pullspec, "--trust", "missing.yaml"}, command.ExitFailed, "missing.yaml"},
			{[]string{img.Pullspec, "--trust", trust, "--policy", trust}, command.ExitFailed, "expected ClusterImagePolicy"},
			{[]string{img.Pullspec, "--trust", trust, "--signatures", trust}, command.ExitFailed, "it contains no ConfigMap"},
			{[]string{"1.0.0", "--trust", trust}, command.ExitUsage, `"1.0.0" is a version: name its image, such as registry.example/release:1.0.0`},
			{[]string{img.Pullspec, "--release", "1.0.0"}, command.ExitUsage, `"1.0.0" is a version`},
			{[]string{"platform-release", "--trust", trust}, command.ExitUsage, "use docker.io/platform-release for an image on Docker Hub"},
			{[]string{img.Repository() + ":none", "--trust", trust}, command.ExitFailed, "resolving"},
		} {
			_, _, err := runVerify(t, test.args...)
			require.ErrorContains(t, err, test.want)
			assert.Equal(t, test.exit, command.ExitCode(err), "%v", test.args)
		}
	})
}

func TestReleaseVerifyLimitsSignatureFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	img := pushedRelease(t, nil)
	vendor, err := fixture.NewSigner("vendor", fixture.SignerOptions{})
	require.NoError(t, err)
	armored, err := vendor.PublicKey()
	require.NoError(t, err)
	trust := written(t, "trust.yaml", trustDocument(fields{
		"openpgp": fields{"keyrings": []fields{{"name": "vendor", "armored": string(armored)}}},
	}))
	file := filepath.Join(t.TempDir(), "signatures.yaml")
	for name, body := range fixture.HostileYAML() {
		t.Run("limits its work for a signature file with "+name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: ConfigMap\n"+body), 0o600))
			fixture.Bounded(t, func() {
				_, _, err := runVerify(t, img.Pullspec, "--trust", trust, "--signatures", file)
				require.Error(t, err)
			})
		})
	}
	t.Run("rejects a signature file with several documents", func(t *testing.T) {
		require.NoError(t, os.WriteFile(file, []byte("kind: ConfigMap\n---\nkind: ConfigMap\n"), 0o600))
		_, _, err := runVerify(t, img.Pullspec, "--trust", trust, "--signatures", file)
		require.ErrorContains(t, err, "several YAML documents")
	})
	t.Run("rejects a signature file that is larger than a ConfigMap", func(t *testing.T) {
		require.NoError(t, os.WriteFile(file, []byte("a: "+strings.Repeat("x", 3<<20)), 0o600))
		_, _, err := runVerify(t, img.Pullspec, "--trust", trust, "--signatures", file)
		require.ErrorContains(t, err, "larger than 2097152 bytes")
	})
}
