package compare

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/internal/errorset"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// side is a release in a comparison.
type side struct {
	release    *inspect.Release
	files      fs.FS
	metadata   *payload.Metadata
	references *imagev1.ImageStream
	// names maps pullspecs to names of images.
	names     map[string]string
	manifests []*manifest.Manifest
	byID      map[manifest.ID][]*manifest.Manifest
	// clusterScoped contains the cluster-scoped kinds that the release's CRDs define.
	clusterScoped map[schema.GroupKind]bool
	// others contains the files that are not manifests.
	others map[string][]byte
}

// readSide reads all manifests of a release, regardless of which clusters they are for.
func readSide(ctx context.Context, r *inspect.Release, options Options) (*side, error) {
	s := &side{release: r, names: map[string]string{}, others: map[string][]byte{}}
	fail := func(err error) (*side, error) { return nil, fmt.Errorf("reading %s: %w", r.Image.Pullspec, err) }
	var err error
	if s.files, err = r.Files(ctx); err != nil {
		return nil, err
	}
	if s.metadata, err = payload.ReadMetadata(s.files); err != nil {
		return fail(err)
	}
	if s.references, err = payload.ReadReferences(s.files); err != nil {
		return fail(err)
	}
	for _, tag := range slices.Backward(inspect.SortTags(s.references)) {
		if tag.From != nil {
			s.names[tag.From.Name] = tag.Name
		}
	}
	files, err := manifestFiles(s.files)
	if err != nil {
		return fail(err)
	}
	parsed := make([][]*manifest.Manifest, len(files))
	errs := make([]error, len(files))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range files {
		group.Go(func() error {
			parsed[i], errs[i] = s.readFile(name)
			return nil
		})
	}
	_ = group.Wait() // the goroutines record their errors in errs
	if err := errorset.Join(errs); err != nil {
		return fail(err)
	}
	s.manifests = slices.Concat(parsed...)
	if options.Component != "" {
		s.manifests = slices.DeleteFunc(s.manifests, func(m *manifest.Manifest) bool { return m.Component != options.Component })
	}
	s.index(options)
	return s, s.readOthers()
}

// manifestFiles lists the manifest files of both folders.
func manifestFiles(files fs.FS) ([]string, error) {
	var names []string
	for _, dir := range []string{payload.OperatorDir, payload.ReleaseDir} {
		entries, err := fs.ReadDir(files, dir)
		if err != nil && dir == payload.ReleaseDir {
			return nil, err
		}
		for _, e := range entries {
			if !e.IsDir() && manifest.IsFile(e.Name()) {
				names = append(names, path.Join(dir, e.Name()))
			}
		}
	}
	return names, nil
}

func (s *side) readFile(name string) ([]*manifest.Manifest, error) {
	data, err := fs.ReadFile(s.files, name)
	if err != nil {
		return nil, err
	}
	if path.Dir(name) == payload.OperatorDir && bytes.Contains(data, []byte("{{")) {
		if data, err = payload.Render(path.Base(name), data, payload.ImageReferences(s.references)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return manifest.Parse(path.Base(name), data, manifest.Limits{})
}

// index prepares the manifests for the comparison.
func (s *side) index(options Options) {
	s.clusterScoped = map[schema.GroupKind]bool{}
	for _, m := range s.manifests {
		if kind, ok := m.DefinesClusterScoped(); ok {
			s.clusterScoped[kind] = true
		}
		if !options.Literal {
			s.generalize(m)
		}
	}
	s.byID = map[manifest.ID][]*manifest.Manifest{}
	for _, m := range s.manifests {
		id := s.identity(m)
		s.byID[id] = append(s.byID[id], m)
	}
}

// identity returns the identity for comparing objects. It drops the namespace of cluster-scoped kinds.
func (s *side) identity(m *manifest.Manifest) manifest.ID {
	id := m.ID()
	gk := m.GVK().GroupKind()
	if manifest.ClusterScoped(gk) || s.clusterScoped[gk] {
		id.Namespace = ""
	}
	return id
}

// generalize replaces the release's version and the pullspecs of its images with placeholders.
func (s *side) generalize(m *manifest.Manifest) {
	for key, value := range m.Object.Object {
		m.Object.Object[key] = s.general(value)
	}
}

func (s *side) general(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = s.general(item)
		}
	case []any:
		for i, item := range v {
			v[i] = s.general(item)
		}
	case string:
		return s.generalText(v)
	}
	return value
}

func (s *side) generalText(text string) string {
	if name, ok := s.names[text]; ok && release.Pullspec(text).HasDigest() {
		return "$(image " + name + ")"
	}
	if len(text) < 1<<20 {
		text = s.replacePullspecs(text)
	}
	return replaceToken(text, s.metadata.Version, "$(version)")
}

// replacePullspecs replaces the release's pullspecs in a text with placeholders.
func (s *side) replacePullspecs(text string) string {
	var out strings.Builder
	rest := 0
	for offset, pullspec := range release.Pullspecs(text) {
		if name, ok := s.names[string(pullspec)]; ok {
			out.WriteString(text[rest:offset] + "$(image " + name + ")")
			rest = offset + len(pullspec)
		}
	}
	if rest == 0 {
		return text
	}
	out.WriteString(text[rest:])
	return out.String()
}

// replaceToken replaces a version in a text, except where it is part of a longer version.
func replaceToken(text, version, by string) string {
	if !strings.Contains(text, version) {
		return text
	}
	var out strings.Builder
	for {
		i := strings.Index(text, version)
		if i < 0 {
			break
		}
		end := i + len(version)
		part := i > 0 && isVersion(text[i-1]) || end < len(text) && isVersion(text[end])
		out.WriteString(text[:i])
		if part {
			out.WriteString(version)
		} else {
			out.WriteString(by)
		}
		text = text[end:]
	}
	out.WriteString(text)
	return out.String()
}

func isVersion(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '+' || c == '_'
}

func (s *side) describe() Release {
	r := Release{Image: s.release.Image.Pullspec, Digest: s.release.Image.Digest, Version: s.metadata.Version}
	if !s.references.CreationTimestamp.IsZero() {
		r.Created = s.references.CreationTimestamp.UTC()
	}
	return r
}

// readOthers reads the files in release-manifests/ that are neither manifests nor metadata.
func (s *side) readOthers() error {
	entries, err := fs.ReadDir(s.files, payload.ReleaseDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(payload.ReleaseDir, e.Name())
		if e.IsDir() || manifest.IsFile(e.Name()) || name == payload.MetadataFile || name == payload.ReferencesFile {
			continue
		}
		data, err := fs.ReadFile(s.files, name)
		if err != nil {
			return err
		}
		s.others[name] = data
	}
	return nil
}
