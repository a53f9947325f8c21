package inspect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// Layout is how the files of a release lie in a folder.
type Layout string

// Layouts of an extracted release.
const (
	// LayoutFlat: what release-manifests/ holds, in the folder itself, as `oc adm release extract` leaves it.
	LayoutFlat Layout = "flat"
	// LayoutImage: manifests/ and release-manifests/, as they are in the image, for those who run or build on them.
	LayoutImage Layout = "image"
)

// Layouts lists every layout.
func Layouts() []Layout { return []Layout{LayoutFlat, LayoutImage} }

// ExtractOptions say what comes out of a release, and how.
type ExtractOptions struct {
	// Layout is LayoutFlat by default.
	Layout Layout
	// Selection is what is wanted, by default everything. It goes with the flat layout only: what is left of a release is
	// none any more.
	Selection Selection
	// Overwrite replaces files that are there already with other content; by default they are a *ConflictError.
	Overwrite bool
}

// Extracted tells what came out of a release.
type Extracted struct {
	// Version and Created are what the release says of itself; empty if it does not say, which is no reason not to look
	// at it.
	Version string
	Created time.Time
	// Files and Bytes count what was wanted, Unchanged the files that were there already.
	Files     int
	Bytes     int64
	Unchanged int
	// LeftOut are the objects that were not wanted, by file and document.
	LeftOut []LeftOut
}

// Extract writes the files of a release into a folder, which is made if it is not there. They are written beside their
// place first, and moved when all of them are complete and checked against their digest: a new folder appears as a whole,
// and an error or a kill before that leaves nothing under a name that counts. Files in the way are found before the first
// is moved. All manifests that cannot be read are reported together; where everything is wanted none is looked into.
func (r *Release) Extract(ctx context.Context, dir string, opts ExtractOptions) (out *Extracted, err error) {
	x := &extraction{opts: opts, out: &Extracted{}, metadata: memory{}, buffer: make([]byte, 128<<10)}
	if opts.Layout == LayoutImage && !opts.Selection.everything() {
		return nil, errors.New("a selection of manifests has no image layout: it is no release any more")
	}
	if x.stage, err = newStage(dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.stage.remove()) }()
	if err := r.walk(ctx, x.visit); err != nil {
		return nil, err
	}
	if !x.release {
		return nil, r.noRelease()
	}
	if err := manifest.JoinSorted(x.errs); err != nil {
		return nil, err
	}
	x.finish()
	x.out.Unchanged, err = x.stage.commit(opts.Overwrite)
	return x.out, err
}

// extraction is one run of Extract.
type extraction struct {
	opts  ExtractOptions
	stage *stage
	out   *Extracted
	// release is set once a file of release-manifests/ was seen.
	release  bool
	metadata memory
	errs     []error
	buffer   []byte
}

// visit takes one file. What cannot be read as a manifest is remembered, so that all such files are told of.
func (x *extraction) visit(f image.File) error {
	folder, base := path.Split(f.Name)
	inRelease := folder == payload.ReleaseDir+"/"
	x.release = x.release || inRelease
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

// finish completes what is told.
func (x *extraction) finish() {
	slices.SortFunc(x.out.LeftOut, func(a, b LeftOut) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Document, b.Document), strings.Compare(a.Object.String(), b.Object.String()))
	})
	if metadata, err := payload.ReadMetadata(x.metadata); err == nil {
		x.out.Version = metadata.Version
	}
	if references, err := payload.ReadReferences(x.metadata); err == nil && !references.CreationTimestamp.IsZero() {
		x.out.Created = references.CreationTimestamp.UTC()
	}
}
