package payload

import (
	"fmt"
	"io/fs"
	"path"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// maxFiles bounds the manifest files of one folder; real releases have fewer than a thousand.
const maxFiles = 20_000

// result is what became of one file.
type result struct {
	manifests []*manifest.Manifest
	warning   string
	err       error
}

// readManifests reads both folders, files in parallel, and returns all manifests in load order.
func readManifests(fsys fs.FS, t *templater) (all []*manifest.Manifest, warnings []string, errs []error) {
	var names []string
	for _, dir := range []string{OperatorDir, ReleaseDir} {
		files, err := manifestFiles(fsys, dir)
		if err != nil {
			return nil, nil, []error{err}
		}
		names = append(names, files...)
	}
	results := make([]result, len(names))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range names {
		group.Go(func() error {
			results[i] = t.readFile(fsys, name)
			return nil
		})
	}
	_ = group.Wait() // each file's error is in its result
	for _, r := range results {
		all = append(all, r.manifests...)
		if r.warning != "" {
			warnings = append(warnings, r.warning)
		}
		if r.err != nil {
			errs = append(errs, r.err)
		}
	}
	return all, warnings, errs
}

// manifestFiles lists a folder's manifest files in byte order. Real releases also hold a shell script and an empty
// .gitkeep; anything but .yaml, .yml and .json is nobody's manifest.
func manifestFiles(fsys fs.FS, dir string) ([]string, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, cause(err))
	}
	var names []string
	for _, e := range entries {
		switch path.Ext(e.Name()) {
		case ".yaml", ".yml", ".json":
		default:
			continue
		}
		name := path.Join(dir, e.Name())
		// A folder may hold symbolic links (mounted ConfigMaps do), so what counts is what they lead to.
		if info, err := fs.Stat(fsys, name); err == nil && info.IsDir() {
			continue
		}
		names = append(names, name)
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("%s: has %d manifest files, the limit is %d", dir, len(names), maxFiles)
	}
	return names, nil
}

func (t *templater) readFile(fsys fs.FS, name string) result {
	data, err := readFile(fsys, name, t.limits.FileBytes)
	if err != nil {
		return result{err: err}
	}
	if path.Dir(name) == OperatorDir {
		data, err = t.execute(path.Base(name), data)
		if err != nil && t.strict {
			return result{err: fmt.Errorf("%s: %w", name, err)}
		}
		if err != nil {
			return result{warning: fmt.Sprintf("%s: left out: %v", name, err)}
		}
	}
	manifests, err := manifest.Parse(path.Base(name), data, t.limits)
	if err != nil {
		return result{err: err}
	}
	return result{manifests: manifests}
}
