package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/inspect"
	"github.com/cluster-version/cvo/pkg/lint"
)

// runRelease runs a subcommand of release.
func runRelease(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := New(Streams{In: strings.NewReader(""), Out: &out, Err: &bytes.Buffer{}})
	cmd.SetArgs(append([]string{"release"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// soundRelease is the small release with a CRD that serves something.
func soundRelease(t *testing.T) string {
	t.Helper()
	dir := writeRelease(t)
	file := filepath.Join(dir, "release-manifests", "0000_20_config_00_crd.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	text = bytes.Replace(text, []byte("spec: {"), []byte("spec: {scope: Cluster, versions: [{name: v1, served: true, storage: true}], "), 1)
	require.NoError(t, os.WriteFile(file, text, 0o644))
	return dir
}

// brokenRelease is it with one file more.
func brokenRelease(t *testing.T, name, content string) string {
	t.Helper()
	dir := soundRelease(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "release-manifests", name), []byte(content), 0o644))
	return dir
}

func TestReleaseLint(t *testing.T) {
	sound := soundRelease(t)
	broken := brokenRelease(t, "0000_50_console_10.yaml", "a: {\n")
	for _, tt := range []struct {
		name string
		args []string
		exit int
		says string
	}{
		{name: "it accepts warnings", args: []string{sound}, says: "warning crd-after-use"},
		{name: "it refuses warnings when strict", args: []string{sound, "--strict"}, exit: ExitRefused},
		{
			name: "it has nothing against what is not looked for", says: "0 errors, 0 warnings",
			args: []string{sound, "--strict", "--disable", "crd-after-use,verification-missing"},
		},
		{name: "it refuses errors", args: []string{broken}, exit: ExitRefused, says: "release-manifests/0000_50_console_10.yaml:1: error syntax: "},
		{name: "it does not know every rule", args: []string{sound, "--disable", "grammar"}, exit: ExitUsage},
		{name: "it does not know every output", args: []string{sound, "-o", "xml"}, exit: ExitUsage},
		{name: "it wants a version of Kubernetes", args: []string{sound, "--kubernetes-version", "new"}, exit: ExitUsage},
		{name: "it wants a release", exit: ExitUsage},
		{name: "it lists rules", args: []string{"--rules"}, says: "duplicate-object"},
		{name: "it explains rules", args: []string{"--explain", "selector"}, says: "Remedy: give the pods the labels"},
		{name: "it does not explain what it does not know", args: []string{"--explain", "grammar"}, exit: ExitUsage},
		{name: "it explains nothing besides looking", args: []string{"--explain", "selector", sound}, exit: ExitUsage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := runRelease(t, append([]string{"lint"}, tt.args...)...)

			assert.Equal(t, tt.exit, ExitCode(err), "%v", err)
			assert.Contains(t, out, tt.says)
		})
	}
}

func TestReleaseLintFormats(t *testing.T) {
	dir := brokenRelease(t, "0000_50_console_10.yaml", "a: {\n")

	out, err := runRelease(t, "lint", dir, "-o", "json")
	assert.Equal(t, ExitRefused, ExitCode(err))
	var report lint.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	assert.Equal(t, 1, report.Totals.Errors)

	out, err = runRelease(t, "lint", dir, "-o", "yaml")
	assert.Equal(t, ExitRefused, ExitCode(err))
	assert.Contains(t, out, "rule: syntax")

	out, err = runRelease(t, "lint", dir, "-o", "sarif")
	assert.Equal(t, ExitRefused, ExitCode(err))
	assert.Contains(t, out, `"ruleId": "syntax"`)

	out, err = runRelease(t, "lint", "--rules", "-o", "json")
	require.NoError(t, err)
	var rules []lint.Rule
	require.NoError(t, json.Unmarshal([]byte(out), &rules))
	assert.Equal(t, lint.Rules(), rules)
}

func TestReleaseDiff(t *testing.T) {
	from := soundRelease(t)
	to := brokenRelease(t, "0000_50_shop_10.yaml", `
apiVersion: v1
kind: ConfigMap
metadata: {name: shop, namespace: console, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
`)
	for _, tt := range []struct {
		name string
		args []string
		exit int
		says string
		not  string
	}{
		{name: "it tells what is new", args: []string{from, to}, says: "+ ConfigMap console/shop  added"},
		{name: "it tells of one component", args: []string{from, to, "--component", "config"}, says: "Releases are identical"},
		{name: "it tells of one part", args: []string{from, to, "--only", "images"}, says: "1 added", not: "console/shop"},
		{name: "it exits with another code if that is asked for", args: []string{from, to, "--exit-code"}, exit: ExitRefused, says: "console/shop"},
		{name: "it does so whatever part is told of", args: []string{from, to, "--exit-code", "--only", "images"}, exit: ExitRefused},
		{name: "it knows what is the same", args: []string{from, from, "--exit-code"}, says: "Releases are identical"},
		{name: "it does not know every part", args: []string{from, to, "--only", "words"}, exit: ExitUsage},
		{name: "it does not know every output", args: []string{from, to, "-o", "xml"}, exit: ExitUsage},
		{name: "it wants two releases", args: []string{from}, exit: ExitUsage},
		{name: "it fails where there is no release", args: []string{from, t.TempDir()}, exit: ExitFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := runRelease(t, append([]string{"diff"}, tt.args...)...)

			assert.Equal(t, tt.exit, ExitCode(err), "%v", err)
			assert.Contains(t, out, tt.says)
			if tt.not != "" {
				assert.NotContains(t, out, tt.not)
			}
		})
	}
	out, err := runRelease(t, "diff", from, to, "-o", "json")
	require.NoError(t, err)
	var c inspect.Comparison
	require.NoError(t, json.Unmarshal([]byte(out), &c))
	assert.Equal(t, 1, c.Totals.ObjectsAdded)
	out, err = runRelease(t, "diff", from, to, "-o", "jsonpath={.totals.objectsAdded}")
	require.NoError(t, err)
	assert.Equal(t, "1", out)
}
