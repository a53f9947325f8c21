package inspect

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	imagev1 "github.com/openshift/api/image/v1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/difference"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Comparison is what is different between two releases. Its JSON is for scripts: fields are added, never renamed or
// removed.
type Comparison struct {
	From ComparedRelease `json:"from"`
	To   ComparedRelease `json:"to"`
	// Upgrade: the second release says that the first one may be updated to it.
	Upgrade bool `json:"upgrade"`
	// Images are those that are not the same in both, by name.
	Images []ImageChange `json:"images"`
	// Objects are those whose manifests are not the same in both, by component, then as they are applied.
	Objects []ObjectChange `json:"objects"`
	// Definitions say what becomes of APIs that CRDs bring.
	Definitions []DefinitionChange `json:"definitions"`
	// Roles are those that allow more or less than before.
	Roles []RoleChange `json:"roles"`
	// FeatureGates are those that are on where they were off, and the other way round.
	FeatureGates []GateChange `json:"featureGates"`
	// Files are those that are no manifests and not the same in both.
	Files []FileChange `json:"files,omitempty"`
	// Totals count what is in the lists.
	Totals CompareTotals `json:"totals"`
}

// ComparedRelease is one side of a Comparison.
type ComparedRelease struct {
	Image   string         `json:"image"`
	Digest  release.Digest `json:"digest,omitempty"`
	Version string         `json:"version"`
	Created time.Time      `json:"created,omitzero"`
}

// Change says what became of something.
type Change string

const (
	// Added: it is new.
	Added Change = "added"
	// Changed: it is in both and not the same.
	Changed Change = "changed"
	// Removed: it is gone.
	Removed Change = "removed"
	// Rebuilt: an image of other content that was made from the same commit, or from one that is not known.
	Rebuilt Change = "rebuilt"
	// Deleted: the second release deletes the object.
	Deleted Change = "deleted"
	// Orphaned: the object is gone from the release and stays in clusters, because nothing deletes it.
	Orphaned Change = "orphaned"
)

// ImageChange is an image that is not the same in both releases.
type ImageChange struct {
	Name   string `json:"name"`
	Change Change `json:"change"`
	// From and To are the pullspecs.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Source is the repository of the code, FromCommit and ToCommit what it was built from.
	Source     string `json:"source,omitempty"`
	FromCommit string `json:"fromCommit,omitempty"`
	ToCommit   string `json:"toCommit,omitempty"`
}

// ObjectChange is an object that is not the same in both releases. An object that comes in variants, for profiles,
// feature sets or gates, has one for each of them.
type ObjectChange struct {
	Object    manifest.ID `json:"object"`
	Component string      `json:"component"`
	Change    Change      `json:"change"`
	// Variant says for whom it is, where the object comes in variants.
	Variant string `json:"variant,omitempty"`
	// From and To are where it is in the releases.
	From *Place `json:"from,omitempty"`
	To   *Place `json:"to,omitempty"`
	// APIVersions are those of both, if they are not the same.
	APIVersions []string `json:"apiVersions,omitempty"`
	// Runlevels are "runlevel/component" of both, if they are not the same.
	Runlevels []string `json:"runlevels,omitempty"`
	// Inclusion are the annotations that decide who gets it and how it is treated, as far as they are not the same.
	Inclusion []difference.Field `json:"inclusion,omitempty"`
	// Clusters are those where the object is orphaned, as profile/feature set.
	Clusters []string `json:"clusters,omitempty"`
	// Fields are the other differences. Schemas of CRDs are left aside, see DefinitionChange.
	Fields []difference.Field `json:"fields,omitempty"`
}

// Place is a manifest in a release.
type Place struct {
	File     string `json:"file"`
	Document int    `json:"document"`
}

// FileChange is a file that is no manifest and not the same in both releases.
type FileChange struct {
	Name   string `json:"name"`
	Change Change `json:"change"`
}

