// Package apicrd makes the CustomResourceDefinitions of ClusterVersion and ClusterOperator of those in the module
// github.com/openshift/api at the version that go.mod pins. It runs the go command, so it is for building and testing,
// not for the operator.
package apicrd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	module = "github.com/openshift/api"
	// folder holds the generated definitions, one file for each feature set where they differ.
	folder = "config/v1/zz_generated.crd-manifests"
	// operators and versions are the definitions that belong to the operator itself; the rest of the folder belongs to
	// other components. Of ClusterVersion there is one for each feature set: this is the one that has every field.
	operators = "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml"
	versions  = "0000_00_cluster-version-operator_01_clusterversions-CustomNoUpgrade.crd.yaml"
	// Versions is the file name of the definition of ClusterVersion that Copy writes.
	Versions = "0000_00_cluster-version-operator_01_clusterversions.crd.yaml"
	// written matches what Copy writes now, or did before.
	written = "0000_00_cluster-version-operator_01_*.crd.yaml"
)

// onlyCustom has clusters of one feature set alone get a definition.
const onlyCustom = "    release.openshift.io/feature-set: CustomNoUpgrade\n"

// Copy writes the definitions into a folder and returns the names of the files written; what it wrote there under other
// names before is removed. ClusterOperator is as the module has it. Of ClusterVersion it writes one for all feature sets,
// that which has every field: the operator works with all of them, while the module's own choice for ordinary clusters
// lacks the mode of an update and the risks that an administrator accepts. The current directory must lie within this
// module or its workspace.
func Copy(ctx context.Context, to string) ([]string, error) {
	from, err := Dir(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{operators, Versions}
	for i, source := range []string{operators, versions} {
		data, err := os.ReadFile(filepath.Join(from, source))
		if err != nil {
			return nil, fmt.Errorf("reading a definition, which the pinned %s may have moved: %w", module, err)
		}
		if source == versions {
			if bytes.Count(data, []byte(onlyCustom)) != 1 {
				return nil, fmt.Errorf("%s of the pinned %s does not say once that it is for one feature set alone", source, module)
			}
			data = bytes.Replace(data, []byte(onlyCustom), nil, 1)
		}
		if err := writeChanged(filepath.Join(to, names[i]), data); err != nil {
			return nil, err
		}
	}
	return names, removeOthers(to, names)
}

// removeOthers removes definitions of earlier versions of this package: a set with two definitions of one kind is none.
func removeOthers(from string, names []string) error {
	found, err := filepath.Glob(filepath.Join(from, written))
	if err != nil {
		return fmt.Errorf("looking for earlier definitions: %w", err)
	}
	for _, path := range found {
		if slices.Contains(names, filepath.Base(path)) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing an earlier definition: %w", err)
		}
	}
	return nil
}

// writeChanged leaves an equal file alone, so that its modification time, and what is built from it, stays.
func writeChanged(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("writing a definition: %w", err)
	}
	return nil
}

// Dir is the folder of the pinned module that holds the definitions of all its kinds of this group.
func Dir(ctx context.Context) (string, error) {
	dir, err := moduleDir(ctx)
	return filepath.Join(dir, folder), err
}

// moduleDir asks twice: a module that is not in the cache yet has no folder until it is downloaded.
func moduleDir(ctx context.Context) (string, error) {
	dir, err := runGo(ctx, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil || dir != "" {
		return dir, err
	}
	if _, err := runGo(ctx, "mod", "download", module); err != nil {
		return "", err
	}
	dir, err = runGo(ctx, "list", "-m", "-f", "{{.Dir}}", module)
	if err == nil && dir == "" {
		err = errors.New("module " + module + " is not in the module cache after downloading it")
	}
	return dir, err
}

func runGo(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("running go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}
