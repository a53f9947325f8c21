package chart_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// TestReleaseFromAChartAndAKustomization builds a release of a Helm chart, of which a value adds an object, and of a kustomization. It
// checks that neither hooks nor tests of the chart are in the release, that a cluster gets the rest, and that the result is reproducible.
func TestReleaseFromAChartAndAKustomization(t *testing.T) {
	tools, err := filepath.Abs(root)
	require.NoError(t, err)
	t.Setenv("PATH", filepath.Join(tools, "bin", "peers")+string(os.PathListSeparator)+filepath.Join(tools, "bin", "kube"))
	home := t.TempDir()
	for _, name := range []string{"HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"} {
		t.Setenv(name, home)
	}
	dir := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, text := range map[string]string{
		"web/Chart.yaml":           "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"web/values.yaml":          "extra: false\n",
		"web/templates/a.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-a\n  namespace: {{ .Release.Namespace }}\n",
		"web/templates/extra.yaml": "{{ if .Values.extra }}apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: extra\n  namespace: web\n{{ end }}",
		"web/templates/hook.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: hook\n  namespace: web\n  annotations:\n    helm.sh/hook: post-install\n",
		"web/templates/ns.yaml":    "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: web\n",
		"more.yaml":                "extra: true\n",
		"base/kustomization.yaml":  "resources: [b.yaml]\nnamePrefix: prefixed-\n",
		"base/b.yaml":              "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n  namespace: default\n",
		"broken/Chart.yaml":        "apiVersion: v2\nname: broken\nversion: 1.0.0\n",
		"broken/templates/x.yaml":  "{{ fail \"set a value\" }}",
		"empty/Chart.yaml":         "apiVersion: v2\nname: empty\nversion: 1.0.0\n",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		require.NoError(t, os.Chtimes(path, at, at))
	}
	run := func(args ...string) (string, error) {
		var out, errs bytes.Buffer
		cmd := cli.New(command.Streams{In: &bytes.Buffer{}, Out: &out, Err: &errs})
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	create := func(more ...string) (string, error) {
		return run(append([]string{"release", "new", "--name", "1.0.0", "--from-helm", filepath.Join(dir, "web"), "--from-kustomize", "dns=" + filepath.Join(dir, "base")}, more...)...)
	}
	folder := filepath.Join(dir, "release")
	line, err := create("--values", filepath.Join(dir, "more.yaml"), "--to-dir", folder)
	require.NoError(t, err)
	assert.Contains(t, line, "2026-01-02T03:04:05Z", "the time of the newest source file")
	again, err := create("--values", filepath.Join(dir, "more.yaml"), "--dry-run")
	require.NoError(t, err)
	assert.Equal(t, line, again)
	installed := map[string]bool{}
	for _, pattern := range []string{"*_web_*", "*_dns_*"} {
		files, err := filepath.Glob(filepath.Join(folder, "release-manifests", pattern))
		require.NoError(t, err)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Contains(t, string(data), `include.release.openshift.io/self-managed-high-availability: "true"`, file)
			installed[filepath.Base(file)] = true
		}
	}
	assert.Equal(t, map[string]bool{
		"0000_50_web_templates-a.yaml": true, "0000_50_web_templates-extra.yaml": true, "0000_50_web_templates-ns.yaml": true,
		"0000_50_dns_kustomization-result.yaml": true,
	}, installed)
	out, err := run("release", "info", folder)
	require.NoError(t, err)
	assert.Contains(t, out, "web")

	for chart, want := range map[string]string{
		"broken": "set a value", "empty": "the result is empty: check its values and conditions", "missing": "rendering chart ",
	} {
		_, err = run("release", "new", "--name", "1.0.0", "--from-helm", filepath.Join(dir, chart), "--dry-run")
		require.ErrorContains(t, err, want)
	}
	_, err = run("release", "new", "--from-kustomize", filepath.Join(dir, "web"), "--dry-run")
	require.ErrorContains(t, err, "kubectl kustomize")
	_, err = create("--values", "x.yaml", "--from-helm", "dns="+filepath.Join(dir, "web"), "--dry-run")
	require.Error(t, err)
	_, err = run("release", "new", "--from-dir", dir, "--values", "x.yaml", "--dry-run")
	require.ErrorContains(t, err, "--values requires a chart")
	assert.Equal(t, command.ExitUsage, command.ExitCode(err))
}
