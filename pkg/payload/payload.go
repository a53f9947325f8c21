// Package payload turns the two manifest folders of a release image into a Payload: what the release says of itself,
// the images it refers to, its manifests in load order with the left-out ones and why, and the payload hash. It takes
// a file system (of an image or a folder) and the settings of a cluster; it fetches, verifies and applies nothing.
package payload

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/blang/semver/v4"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// The folders and files of a release image.
const (
	// OperatorDir holds the version operator's own manifests, which are templates.
	OperatorDir = "manifests"
	// ReleaseDir holds everybody else's manifests, which are not.
	ReleaseDir = "release-manifests"
	// MetadataFile is where the release says its version.
	MetadataFile = ReleaseDir + "/release-metadata"
	// ReferencesFile lists the images of the release.
	ReferencesFile = ReleaseDir + "/image-references"
)

// Options are the settings of a cluster; the zero value is a plain self-managed cluster with every manifest of the
// default feature set.
type Options struct {
	// Filter decides what is included. A zero MajorVersion stands for that of the release.
	Filter manifest.Filter
	// Limits bound each file.
	Limits manifest.Limits
	// Running is a release that is in memory already. What the new one has in common with it, which is most of two
	// releases in a row, it shares with it instead of holding it a second time.
	Running *Payload
	// TemplateErrors makes a template that cannot be read or executed an error. By default its file is left out with a
	// warning, because an older operator must be able to read a newer release.
	TemplateErrors bool
	// BringYourOwnNetwork is what templates get under this name: whether the release installs the cluster's pod network
	// itself, so that the operator has to run before there is one.
	BringYourOwnNetwork bool
}

// Payload is a loaded release. Treat it as read-only.
type Payload struct {
	// Release is what the release says of itself; its Image is the one given to Load.
	Release release.Release
	// Created is when the release was assembled; zero if it does not say.
	Created time.Time
	// References lead from the short name of an image to its pullspec.
	References map[string]string
	// Hash is the VersionHash of the ClusterVersion's status: a hash over what the filter keeps, capabilities and
	// overrides left aside.
	Hash string
	// Manifests are the included ones in load order: the operator's own folder by file name, then the release's. They
	// have no Raw any more.
	Manifests []*manifest.Manifest
	// Excluded are the others, in load order.
	Excluded []Exclusion
	// Warnings are what a reader should know although the payload is fit for use, in load order.
	Warnings []string
}

// Exclusion is a manifest that this cluster does not get.
type Exclusion struct {
	// Manifest keeps of its object only apiVersion, kind and metadata, to save memory.
	Manifest *manifest.Manifest
	// Reason is a sentence without full stop, see manifest.Filter.
	Reason string
}

// Error says that a payload is not what it should be. errors.As gives its Reason to callers.
type Error struct {
	// Reason is one of those of package api.
	Reason string
	// Name is the image or the folder.
	Name string
	// Err are the causes, joined and sorted.
	Err error
}

