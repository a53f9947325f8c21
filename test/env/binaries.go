package env

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// BinEnv names the environment variable that holds the folder with etcd and kube-apiserver.
const BinEnv = "CVO_KUBE_BIN"

const (
	etcdName      = "etcd"
	apiServerName = "kube-apiserver"
)

// findBinaries returns the folder with both binaries: the one asked for, else that of BinEnv, else bin/kube below the
// module's root.
func findBinaries(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(BinEnv)
	}
	if dir == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "bin", "kube")
	}
	for _, name := range []string{etcdName, apiServerName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("finding %s: %w: run `make kube-tools`, or set %s to a folder that has it", name, err, BinEnv)
		}
	}
	return filepath.Abs(dir)
}

// moduleRoot looks upwards from the working folder, which `go test` sets to the package's, then from this file.
func moduleRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	starts := []string{wd}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for ; ; dir = filepath.Dir(dir) {
			mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			if err == nil && bytes.Contains(append([]byte("\n"), mod...), []byte("\nmodule github.com/cluster-version/cvo\n")) {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("finding the module's root from %s: no go.mod of it above: set %s to the folder with etcd and kube-apiserver", wd, BinEnv)
}
