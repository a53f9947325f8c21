package payload

import (
	"fmt"
	"io/fs"
	"iter"
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

// readManifests reads both folders and yields what became of each file, in load order. Files are read in parallel but
// never far ahead of who takes the results: what a release needs in memory is decided by what is kept of it.
func readManifests(fsys fs.FS, t *templater) iter.Seq[result] {
	var names []string
	for _, dir := range []string{OperatorDir, ReleaseDir} {
		files, err := manifestFiles(fsys, dir)
		if err != nil {
			return func(yield func(result) bool) { yield(result{err: err}) }
		}
		names = append(names, files...)
	}
	return inOrder(names, runtime.GOMAXPROCS(0), func(name string) result { return t.readFile(fsys, name) })
}

// inOrder calls do for all names, some at a time, and yields the results in the order of the names. Twice as many as
// are worked on may wait to be taken.
func inOrder(names []string, width int, do func(name string) result) iter.Seq[result] {
	return func(yield func(result) bool) {
		slots := make(chan chan result, 2*width)
		var group errgroup.Group
		group.SetLimit(width + 1) // and the one that starts the others
		stopped := make(chan struct{})
		group.Go(func() error {
			defer close(slots)
			for _, name := range names {
				slot := make(chan result, 1)
				select {
				case slots <- slot:
				case <-stopped:
					return nil
				}
				group.Go(func() error {
					slot <- do(name)
					return nil
				})
			}
			return nil
		})
		for slot := range slots {
			if !yield(<-slot) {
				break
			}
		}
		close(stopped)
		_ = group.Wait() // each file's error is in its result
	}
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
		if !manifest.IsFile(e.Name()) {
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
