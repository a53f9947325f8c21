package input

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// valuesFile matches the usual names of files with the values of a Helm chart.
var valuesFile = regexp.MustCompile(`^values([.-].*)?\.ya?ml$`)

// checkForeign rejects a file of a tool that renders manifests: a kustomization, or a part of a Helm chart. The message names the remedy.
func checkForeign(f File) error {
	const (
		kustomize = "move its folder out of here, and build the release with --from-kustomize DIR"
		helm      = "move the chart out of here, and build the release with --from-helm CHART"
	)
	switch f.Name {
	case "kustomization.yaml", "kustomization.yml", "Kustomization":
		return fmt.Errorf("%s is a kustomization, not a manifest: %s", f.Name, kustomize)
	case "Chart.yaml":
		return fmt.Errorf("%s describes a Helm chart and is not a manifest: %s", f.Name, helm)
	}
	values, template := valuesFile.MatchString(f.Name), bytes.Contains(f.Data, []byte("{{"))
	if !manifest.IsFile(f.Name) || !values && !template {
		return nil
	}
	examined := manifest.Examine(f.Name, f.Data)
	switch {
	case len(examined.Errors) == 0:
		for _, m := range examined.Manifests {
			if text, found := findTemplate(m); found {
				return fmt.Errorf("%s is a template, not a manifest (%s contains %s): %s", f.Name, m.ID(), text, helm)
			}
		}
		return nil
	case template:
		return fmt.Errorf("%s is a template, not a manifest (%w): %s", f.Name, examined.Errors[0], helm)
	case bytes.Contains(f.Data, []byte("\nkind:")):
		return nil // a manifest with a mistake
	}
	return fmt.Errorf("%s has the values of a Helm chart and is not a manifest: %s", f.Name, helm)
}

// checkForeignIn is checkForeign for a file in a folder. It reads only files that may be foreign. err is an error of reading.
func checkForeignIn(fsys fs.FS, file string) (foreign, err error) {
	f := File{Name: path.Base(file)}
	if manifest.IsFile(f.Name) {
		if f.Data, err = fs.ReadFile(fsys, file); err != nil {
			return nil, err
		}
	}
	return checkForeign(f), nil
}

// helmAction matches an action of a Helm template. Other text in double braces is legitimate, such as the labels in an alert's description.
var helmAction = regexp.MustCompile(`\{\{-?\s*(\.(Values|Release|Chart|Capabilities)\b|(include|tpl)\s)[^}]*\}\}`)

// findTemplate returns an action of a Helm template in a manifest. Outside of the metadata, it looks only at Kubernetes' own kinds, and not at
// the data of ConfigMaps and Secrets. Files of any kind and custom resources may contain templates for another program.
func findTemplate(m *manifest.Manifest) (action string, found bool) {
	group := m.GVK().Group
	custom := strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") // Kubernetes reserves the other groups
	for _, key := range slices.Sorted(maps.Keys(m.Object.Object)) {
		isData := (key == "data" || key == "stringData") && (m.Is("", "ConfigMap") || m.Is("", "Secret"))
		if isData || custom && key != "metadata" {
			continue
		}
		for text := range manifest.Texts(m.Object.Object[key]) {
			if action := helmAction.FindString(text); action != "" {
				return action, true
			}
		}
	}
	return "", false
}
