package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/release"
)

// Pruned tells what Prune did.
type Pruned struct {
	// Files were removed, of Bytes together.
	Files int
	Bytes int64
	// Left is how many bytes the cache holds now. It may be more than the limit, for what must be kept is kept.
	Left int64
}

// Prune removes from the cache folder what has not been used for Options.CacheAge, and then what was not used for
// longest until the rest is within Options.CacheLimitBytes. What belongs to the images in keep stays, and so does what
// any process has in use. Without a cache folder it does nothing.
func (r *Reader) Prune(ctx context.Context, keep ...release.Digest) (Pruned, error) {
	if r.cache == nil {
		return Pruned{}, nil
	}
	p, err := r.cache.prune(ctx, r.opts, keep)
	if err != nil {
		return p, fmt.Errorf("pruning image cache %s: %w", r.cache.dir, err)
	}
	return p, nil
}

// stored is one file of the cache.
type stored struct {
	path string
	size int64
	used time.Time
}

func (c *cache) prune(ctx context.Context, opts Options, keep []release.Digest) (Pruned, error) {
	kept := map[string]bool{}
	for _, d := range keep {
		c.closure(d, opts.Limits, maxIndexDepth, kept)
		if received, ok := c.receivedFor(d); ok {
			c.closure(received, opts.Limits, maxIndexDepth, kept)
		}
	}
	files, total, err := c.stored()
	if err != nil {
		return Pruned{}, err
	}
	p := Pruned{Left: total}
	for _, f := range files {
		expired := opts.CacheAge > 0 && c.clock.Since(f.used) > opts.CacheAge
		over := opts.CacheLimitBytes > 0 && p.Left > opts.CacheLimitBytes
		if kept[f.path] || !expired && !over {
			continue
		}
		if err := ctx.Err(); err != nil {
			return p, err
		}
		removed, err := removeUnused(f.path)
		if err != nil {
			return p, err
		}
		if removed {
			p.Files, p.Bytes, p.Left = p.Files+1, p.Bytes+f.size, p.Left-f.size
		}
	}
	if err := c.sweep(); err != nil || p.Files == 0 {
		return p, err
	}
	return p, c.edit(func(listed []v1.Descriptor) []v1.Descriptor {
		return slices.DeleteFunc(listed, func(m v1.Descriptor) bool {
			d, err := release.ParseDigest(m.Digest.String())
			if err != nil {
				return true
			}
			_, err = os.Stat(c.path(d))
			return errors.Is(err, fs.ErrNotExist)
		})
	})
}

// stored lists the files of the cache, those first that were not used for longest.
func (c *cache) stored() (files []stored, total int64, err error) {
	dir := filepath.Join(c.dir, "blobs", "sha256")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // another process removed it
		}
		files = append(files, stored{path: filepath.Join(dir, e.Name()), size: info.Size(), used: info.ModTime()})
		total += info.Size()
	}
	slices.SortFunc(files, func(a, b stored) int { return a.used.Compare(b.used) })
	return files, total, nil
}

// closure adds the files of an image: its document and, as far as they can be read, those that it names.
func (c *cache) closure(d release.Digest, limits Limits, depth int, into map[string]bool) {
	if depth == 0 || into[c.path(d)] {
		return
	}
	into[c.path(d)] = true
	info, err := os.Stat(c.path(d))
	if err != nil || info.Size() > limits.ManifestBytes {
		return
	}
	raw, err := os.ReadFile(c.path(d))
	if err != nil {
		return
	}
	doc, err := parseDocument(raw)
	if err != nil {
		return
	}
	parts := slices.Clone(doc.Layers)
	if doc.Config != nil {
		parts = append(parts, *doc.Config)
	}
	for _, desc := range parts {
		if d, err := release.ParseDigest(desc.Digest.String()); err == nil {
			into[c.path(d)] = true
		}
	}
	for _, desc := range doc.Manifests {
		if d, err := release.ParseDigest(desc.Digest.String()); err == nil {
			c.closure(d, limits, depth-1, into)
		}
	}
}
