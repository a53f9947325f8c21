// Command gen makes the templates of the chart of the operator's own manifests: the values that the operator renders
// them with become values of the chart. It writes into the current directory, which `go generate ./charts` makes that of
// the charts.
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cluster-version/cvo/charts"
	"github.com/cluster-version/cvo/manifests"
)

// prefix is how the files of the set begin; the chart's have no need of it.
const prefix = "0000_00_cluster-version-operator_"

const header = "{{- /* Made by go generate ./charts of manifests/%s: edit that. */ -}}\n"

func main() {
	if err := run(filepath.Join(charts.Folder, "templates")); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(to string) error {
	for _, pattern := range []string{"manifest-*.yaml", "monitoring-*.yaml"} {
		stale, err := filepath.Glob(filepath.Join(to, pattern))
		if err != nil {
			return err
		}
		for _, file := range stale {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	err := each(manifests.FS(), func(name string, text []byte) error {
		if strings.HasSuffix(name, ".crd.yaml") {
			return nil
		}
		out, err := template(name, string(text))
		if err != nil {
			return err
		}
		return write(to, "manifest-"+strings.TrimPrefix(name, prefix), fmt.Sprintf(header, name)+out)
	})
	if err != nil {
		return err
	}
	return each(manifests.Monitoring(), func(name string, text []byte) error {
		// These are not templates: text in braces is for Prometheus.
		literal := strings.ReplaceAll(string(text), "{{", `{{ "{{" }}`)
		return write(to, "monitoring-"+strings.TrimPrefix(name, strings.Replace(prefix, "_00_", "_90_", 1)),
			fmt.Sprintf(header, "monitoring/"+name)+"{{- if .Values.monitoring }}\n"+literal+"{{- end }}\n")
	})
}

func each(fsys fs.FS, do func(name string, text []byte) error) error {
	names, err := fs.Glob(fsys, "*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if err := do(name, text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func write(folder, name, text string) error {
	return os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644)
}

// values maps the values that the operator inserts into its set to values of the chart.
var values = strings.NewReplacer(
	"{{.ReleaseImage}}", `{{ include "cvo.releaseImage" . }}`,
	"{{.ClusterProfile}}", "{{ .Values.clusterProfile }}",
	"{{if .BringYourOwnNetwork}}", "{{ if .Values.bringYourOwnNetwork }}",
	"{{- if .BringYourOwnNetwork}}", "{{- if .Values.bringYourOwnNetwork }}",
)

var unknown = regexp.MustCompile(`\{\{[^}]*\.(ReleaseImage|ClusterProfile|BringYourOwnNetwork|Images)\b[^}]*\}\}`)

// kept are the objects that the platform needs when the chart is gone.
var kept = regexp.MustCompile(`(?m)^kind: (Namespace|ValidatingAdmissionPolicy|ValidatingAdmissionPolicyBinding)$`)

func template(name, text string) (string, error) {
	text = values.Replace(text)
	if left := unknown.FindString(text); left != "" {
		return "", fmt.Errorf("the chart has no value for %s", left)
	}
	documents := strings.Split(text, "\n---\n")
	for i, document := range documents {
		if kept.MatchString(document) {
			documents[i] = strings.Replace(document, "  annotations:\n", "  annotations:\n    helm.sh/resource-policy: keep\n", 1)
			if documents[i] == document {
				return "", fmt.Errorf("object %d of the chart should be kept, but has no annotations", i+1)
			}
		}
	}
	text = strings.Join(documents, "\n---\n")
	if !strings.HasSuffix(name, "_deployment.yaml") {
		return text, nil
	}
	const before = "        ports:\n        - name: metrics\n"
	if strings.Count(text, before) != 1 {
		return "", fmt.Errorf("there is no place for variables of the environment before the ports")
	}
	var more bytes.Buffer
	more.WriteString("        {{- with .Values.env }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n")
	return strings.Replace(text, before, more.String()+before, 1), nil
}
