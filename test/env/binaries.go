package env

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// BinEnv is the environment variable with the folder that has etcd and kube-apiserver.
const BinEnv = "CVO_KUBE_BIN"

// GatesEnv is the environment variable with the feature gates of kube-apiserver, as its flag --feature-gates expects them. Options override
// it. It is for older binaries, which have features of the current version behind a gate.
const GatesEnv = "CVO_KUBE_FEATURE_GATES"

const (
	etcdName      = "etcd"
	apiServerName = "kube-apiserver"
)

// Tool returns the path of another program of test/kube, in the folder of the control plane's binaries.
func Tool(name string) (string, error) {
	dir, err := binFolder()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, name)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("finding %s: %w: run `test/kube/build.sh %s`", name, err, name)
	}
	return file, nil
}

// binFolder returns the folder in BinEnv, else bin/kube in the module's root.
func binFolder() (string, error) {
	dir := os.Getenv(BinEnv)
	if dir == "" {
		root, err := ModuleRoot()
		if err != nil {
			return "", fmt.Errorf("%w: set %s to the folder with etcd and kube-apiserver", err, BinEnv)
		}
		dir = filepath.Join(root, "bin", "kube")
	}
	return filepath.Abs(dir)
}

// findBinaries returns the folder with both binaries, see binFolder.
func findBinaries() (string, error) {
	dir, err := binFolder()
	if err != nil {
		return "", err
	}
	for _, name := range []string{etcdName, apiServerName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("finding %s: %w: run `make kube-tools`, or set %s to a folder with both binaries", name, err, BinEnv)
		}
	}
	return dir, nil
}

// ModuleRoot returns the folder of this module. It searches from the working folder, which `go test` sets to the package's folder, upwards.
func ModuleRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.Contains(append([]byte("\n"), mod...), []byte("\nmodule github.com/cluster-version/cvo\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return "", fmt.Errorf("finding the module's root: no go.mod of this module in %s or above", wd)
}