// CompareTotals count what a Comparison lists.
type CompareTotals struct {
	ImagesChanged int `json:"imagesChanged"`
	ImagesRebuilt int `json:"imagesRebuilt"`
	ImagesAdded   int `json:"imagesAdded"`
	ImagesRemoved int `json:"imagesRemoved"`
	ImagesSame    int `json:"imagesSame"`

	ObjectsAdded    int `json:"objectsAdded"`
	ObjectsChanged  int `json:"objectsChanged"`
	ObjectsRemoved  int `json:"objectsRemoved"`
	ObjectsDeleted  int `json:"objectsDeleted"`
	ObjectsOrphaned int `json:"objectsOrphaned"`
	ObjectsSame     int `json:"objectsSame"`

	// Files are those that are no manifests and not the same.
	Files int `json:"files"`

	BreakingAPIs int `json:"breakingAPIs"`
	WidenedRoles int `json:"widenedRoles"`
}

// Identical reports whether nothing is different.
func (c *Comparison) Identical() bool {
	t := c.Totals
	return c.From.Version == c.To.Version && t.ImagesChanged+t.ImagesRebuilt+t.ImagesAdded+t.ImagesRemoved+
		t.ObjectsAdded+t.ObjectsChanged+t.ObjectsRemoved+t.ObjectsDeleted+t.ObjectsOrphaned+t.Files == 0
}

// CompareOptions say how releases are compared.
type CompareOptions struct {
	// Literal compares manifests as they stand. By default the release's version and the pullspecs of its images, which
	// are different in nearly every release, are compared by what they stand for.
	Literal bool
	// Component keeps only what that component brings; default all.
	Component string
}

