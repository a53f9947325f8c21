package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/install/target"
)

// Render writes the objects of a plan into a folder, one file for each object, and returns the paths. The file names sort in the order of
// the plan. Only the owner of the files can read secrets.
func Render(plan Plan, folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	switch {
	case err == nil && len(entries) > 0:
		return nil, &target.Refusal{Err: fmt.Errorf("folder %s is not empty: choose a new one, because files of an earlier release would be applied too", folder)}
	case err != nil && !os.IsNotExist(err):
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, err
	}
	width := len(fmt.Sprint(len(plan.Items)))
	paths := make([]string, 0, len(plan.Items))
	for n, item := range plan.Items {
		manifest := item.Manifest
		if choices := plan.Settings.Environment(); item.IsDeployment() && len(choices) > 0 {
			if manifest, err = WithEnvironment(manifest, choices); err != nil {
				return nil, err
			}
		}
		data, err := yaml.Marshal(manifest.Object.Object)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", item.ID(), err)
		}
		name := fmt.Sprintf("%0*d-%s-%s.yaml", width, n+1, strings.ToLower(manifest.Object.GetKind()), fileName(manifest.Object.GetName()))
		path := filepath.Join(folder, name)
		mode := os.FileMode(0o644)
		if item.ID().Kind == "Secret" {
			mode = 0o600
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// fileName replaces characters of an object's name that some file systems reject. RBAC allows colons, and the name comes from the release.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name[:min(len(name), 100)])
}