// Error reads like `loading payload registry.example/release@sha256:…: 0000_50_x.yaml[2]: metadata.name: missing`.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("loading payload: %v", e.Err)
	}
	return fmt.Sprintf("loading payload %s: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Load reads a release from the root of its image (or of a folder laid out like it). image is the pullspec that
// templates are given and that the Payload carries. All errors are reported together, in one *Error with reason
// UpdatePayloadIntegrity; a missing folder or file can be told by errors.Is(err, fs.ErrNotExist).
//
// Files are read as the original does: in each folder by name, .yaml, .yml and .json only, no sub-folders. Unlike it,
// lists are expanded, one object in two files (after filtering) is an error that names both, and ImageStreams in
// several files become one with the tags of all.
func Load(fsys fs.FS, image string, opts Options) (*Payload, error) {
	p, errs := load(fsys, image, opts)
	if err := manifest.JoinSorted(errs); err != nil {
		return nil, &Error{Reason: api.ReasonPayloadIntegrity, Name: image, Err: err}
	}
	return p, nil
}

func load(fsys fs.FS, image string, opts Options) (*Payload, []error) {
	var errs []error
	for _, dir := range []string{OperatorDir, ReleaseDir} {
		if err := checkDir(fsys, dir); err != nil {
			errs = append(errs, err)
		}
	}
	metadata, err := ReadMetadata(fsys)
	if err != nil {
		errs = append(errs, err)
	}
	references, err := ReadReferences(fsys)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	if references.Name != metadata.Version {
		return nil, []error{fmt.Errorf("%s: metadata.name: is %q, but %s says version %q", ReferencesFile, references.Name, MetadataFile, metadata.Version)}
	}
	p := &Payload{Created: references.CreationTimestamp.UTC(), References: ImageReferences(references)}
	if references.CreationTimestamp.IsZero() {
		p.Created = time.Time{}
	}
	p.Release, p.Warnings = metadata.Release(image)
	if opts.Filter.MajorVersion == 0 {
		opts.Filter.MajorVersion = semver.MustParse(metadata.Version).Major
	}
	return p, p.read(fsys, image, opts)
}

// read filters the manifests of all files into the payload, file by file, so that what is left out is not held.
func (p *Payload) read(fsys fs.FS, image string, opts Options) []error {
	k := keeper{filter: opts.Filter, unconditional: opts.Filter.Unconditional(), hash: newHash(), sharer: newSharer()}
	if opts.Running != nil {
		k.learn(opts.Running)
	}
	var errs []error
	for r := range readManifests(fsys, newTemplater(image, opts.Filter.Profile, p.References, opts)) {
		switch {
		case r.err != nil:
			errs = append(errs, r.err)
		case r.warning != "":
			p.Warnings = append(p.Warnings, r.warning)
		case len(errs) == 0:
			k.keep(p, r.manifests)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	p.Hash = k.hash.String()
	var warnings []string
	p.Manifests, warnings, errs = unique(p.Manifests)
	p.Warnings = append(p.Warnings, warnings...)
	return errs
}

// keeper decides what a payload holds.
type keeper struct {
	*sharer
	filter, unconditional manifest.Filter
	hash                  payloadHash
}

// keep adds the manifests of one file to the payload.
func (k *keeper) keep(p *Payload, manifests []*manifest.Manifest) {
	for _, m := range manifests {
		if _, excluded := k.unconditional.Exclude(m); !excluded {
			k.hash.add(m)
		}
		m.Raw = nil
		if reason, excluded := k.filter.Exclude(m); excluded {
			m = slim(m)
			p.Excluded = append(p.Excluded, Exclusion{Manifest: m, Reason: reason})
		} else {
			p.Manifests = append(p.Manifests, m)
		}
		k.manifest(m)
	}
}

// Optional returns the manifests that capabilities alone keep from a cluster with this filter, in load order. Of their
// objects there is only what Excluded keeps.
func (p *Payload) Optional(filter manifest.Filter) []*manifest.Manifest {
	filter = filter.Unconditional()
	if filter.MajorVersion == 0 {
		filter.MajorVersion = semver.MustParse(p.Release.Version).Major
	}
	var optional []*manifest.Manifest
	for _, e := range p.Excluded {
		if _, excluded := filter.Exclude(e.Manifest); !excluded {
			optional = append(optional, e.Manifest)
		}
	}
	return optional
}

// Verification returns the ConfigMap whose annotation makes it the release's root of trust, the first in load order;
// nil if there is none.
func (p *Payload) Verification() *manifest.Manifest {
	for _, m := range p.Manifests {
		if _, ok := m.Object.GetAnnotations()[api.VerificationAnnotation]; ok && m.Is("", "ConfigMap") {
			return m
		}
	}
	return nil
}

func checkDir(fsys fs.FS, dir string) error {
	info, err := fs.Stat(fsys, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such folder, so this is no release image: %w", dir, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("%s: %w", dir, err)
	case !info.IsDir():
		return fmt.Errorf("%s: is not a folder", path.Clean(dir))
	}
	return nil
}
