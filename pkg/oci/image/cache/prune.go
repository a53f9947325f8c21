package cache

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

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/release"
)

// Pruned is the result of Prune.
type Pruned struct {
	// Files is the number of removed files, Bytes their total size.
	Files int
	Bytes int64
	// Left is the remaining size of the cache in bytes. It exceeds the limit if kept files need more.
	Left int64
}

// Bounds are the limits to which Prune reduces a folder.
type Bounds struct {
	// Bytes is the maximum size of the cache; zero means no limit.
	Bytes int64
	// ManifestBytes is the maximum size of a document that is searched for the other files of a kept image.
	ManifestBytes int64
}

// Prune removes the least recently used files until the rest is within bounds.Bytes. It keeps the files of the images in keep and the files
// in use by any process.
func (c *Folder) Prune(ctx context.Context, bounds Bounds, keep ...release.Digest) (Pruned, error) {
	p, err := c.prune(ctx, bounds, keep)
	if err != nil {
		return p, fmt.Errorf("pruning image cache %s: %w", c.dir, err)
	}
	return p, nil
}

// stored is a file in the cache.
type stored struct {
	path string
	size int64
	used time.Time
}

func (c *Folder) prune(ctx context.Context, bounds Bounds, keep []release.Digest) (Pruned, error) {
	kept := map[string]bool{}
	for _, d := range keep {
		c.closure(d, bounds.ManifestBytes, document.MaxIndexDepth, kept)
		if received, ok := c.ReceivedFor(d); ok {
			c.closure(received, bounds.ManifestBytes, document.MaxIndexDepth, kept)
		}
	}
	files, total, err := c.stored()
	if err != nil {
		return Pruned{}, err
	}
	p := Pruned{Left: total}
	for _, f := range files {
		if kept[f.path] || bounds.Bytes == 0 || p.Left <= bounds.Bytes {
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

// stored lists the files in the cache, least recently used first, and returns their total size in bytes.
func (c *Folder) stored() (files []*stored, total int64, err error) {
	dir := filepath.Join(c.dir, layout.BlobsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // removed by another process
		}
		files = append(files, &stored{path: filepath.Join(dir, e.Name()), size: info.Size(), used: info.ModTime()})
		total += info.Size()
	}
	slices.SortFunc(files, func(a, b *stored) int { return a.used.Compare(b.used) })
	return files, total, nil
}

// closure adds the files of an image to into: its document and, recursively, the content that the document lists.
func (c *Folder) closure(d release.Digest, manifestBytes int64, depth int, into map[string]bool) {
	if depth == 0 || into[c.path(d)] {
		return
	}
	into[c.path(d)] = true
	info, err := os.Stat(c.path(d))
	if err != nil || info.Size() > manifestBytes {
		return
	}
	raw, err := os.ReadFile(c.path(d))
	if err != nil {
		return
	}
	doc, err := document.Parse(raw)
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
			c.closure(d, manifestBytes, depth-1, into)
		}
	}
}
