// Package layout reads and writes OCI image layouts: folders with images by digest and a list of images (OCI image specification,
// image-layout.md). It takes a folder, and content or names. It returns documents, blobs and digests. It interprets only the list and the
// subjects of attachments. Callers interpret the rest.
//
// There are two ways to write a layout. Add adds one image to a layout that other processes may also write to. Writer fills a folder over
// a long time, resumes after an interruption and excludes other processes. go-containerregistry's v1/layout writes the content for Add. It
// is unsuitable for the rest: it reads files of any size and type, replaces index.json in place, does not sync to disk, and does not
// support incomplete layouts (docs/adr/0015-oci-layouts.md).
package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/pkg/release"
)

// NameAnnotation names an image within a layout (OCI image specification, pre-defined annotation keys).
const NameAnnotation = "org.opencontainers.image.ref.name"

// Files of a layout.
const (
	// MarkerFile with MarkerContent marks a folder as a layout.
	MarkerFile    = "oci-layout"
	MarkerContent = `{"imageLayoutVersion":"1.0.0"}`
	// IndexFile is the list of images.
	IndexFile = "index.json"
)

// BlobsDir is the folder for content within a layout.
var BlobsDir = filepath.Join("blobs", "sha256")

// Is reports whether a folder is a layout.
func Is(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, MarkerFile))
	return err == nil && info.Mode().IsRegular()
}

// IsReference reports whether a reference refers to a local OCI layout: DIR, DIR:NAME or DIR@DIGEST.
func IsReference(ref string) bool {
	_, _, ok := SplitReference(ref)
	return ok
}

// SplitReference splits DIR, DIR:NAME and DIR@DIGEST, where DIR is a local OCI layout.
func SplitReference(ref string) (dir, want string, ok bool) {
	if Is(ref) {
		return ref, "", true
	}
	for _, sep := range []string{"@", ":"} {
		if i := strings.LastIndex(ref, sep); i > 0 && sep == "@" || i > 0 && !strings.Contains(ref[i:], "/") {
			if Is(ref[:i]) {
				return ref[:i], ref[i+1:], true
			}
		}
	}
	return "", "", false
}

// Path returns the path of content in the layout dir.
func Path(dir string, d release.Digest) string { return filepath.Join(dir, BlobsDir, d.Hex()) }

// NameOf returns the name of a listed image; empty if it has no name.
func NameOf(d v1.Descriptor) string { return d.Annotations[NameAnnotation] }

// ReadIndex reads the list of images in a layout. The list of an empty or missing folder is empty.
func ReadIndex(dir string) (*v1.IndexManifest, error) {
	index := emptyIndex()
	data, err := os.ReadFile(filepath.Join(dir, IndexFile))
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := os.ReadDir(dir)
		if err == nil && len(entries) > 0 {
			return nil, fmt.Errorf("%s exists and is not an OCI layout: choose a layout, or an empty or new folder", dir)
		}
		return &index, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening the OCI layout %s: %w", dir, err)
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("opening the OCI layout %s: %s: %w", dir, IndexFile, err)
	}
	return &index, nil
}

// WriteIndex replaces the list of images in a layout, unless it is the same. If the process is killed, the earlier list stays. The caller
// excludes other writers.
func WriteIndex(dir string, mode fs.FileMode, index v1.IndexManifest) error {
	if index.Manifests == nil {
		index.Manifests = []v1.Descriptor{}
	}
	data, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	path := filepath.Join(dir, IndexFile)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return atomicfile.Write(path, mode, atomicfile.Content(data))
}

func emptyIndex() v1.IndexManifest {
	return v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
}

// withoutName returns the images that do not have the given name.
func withoutName(listed []v1.Descriptor, name string) []v1.Descriptor {
	return slices.DeleteFunc(listed, func(d v1.Descriptor) bool { return NameOf(d) == name })
}