// Compare tells what is different in the second of two releases. It reads manifests only; no image is fetched.
func Compare(ctx context.Context, from, to *Release, options CompareOptions) (*Comparison, error) {
	var sides [2]*side
	var group errgroup.Group
	for i, r := range []*Release{from, to} {
		group.Go(func() (err error) {
			sides[i], err = readSide(ctx, r, options)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	before, after := sides[0], sides[1]
	c := &Comparison{
		From: before.describe(), To: after.describe(),
		Upgrade: slices.Contains(after.metadata.Previous, before.metadata.Version),
		Images:  []ImageChange{}, Objects: []ObjectChange{}, Definitions: []DefinitionChange{}, Roles: []RoleChange{}, FeatureGates: []GateChange{},
	}
	c.compareImages(before, after, options.Component)
	c.compareObjects(before, after)
	if options.Component == "" {
		c.FeatureGates = append(c.FeatureGates, compareGates(before, after)...)
		c.compareFiles(before, after)
	}
	return c, nil
}

// side is a release that is compared.
type side struct {
	release    *Release
	files      fs.FS
	metadata   *payload.Metadata
	references *imagev1.ImageStream
	// names lead from a pullspec to the name of the image.
	names     map[string]string
	manifests []*manifest.Manifest
	byID      map[manifest.ID][]*manifest.Manifest
	// clusterScoped are the kinds that its CRDs define without a namespace.
	clusterScoped map[string]bool
	// others are the files that are no manifests.
	others map[string][]byte
}

// templateImage stands for the release in its own templates, so that they are the same in both.
const templateImage = "release.invalid/release@sha256:0000000000000000000000000000000000000000000000000000000000000000"

// readSide reads all manifests of a release. Unlike a cluster it takes them all, whoever they are for.
func readSide(ctx context.Context, r *Release, options CompareOptions) (*side, error) {
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
	for _, tag := range slices.Backward(sortedTags(s.references)) {
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
	_ = group.Wait() // each file's error is in its slot
	if err := manifest.JoinSorted(slices.DeleteFunc(errs, func(err error) bool { return err == nil })); err != nil {
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
		if data, err = payload.Render(path.Base(name), data, templateImage, "", payload.ImageReferences(s.references)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return manifest.Parse(path.Base(name), data, manifest.Limits{})
}

// index prepares the manifests to be compared.
func (s *side) index(options CompareOptions) {
	s.clusterScoped = map[string]bool{}
	for _, m := range s.manifests {
		if m.Is(crdGroup, crdKind) {
			group, _, _ := unstructured.NestedString(m.Object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(m.Object.Object, "spec", "names", "kind")
			scope, _, _ := unstructured.NestedString(m.Object.Object, "spec", "scope")
			s.clusterScoped[kind+"."+group] = scope == "Cluster"
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

// identity is what an object is the same by: a namespace that its kind does not have is none.
func (s *side) identity(m *manifest.Manifest) manifest.ID {
	id := m.ID()
	gk := m.GVK().GroupKind()
	if manifest.ClusterScoped(gk) || s.clusterScoped[gk.Kind+"."+gk.Group] {
		id.Namespace = ""
	}
	return id
}

// generalize replaces the pullspecs of the release's images and its version, wherever they stand, by what they mean.
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
	if strings.Contains(text, "@sha256:") {
		if name, ok := s.names[text]; ok {
			return "$(image " + name + ")"
		}
		if len(text) < 1<<20 {
			text = s.replacePullspecs(text)
		}
	}
	return replaceToken(text, s.metadata.Version, "$(version)")
}

// replacePullspecs replaces what looks like a pullspec by digest and is one of the release's.
func (s *side) replacePullspecs(text string) string {
	var out strings.Builder
	for {
		i := strings.Index(text, "@sha256:")
		if i < 0 {
			break
		}
		start := i
		for start > 0 && isPullspec(text[start-1]) {
			start--
		}
		end := min(len(text), i+len("@sha256:")+64)
		if name, ok := s.names[text[start:end]]; ok {
			out.WriteString(text[:start] + "$(image " + name + ")")
		} else {
			out.WriteString(text[:end])
		}
		text = text[end:]
	}
	out.WriteString(text)
	return out.String()
}

func isPullspec(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-/:", c) >= 0
}

// replaceToken replaces a version where nothing stands beside it that would make it part of another one.
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

func (s *side) describe() ComparedRelease {
	r := ComparedRelease{Image: s.release.Image.Pullspec, Digest: s.release.Image.Digest, Version: s.metadata.Version}
	if !s.references.CreationTimestamp.IsZero() {
		r.Created = s.references.CreationTimestamp.UTC()
	}
	return r
}

// readOthers reads the files of release-manifests/ that are neither manifests nor what the comparison tells otherwise.
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

// compareImages tells of the images, in the words of the original: one is rebuilt if its code did not change, or if
// that is not known.
func (c *Comparison) compareImages(before, after *side, component string) {
	old, now := tagsByName(before.references), tagsByName(after.references)
	for _, name := range unionKeys(old, now) {
		if component != "" && name != component {
			continue
		}
		a, was := old[name]
		b, is := now[name]
		change := ImageChange{Name: name, From: pullspecOf(a), To: pullspecOf(b)}
		change.Source = cmp.Or(b.Annotations[sourceAnnotation], a.Annotations[sourceAnnotation])
		change.FromCommit, change.ToCommit = a.Annotations[commitAnnotation], b.Annotations[commitAnnotation]
		switch {
		case !was:
			change.Change = Added
			c.Totals.ImagesAdded++
		case !is:
			change.Change = Removed
			c.Totals.ImagesRemoved++
		case digestPart(change.From) == digestPart(change.To):
			c.Totals.ImagesSame++
			continue
		case change.FromCommit == "" || change.ToCommit == "" || change.FromCommit == change.ToCommit:
			change.Change = Rebuilt
			c.Totals.ImagesRebuilt++
		default:
			change.Change = Changed
			c.Totals.ImagesChanged++
		}
		c.Images = append(c.Images, change)
	}
}

// digestPart is the digest of a pullspec, or all of one that names no digest: a mirror is no other content.
func digestPart(pullspec string) string {
	if _, digest, ok := strings.Cut(pullspec, "@"); ok {
		return digest
	}
	return pullspec
}

func tagsByName(stream *imagev1.ImageStream) map[string]imagev1.TagReference {
	out := map[string]imagev1.TagReference{}
	for _, tag := range stream.Spec.Tags {
		out[tag.Name] = tag
	}
	return out
}

// unionKeys are the keys of both maps, sorted.
func unionKeys[V any](a, b map[string]V) []string {
	var keys []string
	for k := range a {
		keys = append(keys, k)
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func (c *Comparison) compareFiles(before, after *side) {
	for _, name := range unionKeys(before.others, after.others) {
		a, was := before.others[name]
		b, is := after.others[name]
		switch {
		case !was:
			c.Files = append(c.Files, FileChange{name, Added})
		case !is:
			c.Files = append(c.Files, FileChange{name, Removed})
		case !bytes.Equal(a, b):
			c.Files = append(c.Files, FileChange{name, Changed})
		}
	}
	c.Totals.Files = len(c.Files)
}

// same reports whether two manifests have equal objects.
func same(a, b *manifest.Manifest) bool {
	return a.Content == b.Content || reflect.DeepEqual(a.Object.Object, b.Object.Object)
}
