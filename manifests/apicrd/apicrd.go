// Package apicrd finds the CustomResourceDefinitions of ClusterVersion and ClusterOperator in the module
// github.com/openshift/api at the version that go.mod pins, and copies them into a folder. It runs the go command, so
// it is for building and testing, not for the operator.
package apicrd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	module = "github.com/openshift/api"
	// folder holds the generated definitions, one file for each feature set where they differ.
	folder = "config/v1/zz_generated.crd-manifests"
	// pattern matches what belongs to the operator itself; the rest of the folder belongs to other components.
	pattern = "0000_00_cluster-version-operator_01_*.crd.yaml"
)

// Copy writes the definitions into a folder, byte for byte, and returns the names of the files written. The current
// directory must lie within this module or its workspace.
func Copy(ctx context.Context, to string) ([]string, error) {
	dir, err := moduleDir(ctx)
	if err != nil {
		return nil, err
	}
	from, err := filepath.Glob(filepath.Join(dir, folder, pattern))
	if err != nil {
		return nil, fmt.Errorf("looking for %s in %s: %w", pattern, dir, err)
	}
	if len(from) == 0 {
		return nil, fmt.Errorf("no %s in %s: the pinned %s has moved them", pattern, filepath.Join(dir, folder), module)
	}
	names := make([]string, 0, len(from))
	for _, path := range from {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a definition: %w", err)
		}
		name := filepath.Base(path)
		if err := writeChanged(filepath.Join(to, name), data); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
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
