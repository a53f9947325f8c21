// Package program builds images of Go programs in this module, without a container engine.
package program

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/program"
)

const module = "github.com/cluster-version/cvo"

// Build builds a package, such as "test/e2e/probe", as a static program for this machine's architecture and returns its path in dir. flags are further ones of
// `go build`.
func Build(ctx context.Context, dir, pkg string, flags ...string) (string, error) {
	binary := filepath.Join(dir, filepath.Base(pkg))
	args := slices.Concat([]string{"build", "-trimpath", "-o", binary}, flags, []string{module + "/" + pkg})
	command := exec.CommandContext(ctx, "go", args...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", pkg, err, out)
	}
	return binary, nil
}

// Image returns an image with a program at /<its name>, which runs as user nobody. files are named by their paths without the leading
// slash. The program may write to folders.
func Image(binary string, files map[string][]byte, folders ...string) (v1.Image, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading a program: %w", err)
	}
	opts := program.Options{
		Name: filepath.Base(binary), Binary: content, Architecture: runtime.GOARCH, Folders: folders, Created: time.Unix(0, 0),
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		opts.Files = append(opts.Files, input.File{Name: name, Data: files[name]})
	}
	image, err := program.Image(opts)
	if err != nil {
		return nil, fmt.Errorf("creating an image of %s: %w", opts.Name, err)
	}
	return image, nil
}
