// Package payload turns the two manifest folders of a release image into a Payload: the release's description, its images, its manifests in
// load order, the excluded manifests with reasons, and the payload hash. It takes a file system (of an image or a folder) and the settings
// of a cluster. It does not fetch, verify or apply anything.
package payload

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"time"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/internal/errorset"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Folders and files of a release image.
const (
	// OperatorDir holds the version operator's own manifests, which are templates.
	OperatorDir = "manifests"
	// ReleaseDir holds the manifests of all other components, which are not templates.
	ReleaseDir = "release-manifests"
	// MetadataFile contains the version of the release.
	MetadataFile = ReleaseDir + "/release-metadata"
	// ReferencesFile lists the images of the release.
	ReferencesFile = ReleaseDir + "/image-references"
)

// Options are the settings of a cluster. The zero value stands for a plain self-managed cluster with all manifests of the default feature
// set.
type Options struct {
	// Filter selects the manifests. If MajorVersion is nil, Load uses the release's major version.
	Filter inclusion.Filter
	// Limits bounds each file.
	Limits manifest.Limits
	// Running is a release that is already in memory, or nil. The new release shares equal values with it; two consecutive releases have
	// most values in common.
	Running *Payload
	// TemplateErrors turns a broken template into an error. By default, Load skips its file with a warning, because an older operator must
	// be able to read a newer release.
	TemplateErrors bool
	// BringYourOwnNetwork is a value for templates: it is true if the release installs the cluster's pod network, so the operator must run
	// before that network exists.
	BringYourOwnNetwork bool
}

// Payload is a loaded release. Treat it as read-only.
type Payload struct {
	// Release describes the release. Its Image is the image passed to Load.
	Release release.Release
	// Created is when the release was assembled; zero if unknown.
	Created time.Time
	// References maps the short names of the release's images to pullspecs.
	References map[string]string
	// Hash is the VersionHash for the ClusterVersion's status. It covers the manifests that the filter keeps without its rules for
	// capabilities and overrides.
	Hash string
	// Manifests lists the included manifests in load order: the operator's own folder by file name, then the release's. Their Raw is nil.
	Manifests []*manifest.Manifest
	// Excluded lists the excluded manifests in load order.
	Excluded []Exclusion
	// Skipped lists the skipped files in load order. The warnings contain them too.
	Skipped []Skip
	// Warnings lists problems that do not prevent the use of the payload, in load order.
	Warnings []string
}

// Exclusion is a manifest that this cluster does not include.
type Exclusion struct {
	// Manifest is the manifest. To save memory, its object is reduced to apiVersion, kind and metadata.
	Manifest *manifest.Manifest
	// Reason is the reason without a full stop, see inclusion.Filter.
	Reason string
}

// Skip is a file of the operator's own folder whose template this operator cannot render. Its objects are unknown.
type Skip struct {
	// File is the name of the file, as in manifest.Manifest.
	File string
	// Err is the error of the template.
	Err error
}

// String returns text such as `manifests/0000_50_x.yaml: skipped: executing template: …`.
func (s Skip) String() string { return fmt.Sprintf("%s/%s: skipped: %v", OperatorDir, s.File, s.Err) }

// Error reports an invalid payload. Callers get its Reason with errors.As.
type Error struct {
	// Reason is one of the reasons in package api.
	Reason string
	// Name is the image or the folder.
	Name string
	// Err contains the causes, joined and sorted.
	Err error
}

