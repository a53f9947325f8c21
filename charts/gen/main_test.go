package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/charts"
)

const deployment = "0000_00_cluster-version-operator_03_deployment.yaml"

func TestTemplateInsertsValues(t *testing.T) {
	object := func(kind string) string {
		return "kind: " + kind + "\nmetadata:\n  annotations:\n    a: b\n"
	}
	for name, c := range map[string]struct{ file, text, want, problem string }{
		"it replaces the operator's variables with values": {
			text: "a: '{{.ReleaseImage}}'\n{{- if .BringYourOwnNetwork}}\nb: {{.ClusterProfile}}\n{{- end}}\n",
			want: "a: '{{ include \"cvo.releaseImage\" . }}'\n{{- if .Values.bringYourOwnNetwork }}\nb: {{ .Values.clusterProfile }}\n{{- end}}\n",
		},
		"it refuses a value that the chart lacks": {text: "a: {{index .Images \"cli\"}}\n", problem: `no value for {{index .Images "cli"}}`},
		"it refuses a value in another spelling":  {text: "a: {{ .ReleaseImage }}\n", problem: "no value for {{ .ReleaseImage }}"},
		"it keeps only objects that the platform needs": {
			text: object("Namespace") + "---\n" + object("NamespaceClaim") + "---\n" + object("ValidatingAdmissionPolicy"),
			want: "kind: Namespace\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n    a: b\n---\n" + object("NamespaceClaim") +
				"---\nkind: ValidatingAdmissionPolicy\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n    a: b\n",
		},
		"it rejects an object to keep without annotations": {text: "kind: Namespace\nmetadata:\n  name: a\n", problem: "has no annotations"},
		"it takes variables for the operator": {
			file: deployment,
			text: "        env: []\n        ports:\n        - name: metrics\n",
			want: "        env: []\n        {{- with .Values.env }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n        ports:\n        - name: metrics\n",
		},
		"it refuses a Deployment without a place for them": {file: deployment, text: "ports: []\n", problem: "no place for variables"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := template(c.file, c.text)
			if c.problem != "" {
				require.ErrorContains(t, err, c.problem)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, out)
		})
	}
}

// TestRunRemovesObsoleteTemplates: templates of removed manifests are deleted, and handwritten files are kept.
func TestRunRemovesObsoleteTemplates(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"manifest-00_gone.yaml", "monitoring-00_gone.yaml", "secret.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600))
	}
	require.NoError(t, run(dir))
	want, err := charts.FS.ReadDir(charts.Folder + "/templates")
	require.NoError(t, err)
	made := 0
	for _, f := range want {
		if !strings.HasPrefix(f.Name(), "manifest-") && !strings.HasPrefix(f.Name(), "monitoring-") {
			continue
		}
		made++
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err, "run go generate ./charts")
		committed, err := charts.FS.ReadFile(charts.Folder + "/templates/" + f.Name())
		require.NoError(t, err)
		assert.Equal(t, string(committed), string(text), "run go generate ./charts")
	}
	found, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, found, made+1)
	kept, err := os.ReadFile(filepath.Join(dir, "secret.yaml"))
	require.NoError(t, err)
	assert.Equal(t, "mine", string(kept))
}
