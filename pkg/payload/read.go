package payload

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// maxFiles limits the number of manifest files in a folder. Real releases have fewer than a thousand.
const maxFiles = 20_000

// result is the outcome of reading one file.
type result struct {
	manifests []*manifest.Manifest
	skipped   *Skip
	err       error
}

// readManifests reads both folders and yields the result of each file in load order. It reads files in parallel, but only a few files ahead
// of the consumer, so that memory use depends only on the manifests that the consumer keeps.
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

// inOrder calls do for all names, several in parallel, and yields the results in the order of the names. The number of results that wait
// for the consumer is at most twice the number of parallel calls.
func inOrder(names []string, width int, do func(name string) result) iter.Seq[result] {
	return func(yield func(result) bool) {
		slots := make(chan chan result, 2*width)
		var group errgroup.Group
		group.SetLimit(width + 1) // plus the goroutine that starts the others
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
		_ = group.Wait() // errors are in the results
	}
}

// manifestFiles lists a folder's manifest files in byte order. It ignores other files: real releases also contain a shell script and an
// empty .gitkeep.
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
		// The folder may contain symbolic links, as mounted ConfigMaps do. The type of their targets decides. Stat unpacks a file of an image.
		if !e.Type().IsRegular() {
			if info, err := fs.Stat(fsys, name); err == nil && info.IsDir() {
				continue
			}
		}
		names = append(names, name)
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("%s: has %d manifest files, the limit is %d", dir, len(names), maxFiles)
	}
	return names, nil
}

// parsedBytes bounds the length of the files that are parsed at the same time: the parser needs twenty times as much memory.
// A longer file is parsed alone. Real releases have five such files, for a quarter of their bytes.
const parsedBytes = 512 << 10

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
			return result{skipped: &Skip{File: path.Base(name), Err: err}}
		}
	}
	weight := min(int64(len(data)), parsedBytes)
	if err := t.parsing.Acquire(context.Background(), weight); err != nil {
		return result{err: err}
	}
	defer t.parsing.Release(weight)
	manifests, err := manifest.Parse(path.Base(name), data, t.limits)
	if err != nil {
		return result{err: err}
	}
	return result{manifests: manifests}
}