// Error returns text such as `loading payload registry.example/release@sha256:…: 0000_50_x.yaml[2]: metadata.name:
// missing`.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("loading payload: %v", e.Err)
	}
	return fmt.Sprintf("loading payload %s: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Load loads a release from the root of its image or of a folder with the same layout. image is the pullspec for the templates and the
// Payload. Load reports all errors together in one *Error with reason UpdatePayloadIntegrity. A missing folder or file matches
// fs.ErrNotExist.
//
// In each folder, Load reads the files with the extensions .yaml, .yml and .json in the order of their names, as the original does. It
// ignores subfolders. Load differs from the original as follows. It expands lists. It merges the tags of an ImageStream that occurs in
// several files. Any other object that occurs in two files after filtering is an error that names both files. Objects without apiVersion,
// annotations that are not strings, and text after the end marker of a document are also errors. The original ignores such objects or fails
// later.
func Load(fsys fs.FS, image string, opts Options) (*Payload, error) {
	p, errs := load(fsys, image, opts)
	if err := errorset.Join(errs); err != nil {
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
		return nil, []error{fmt.Errorf("%s: metadata.name is %q, but the version in %s is %q", ReferencesFile, references.Name, MetadataFile, metadata.Version)}
	}
	p := &Payload{Created: references.CreationTimestamp.UTC(), References: ImageReferences(references)}
	if references.CreationTimestamp.IsZero() {
		p.Created = time.Time{}
	}
	p.Release, p.Warnings = metadata.Release(image)
	opts.Filter = FilterOf(metadata.Version, opts.Filter)
	return p, p.read(fsys, image, opts)
}

// read adds the manifests that the filter keeps to the payload, file by file, so that excluded content does not stay in memory.
func (p *Payload) read(fsys fs.FS, image string, opts Options) []error {
	k := keeper{
		filter: opts.Filter, unconditional: opts.Filter.Unconditional(), hash: newHash(), sharer: newSharer(),
		clusterScoped: map[schema.GroupKind]bool{},
	}
	if opts.Running != nil {
		k.learn(opts.Running)
	}
	var errs []error
	for r := range readManifests(fsys, newTemplater(image, opts.Filter.Profile, p.References, opts)) {
		switch {
		case r.err != nil:
			errs = append(errs, r.err)
		case r.skipped != nil:
			p.Skipped = append(p.Skipped, *r.skipped)
			p.Warnings = append(p.Warnings, r.skipped.String())
		case len(errs) == 0:
			k.keep(p, r.manifests)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	p.Hash = k.hash.String()
	p.dropStrayNamespaces(k.clusterScoped)
	var warnings []string
	p.Manifests, warnings, errs = unique(p.Manifests)
	p.Warnings = append(p.Warnings, warnings...)
	if nothing := p.Nothing(); nothing != "" {
		p.Warnings = append(p.Warnings, nothing)
	}
	return errs
}

// keeper selects the content of a payload.
type keeper struct {
	*sharer
	filter, unconditional inclusion.Filter
	hash                  payloadHash
	// clusterScoped contains the cluster-scoped kinds that CRDs of the release define.
	clusterScoped map[schema.GroupKind]bool
}

// keep adds the manifests of one file to the payload.
func (k *keeper) keep(p *Payload, manifests []*manifest.Manifest) {
	for _, m := range manifests {
		if _, excluded := k.unconditional.Exclude(m); !excluded {
			k.hash.add(m)
		}
		if kind, ok := m.DefinesClusterScoped(); ok {
			k.clusterScoped[kind] = true
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

// dropStrayNamespaces removes the namespaces of cluster-scoped objects. An API server ignores such a namespace, and releases add and drop
// it. So it must not be a part of the object's identity. clusterScoped contains the kinds that are not built-in.
func (p *Payload) dropStrayNamespaces(clusterScoped map[schema.GroupKind]bool) {
	drop := func(m *manifest.Manifest) {
		if gk := m.GVK().GroupKind(); m.Object.GetNamespace() != "" && (clusterScoped[gk] || manifest.ClusterScoped(gk)) {
			metadata := maps.Clone(m.Object.Object["metadata"].(map[string]any)) // other manifests may share it
			delete(metadata, "namespace")
			m.Object.Object["metadata"] = metadata
		}
	}
	for _, m := range p.Manifests {
		drop(m)
	}
	for _, e := range p.Excluded {
		drop(e.Manifest)
	}
}

// Named returns the manifests of the release by their objects, and the names of the skipped files. An object that has an included and an
// excluded manifest has the included one.
func (p *Payload) Named() (objects map[manifest.ID]*manifest.Manifest, skipped []string) {
	objects = make(map[manifest.ID]*manifest.Manifest, len(p.Manifests)+len(p.Excluded))
	for _, e := range p.Excluded {
		objects[e.Manifest.ID()] = e.Manifest
	}
	for _, m := range p.Manifests {
		objects[m.ID()] = m
	}
	for _, s := range p.Skipped {
		skipped = append(skipped, s.File)
	}
	return objects, skipped
}

// Optional returns the manifests that only capabilities or overrides exclude from a cluster with this filter, in load order. Their objects are
// reduced as in Excluded.
func (p *Payload) Optional(filter inclusion.Filter) []*manifest.Manifest {
	filter = FilterOf(p.Release.Version, filter.Unconditional())
	var optional []*manifest.Manifest
	for _, e := range p.Excluded {
		if _, excluded := filter.Exclude(e.Manifest); !excluded {
			optional = append(optional, e.Manifest)
		}
	}
	return optional
}

// FilterOf returns the filter for a release's version, which is a semantic version. If the filter names no major version, it gets that one.
func FilterOf(version string, filter inclusion.Filter) inclusion.Filter {
	if filter.MajorVersion == nil {
		filter.MajorVersion = new(semver.MustParse(version).Major)
	}
	return filter
}

func checkDir(fsys fs.FS, dir string) error {
	info, err := fs.Stat(fsys, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such folder, so this is not a release image: %w", dir, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("%s: %w", dir, err)
	case !info.IsDir():
		return fmt.Errorf("%s: not a folder", path.Clean(dir))
	}
	return nil
}
