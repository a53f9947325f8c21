// Package program makes images of Go programs of this module, without a container engine.
package program

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const module = "github.com/cluster-version/cvo"

// Build builds a package, such as "test/e2e/probe", as a static program for this machine's kind of processor and
// returns its path in dir.
func Build(ctx context.Context, dir, pkg string) (string, error) {
	binary := filepath.Join(dir, filepath.Base(pkg))
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, module+"/"+pkg)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", pkg, err, out)
	}
	return binary, nil
}

// Image returns an image with a program at /<its name>, which it runs, and with files; their names are paths without
// the leading slash.
func Image(binary string, files map[string][]byte) (v1.Image, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading a program: %w", err)
	}
	name := filepath.Base(binary)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	write := func(name string, mode int64, content []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	if err := write(name, 0o755, content); err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := write(name, 0o644, files[name]); err != nil {
			return nil, fmt.Errorf("making a layer: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	opened, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, opened)
	if err != nil {
		return nil, fmt.Errorf("making an image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("making an image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{"/" + name}
	return mutate.ConfigFile(image, config)
}
