package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/compare"
	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// runRelease runs a subcommand of "release".
func runRelease(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: &bytes.Buffer{}})
	cmd.SetArgs(append([]string{"release"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// soundRelease writes the small release with a CRD that serves a version.
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

// brokenRelease writes soundRelease with one more file.
func brokenRelease(t *testing.T, name, content string) string {
	t.Helper()
	dir := soundRelease(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "release-manifests", name), []byte(content), 0o644))
	return dir
}

func TestReleaseLintExitCodeFollowsTheFindings(t *testing.T) {
	sound := soundRelease(t)
	broken := brokenRelease(t, "0000_50_console_10.yaml", "a: {\n")
	for _, tt := range []struct {
		name string
		args []string
		exit int
		says string
	}{
		{name: "accepts warnings", args: []string{sound}, says: "warning crd-after-use"},
		{name: "rejects warnings with --strict", args: []string{sound, "--strict"}, exit: command.ExitRefused},
		{
			name: "ignores disabled rules", says: "0 errors, 0 warnings",
			args: []string{sound, "--strict", "--disable", "crd-after-use,verification-missing"},
		},
		{name: "rejects errors", args: []string{broken}, exit: command.ExitRefused, says: "release-manifests/0000_50_console_10.yaml:1: error syntax: "},
		{name: "rejects an unknown rule", args: []string{sound, "--disable", "grammar"}, exit: command.ExitUsage},
		{name: "rejects an unknown output", args: []string{sound, "-o", "xml"}, exit: command.ExitUsage},
		{name: "requires a valid Kubernetes version", args: []string{sound, "--kubernetes-version", "new"}, exit: command.ExitUsage},
		{name: "requires a release", exit: command.ExitUsage},
		{name: "lists rules", args: []string{"--rules"}, says: "duplicate-object"},
		{name: "explains rules", args: []string{"--explain", "selector"}, says: "Remedy: give the pods the labels"},
		{name: "rejects an unknown rule to explain", args: []string{"--explain", "grammar"}, exit: command.ExitUsage},
		{name: "rejects --explain together with a release", args: []string{"--explain", "selector", sound}, exit: command.ExitUsage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := runRelease(t, append([]string{"lint"}, tt.args...)...)

			assert.Equal(t, tt.exit, command.ExitCode(err), "%v", err)
			assert.Contains(t, out, tt.says)
		})
	}
}

func TestReleaseLintComparesWithThePreviousRelease(t *testing.T) {
	before, after := t.TempDir(), t.TempDir()
	crd := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: things.example.com\n  annotations: {include.release.openshift.io/self-managed-high-availability: 'true'}\n" +
		"spec: {group: example.com, names: {kind: Thing, plural: things}, scope: Cluster, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n"
	tombstone := "apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: x\n  annotations: {include.release.openshift.io/self-managed-high-availability: 'true', release.openshift.io/delete: 'true'}\n"
	for dir, text := range map[string]string{before: crd, after: tombstone} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "web"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "web", "0000_50_web_10.yaml"), []byte(text), 0o644))
	}
	releases := t.TempDir()
	old, next := filepath.Join(releases, "old"), filepath.Join(releases, "new")
	operator := operatorSet(t)
	_, errs, err := runCvo(t, "release", "new", "--operator-manifests", operator, "--from-dir", before, "--name", "1.0.0", "--to-dir", old)
	require.NoError(t, err, errs)
	_, errs, err = runCvo(t, "release", "new", "--operator-manifests", operator, "--from-dir", after, "--name", "1.1.0", "--to-dir", next)
	require.NoError(t, err, "a tombstone needs no CRD: %s", errs)
	out, errs, err := runCvo(t, "release", "lint", next)
	require.NoError(t, err, errs)
	assert.NotContains(t, out, "unknown-kind")
	out, errs, err = runCvo(t, "release", "lint", next, "--from", old, "--info")
	require.NoError(t, err, errs)
	assert.Contains(t, out, "warning kind-dropped: release 1.0.0 has the CRD things.example.com")
	assert.NotContains(t, out, "tombstone-kind")
	out, errs, err = runCvo(t, "release", "lint", after, "--from", before)
	require.NoError(t, err, errs)
	assert.Contains(t, out, "has the CRD things.example.com")
	_, errs, err = runCvo(t, "release", "new", "--operator-manifests", operator, "--from-dir", after, "--name", "1.1.0", "--dry-run", "--from", old)
	require.NoError(t, err, errs)
	assert.Contains(t, errs, "warning kind-dropped: release 1.0.0 has the CRD things.example.com")
}

