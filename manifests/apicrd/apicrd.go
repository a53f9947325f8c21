// Package apicrd generates the CustomResourceDefinitions of ClusterVersion and ClusterOperator. It copies them from the version of
// github.com/openshift/api that go.mod pins. It runs the go command, so it is for building and testing, not for the operator.
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
	// folder contains the generated definitions: one file for each kind, or several if the feature sets differ.
	folder = "config/v1/zz_generated.crd-manifests"
	// operators and versions are the two definitions that the operator needs. The rest of the folder belongs to other components. The
	// folder has a definition of ClusterVersion for each feature set. This one has every field.
	operators = "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml"
	versions  = "0000_00_cluster-version-operator_01_clusterversions-CustomNoUpgrade.crd.yaml"
	// Versions is the file name of the definition of ClusterVersion that Copy writes.
	Versions = "0000_00_cluster-version-operator_01_clusterversions.crd.yaml"
	// written matches all files that this or an earlier version of Copy writes.
	written = "0000_00_cluster-version-operator_01_*.crd.yaml"
)

// onlyCustom is the annotation that limits a definition to clusters with one feature set.
const onlyCustom = "    release.openshift.io/feature-set: CustomNoUpgrade\n"

// Copy writes the definitions into a folder and returns the names of the written files. It removes files that earlier versions wrote there
// under other names. It copies ClusterOperator unchanged. For ClusterVersion, it writes one definition with every field for all feature
// sets, because the operator supports all of them. The module's own definition for ordinary clusters lacks the mode of an update and the
// accepted risks. The current directory must be inside this module or its workspace.
func Copy(ctx context.Context, to string) ([]string, error) {
	from, err := Dir(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{operators, Versions}
	for i, source := range []string{operators, versions} {
		data, err := os.ReadFile(filepath.Join(from, source))
		if err != nil {
			return nil, fmt.Errorf("reading a definition (the pinned %s may have moved it): %w", module, err)
		}
		if source == versions {
			if bytes.Count(data, []byte(onlyCustom)) != 1 {
				return nil, fmt.Errorf("%s of the pinned %s must contain the annotation for feature set CustomNoUpgrade exactly once", source, module)
			}
			data = bytes.Replace(data, []byte(onlyCustom), nil, 1)
		}
		if err := writeChanged(filepath.Join(to, names[i]), data); err != nil {
			return nil, err
		}
	}
	return names, removeOthers(to, names)
}

// removeOthers removes definitions that earlier versions of this package wrote, because the set must have only one definition for each
// kind.
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

// writeChanged writes a file unless its content is equal. An equal file keeps its modification time, so files built from it stay up to
// date.
func writeChanged(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("writing a definition: %w", err)
	}
	return nil
}

// Dir returns the folder of the pinned module with the definitions of all kinds of this API group.
func Dir(ctx context.Context) (string, error) {
	dir, err := moduleDir(ctx)
	return filepath.Join(dir, folder), err
}

// moduleDir returns the module's folder. A module outside the module cache has no folder until it is downloaded.
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
		err = errors.New("downloading module " + module + " left nothing in the module cache")
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
