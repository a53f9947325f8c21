// Package extract writes the files of a release to a folder: all of them, or those that a cluster gets. It reads the release through package
// inspect. A cluster is described by an inclusion.Filter. ClusterFilter makes the filter of a planned cluster.
package extract

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/cluster-version/cvo/internal/errorset"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/pkg/payload"
)

// Layout is the layout of a release's files in a folder.
type Layout string

// Layouts of an extracted release.
const (
	// LayoutFlat writes the files of release-manifests/ directly into the folder, like `oc adm release extract`.
	LayoutFlat Layout = "flat"
	// LayoutImage writes manifests/ and release-manifests/, as in the image, for running or building a release.
	LayoutImage Layout = "image"
)

// Layouts returns all layouts.
func Layouts() []Layout { return []Layout{LayoutFlat, LayoutImage} }

// Options select the files to extract and their layout.
type Options struct {
	// Layout is the layout of the files; default LayoutFlat.
	Layout Layout
	// Selection selects the objects to extract; default all. It requires the flat layout, because a part of a release is not a release.
	Selection Selection
	// Overwrite replaces existing files with different content. By default, such files result in a *ConflictError.
	Overwrite bool
}

// Result is the result of an extraction.
type Result struct {
	// Version and Created come from the release's metadata. They are empty if the metadata is missing or malformed, which does not prevent
	// the extraction.
	Version string
	Created time.Time
	// Files and Bytes count the selected files. Unchanged counts files that already existed with the same content.
	Files     int
	Bytes     int64
	Unchanged int
	// LeftOut are the excluded objects, by file and document.
	LeftOut []LeftOut
}

// Files writes the files of a release to a folder, which it creates if needed. It writes them to a temporary folder and moves them when
// all are complete and verified. Therefore, a new folder appears as a whole, and if Files fails or is killed before moving, it leaves no
// files in the folder. It detects conflicting files before it moves any file. It reports all unreadable manifests together. Without a
// selection, it does not parse manifests.
func Files(ctx context.Context, r *inspect.Release, dir string, opts Options) (out *Result, err error) {
	x := &extraction{opts: opts, out: &Result{}, metadata: map[string][]byte{}, buffer: make([]byte, 128<<10)}
	if opts.Layout == LayoutImage && !opts.Selection.everything() {
		return nil, errors.New("a selection of manifests is not a release: use the flat layout instead of the image layout")
	}
	if x.stage, err = newStage(dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.stage.remove()) }()
	if err := r.Walk(ctx, x.visit); err != nil {
		return nil, err
	}
	if err := errorset.Join(x.errs); err != nil {
		return nil, err
	}
	x.finish()
	x.out.Unchanged, err = x.stage.commit(opts.Overwrite)
	return x.out, err
}

// extraction is the state of a call to Files.
type extraction struct {
	opts  Options
	stage *stage
	out   *Result
	// metadata contains the two metadata files, by name.
	metadata map[string][]byte
	errs     []error
	buffer   []byte
}

// visit extracts a file. It collects unreadable manifests to report them together.
func (x *extraction) visit(f layer.File) error {
	folder, base := path.Split(f.Name)
	inRelease := folder == payload.ReleaseDir+"/"
	target := f.Name
	if x.opts.Layout != LayoutImage {
		if !inRelease {
			return nil
		}
		target = base
	}
	if !filepath.IsLocal(target) {
		return fmt.Errorf("file name %q leads out of the folder", f.Name)
	}
	if f.Name == payload.MetadataFile || f.Name == payload.ReferencesFile {
		data, err := io.ReadAll(f.Content)
		if err != nil {
			return err
		}
		x.metadata[f.Name] = data
		f.Content = bytes.NewReader(data)
	}
	if !x.opts.Selection.everything() {
		data, err := io.ReadAll(f.Content)
		if err != nil {
			return err
		}
		wanted, leftOut, err := x.opts.Selection.choose(f.Name, data)
		x.out.LeftOut = append(x.out.LeftOut, leftOut...)
		if err != nil {
			x.errs = append(x.errs, err)
		}
		if wanted == nil {
			return nil
		}
		f.Content = bytes.NewReader(wanted)
	}
	n, err := x.stage.write(target, f.ModTime, f.Content, x.buffer)
	x.out.Files++
	x.out.Bytes += n
	return err
}

// finish completes the result.
func (x *extraction) finish() {
	sorted.By(x.out.LeftOut, func(a, b LeftOut) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Document, b.Document), strings.Compare(a.Object.String(), b.Object.String()))
	})
	if metadata, err := payload.ParseMetadata(x.metadata[payload.MetadataFile]); err == nil {
		x.out.Version = metadata.Version
	}
	if references, err := payload.ParseReferences(x.metadata[payload.ReferencesFile]); err == nil && !references.CreationTimestamp.IsZero() {
		x.out.Created = references.CreationTimestamp.UTC()
	}
}