// TestReleaseLintOfComponentsReportsEveryMistake lints a folder with mistakes in all of its files. None hides another.
func TestReleaseLintOfComponentsReportsEveryMistake(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"web/name.yaml":                   "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a/b\n  namespace: web\n",
		"web/parent.yaml":                 "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ..\n  namespace: web\n",
		"web/syntax.yaml":                 "\na: {\n",
		"web/old/a.yaml":                  "kind: A\n",
		"web/version.yaml":                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n  namespace: web\n  labels:\n    a: b/c\ndata:\n  v: 0.0.1-snapshot-etcd\n",
		"dns/image-references":            "kind: ConfigMap\n",
		"dns/kustomization.yaml":          "kind: Kustomization\n",
		"dns/ns.yaml":                     "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a.b\n",
		"Big/ns.yaml":                     "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: web\n",
		"ntp/notes.txt":                   "x",
		"image-references":                "kind: ImageStream\nspec:\n  tags:\n  - name: web\n    from: {kind: DockerImage, name: registry.example/web:v1}\n",
		"top.yaml":                        "kind: A\n",
		"cluster-version-operator/a.yaml": "{{.Values.x}}\n",
	} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	var report finding.Report
	for _, output := range []string{"text", "json", "yaml", "sarif"} {
		out, err := runRelease(t, "lint", dir, "-o", output)
		require.Equal(t, command.ExitRefused, command.ExitCode(err), "%s: %v", output, err)
		if output == "json" {
			require.NoError(t, json.Unmarshal([]byte(out), &report))
		}
		assert.Contains(t, out, "component dns: kustomization.yaml is a kustomization", output)
	}
	var found []string
	for _, f := range report.Findings {
		if f.Severity == finding.Error || f.Rule == "component-input" {
			found = append(found, fmt.Sprintf("%s %s:%d", f.Rule, strings.TrimPrefix(f.File, dir), f.Line))
		}
	}
	assert.ElementsMatch(t, []string{
		"invalid-metadata /web/name.yaml:4", "invalid-metadata /web/parent.yaml:4", "syntax /web/syntax.yaml:2", "component /web/old/a.yaml:0",
		"component-input /web/version.yaml:0", "invalid-metadata /web/version.yaml:6", "component /dns/image-references:0", "component /dns/kustomization.yaml:0",
		"invalid-metadata /dns/ns.yaml:4", "component /Big:0", "component /ntp:0", "component /image-references:0", "component /top.yaml:0",
		"template /cluster-version-operator/a.yaml:1",
	}, found)
}

func TestReleaseLintPrintsJSONAndYAML(t *testing.T) {
	dir := brokenRelease(t, "0000_50_console_10.yaml", "a: {\n")

	out, err := runRelease(t, "lint", dir, "-o", "json")
	assert.Equal(t, command.ExitRefused, command.ExitCode(err))
	var report finding.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	assert.Equal(t, 1, report.Totals.Errors)

	out, err = runRelease(t, "lint", dir, "-o", "yaml")
	assert.Equal(t, command.ExitRefused, command.ExitCode(err))
	assert.Contains(t, out, "rule: syntax")

	out, err = runRelease(t, "lint", dir, "-o", "sarif")
	assert.Equal(t, command.ExitRefused, command.ExitCode(err))
	assert.Contains(t, out, `"ruleId": "syntax"`)

	out, err = runRelease(t, "lint", "--rules", "-o", "json")
	require.NoError(t, err)
	var rules []finding.Rule
	require.NoError(t, json.Unmarshal([]byte(out), &rules))
	assert.Equal(t, finding.Rules(), rules)
}

func TestReleaseDiffPrintsChanges(t *testing.T) {
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
		{name: "prints additions", args: []string{from, to}, says: "+ ConfigMap console/shop  added"},
		{name: "prints one component", args: []string{from, to, "--component", "config"}, says: "Releases are identical"},
		{name: "prints one part", args: []string{from, to, "--only", "images"}, says: "1 added", not: "console/shop"},
		{name: "sets the exit code with --exit-code", args: []string{from, to, "--exit-code"}, exit: command.ExitRefused, says: "console/shop"},
		{name: "sets the exit code for any part", args: []string{from, to, "--exit-code", "--only", "images"}, exit: command.ExitRefused},
		{name: "reports identical releases", args: []string{from, from, "--exit-code"}, says: "Releases are identical"},
		{name: "rejects an unknown part", args: []string{from, to, "--only", "words"}, exit: command.ExitUsage},
		{name: "rejects an unknown output", args: []string{from, to, "-o", "xml"}, exit: command.ExitUsage},
		{name: "requires two releases", args: []string{from}, exit: command.ExitUsage},
		{name: "fails for a folder without a release", args: []string{from, t.TempDir()}, exit: command.ExitFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := runRelease(t, append([]string{"diff"}, tt.args...)...)

			assert.Equal(t, tt.exit, command.ExitCode(err), "%v", err)
			assert.Contains(t, out, tt.says)
			if tt.not != "" {
				assert.NotContains(t, out, tt.not)
			}
		})
	}
	out, err := runRelease(t, "diff", from, to, "-o", "json")
	require.NoError(t, err)
	var c compare.Result
	require.NoError(t, json.Unmarshal([]byte(out), &c))
	assert.Equal(t, 1, c.Totals.ObjectsAdded)
	out, err = runRelease(t, "diff", from, to, "-o", "jsonpath={.totals.objectsAdded}")
	require.NoError(t, err)
	assert.Equal(t, "1", out)
}
