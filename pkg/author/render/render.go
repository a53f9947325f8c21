// Package render turns Helm charts and kustomizations into components of a release. It runs the programs of the author's machine: helm,
// and kustomize or kubectl. Nothing of them is linked into this program. The result is like a component from a folder of manifests.
package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Source is a chart or a kustomization, and the component that it becomes.
type Source struct {
	// Component is the name of the component. It is also the name and the namespace of the release that a chart's templates see.
	Component string
	// Path is the argument of the program: a folder, or for Helm also an archive or a reference such as oci://registry.example/charts/web.
	Path string
}

// ParseSource parses [COMPONENT=]PATH. Without a component, the last element of the path names it.
func ParseSource(text string) (Source, error) {
	component, path, named := strings.Cut(text, "=")
	if !named {
		path = text
		absolute := path
		if !strings.Contains(path, "://") {
			var err error
			if absolute, err = filepath.Abs(path); err != nil {
				return Source{}, err
			}
		}
		component = strings.TrimSuffix(filepath.Base(absolute), ".tgz")
	}
	if path == "" {
		return Source{}, fmt.Errorf("%q has no path: use PATH or COMPONENT=PATH", text)
	}
	if err := input.CheckName(component); err != nil {
		return Source{}, fmt.Errorf("%q: %w: use COMPONENT=PATH", text, err)
	}
	return Source{component, path}, nil
}

// Chart renders a Helm chart with the values in files, without its hooks and tests: a hook runs at a step of an installation by Helm, which
// a release does not have. Each template becomes a file of the component.
func Chart(ctx context.Context, s Source, values []string) (input.Component, error) {
	const remedy = "install it (https://helm.sh), or render the chart yourself into a folder for --from-dir"
	out, err := os.MkdirTemp("", "cvo-chart-")
	if err != nil {
		return input.Component{}, err
	}
	defer func() { _ = os.RemoveAll(out) }()
	args := []string{"template", s.Component, s.Path, "--namespace", s.Component, "--include-crds", "--no-hooks", "--skip-tests", "--output-dir", out}
	for _, file := range values {
		args = append(args, "--values", file)
	}
	if _, err := run(ctx, []program{{"helm", args}}, remedy); err != nil {
		return input.Component{}, fmt.Errorf("rendering chart %s: %w", s.Path, err)
	}
	files, err := flatten(os.DirFS(out), newest(s.Path))
	if err != nil {
		return input.Component{}, fmt.Errorf("rendering chart %s: %w", s.Path, err)
	}
	return component(s, files)
}

// Kustomization renders a kustomization. All its objects become one file of the component.
func Kustomization(ctx context.Context, s Source) (input.Component, error) {
	const remedy = "install one of them (https://kustomize.io, https://kubernetes.io/docs/tasks/tools), or render the kustomization yourself into a folder for --from-dir"
	data, err := run(ctx, []program{{"kustomize", []string{"build", s.Path}}, {"kubectl", []string{"kustomize", s.Path}}}, remedy)
	if err != nil {
		return input.Component{}, fmt.Errorf("rendering kustomization %s: %w", s.Path, err)
	}
	return component(s, []input.File{{Name: "kustomization-result.yaml", Data: data, ModTime: newest(s.Path)}})
}

func component(s Source, files []input.File) (input.Component, error) {
	for _, f := range files {
		if len(bytes.TrimSpace(f.Data)) > 0 {
			return input.Component{Name: s.Component, Files: files}, nil
		}
	}
	return input.Component{}, fmt.Errorf("rendering %s: the result is empty: check its values and conditions", s.Path)
}

// program is a program that can render a source, with its arguments.
type program struct {
	name string
	args []string
}

// maxMessage is the maximum number of bytes of a program's message in an error.
const maxMessage = 2000

// run runs the first of the programs that is on the path, and returns its output.
func run(ctx context.Context, programs []program, remedy string) ([]byte, error) {
	var names []string
	for _, p := range programs {
		path, err := exec.LookPath(p.name)
		if err != nil {
			names = append(names, p.name)
			continue
		}
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(ctx, path, p.args...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("%s %s: %w: %s", p.name, p.args[0], err, printable.Excerpt(strings.TrimSpace(errs.String()), maxMessage))
		}
		return out.Bytes(), nil
	}
	return nil, fmt.Errorf("%s is not on the PATH: %s", strings.Join(names, " or "), remedy)
}

// flatten returns the manifests in the folders that Helm has written, <chart>/templates/<name> and others, as files of one folder.
func flatten(written fs.FS, at time.Time) ([]input.File, error) {
	var files []input.File
	err := fs.WalkDir(written, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !manifest.IsFile(path) {
			return err
		}
		data, err := fs.ReadFile(written, path)
		if err != nil {
			return err
		}
		_, below, _ := strings.Cut(path, "/") // the chart's name
		name := strings.ReplaceAll(below, "/", "-")
		if strings.TrimSpace(name) == "" {
			return errors.New("the chart has written a file outside of its folder: " + path)
		}
		files = append(files, input.File{Name: name, Data: data, ModTime: at})
		return nil
	})
	return files, err
}

// newest returns the latest time of a file in a folder, so that the same source results in the same release. It is zero for a source that
// is not on this machine.
func newest(path string) (latest time.Time) {
	_ = filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // rendering has read everything that matters
		}
		if info, err := entry.Info(); err == nil && info.ModTime().After(latest) {
			latest = info.ModTime()
		}
		return nil
	})
	return latest
}
