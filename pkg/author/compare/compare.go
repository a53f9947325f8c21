// Package compare lists the differences between two releases: images, objects, APIs of CRDs, roles, feature gates and other files. It
// takes two releases opened by package inspect. It returns a Result for scripts, which can also be written as text. It reads only
// manifests and fetches no component images.
package compare

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/internal/difference"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Result lists the differences between two releases. Its JSON is for scripts. Fields may be added, but are never renamed or removed.
type Result struct {
	From Release `json:"from"`
	To   Release `json:"to"`
	// Upgrade is set if the second release lists the first as a version that it can update.
	Upgrade bool `json:"upgrade"`
	// Images are the images that differ, sorted by name.
	Images []ImageChange `json:"images"`
	// Objects are the objects whose manifests differ, sorted by component and order of application.
	Objects []ObjectChange `json:"objects"`
	// Definitions are the changes to APIs that CRDs define.
	Definitions []DefinitionChange `json:"definitions"`
	// Roles are the roles with changed permissions.
	Roles []RoleChange `json:"roles"`
	// FeatureGates are the gates whose state differs.
	FeatureGates []GateChange `json:"featureGates"`
	// Files are the files that differ and are not manifests.
	Files []FileChange `json:"files,omitempty"`
	// Totals contains the number of entries in the lists.
	Totals Totals `json:"totals"`
}

// Release is one side of a Result.
type Release struct {
	Image   string         `json:"image"`
	Digest  release.Digest `json:"digest,omitempty"`
	Version string         `json:"version"`
	Created time.Time      `json:"created,omitzero"`
}

// Change is a kind of difference.
type Change string

const (
	// Added means that only the second release contains the item.
	Added Change = "added"
	// Changed means that the releases contain different versions of the item.
	Changed Change = "changed"
	// Removed means that only the first release contains the item.
	Removed Change = "removed"
	// Rebuilt means that the content of an image differs, while its commit is the same or unknown.
	Rebuilt Change = "rebuilt"
	// Deleted means that the second release deletes the object.
	Deleted Change = "deleted"
	// Orphaned means that the second release neither contains nor deletes the object, so it stays in clusters.
	Orphaned Change = "orphaned"
)

// ImageChange is an image that differs between the releases.
type ImageChange struct {
	Name   string `json:"name"`
	Change Change `json:"change"`
	// From and To are the pullspecs; empty in a release without the image.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Source is the source repository. FromCommit and ToCommit are the commits of the images.
	Source     string `json:"source,omitempty"`
	FromCommit string `json:"fromCommit,omitempty"`
	ToCommit   string `json:"toCommit,omitempty"`
}

// ObjectChange is an object that differs between the releases. If an object has variants for profiles, feature sets or gates, each variant
// has its own ObjectChange.
type ObjectChange struct {
	Object    manifest.ID `json:"object"`
	Component string      `json:"component"`
	Change    Change      `json:"change"`
	// Variant describes the clusters of the variant; empty if the object has no variants.
	Variant string `json:"variant,omitempty"`
	// From and To are the object's places in the releases; nil in a release without the object.
	From *Place `json:"from,omitempty"`
	To   *Place `json:"to,omitempty"`
	// APIVersions contains the old and the new API version if they differ.
	APIVersions []string `json:"apiVersions,omitempty"`
	// Runlevels contains the old and the new "runlevel/component" if they differ.
	Runlevels []string `json:"runlevels,omitempty"`
	// Inclusion contains differing annotations that select clusters or control how the object is applied.
	Inclusion []difference.Field `json:"inclusion,omitempty"`
	// Clusters are the clusters with an orphaned object, as profile/feature set.
	Clusters []string `json:"clusters,omitempty"`
	// Fields contains the other differences. It omits the schemas of CRDs; see DefinitionChange.
	Fields []difference.Field `json:"fields,omitempty"`
}

// Place is the position of a manifest in a release.
type Place struct {
	File     string `json:"file"`
	Document int    `json:"document"`
}

// FileChange is a file that differs and is not a manifest.
type FileChange struct {
	Name   string `json:"name"`
	Change Change `json:"change"`
}

// Totals contains the number of entries in a Result.
type Totals struct {
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

	// Files is the number of differing files that are not manifests.
	Files int `json:"files"`

	BreakingAPIs int `json:"breakingAPIs"`
	WidenedRoles int `json:"widenedRoles"`
}

// Identical reports whether the releases are identical.
func (c *Result) Identical() bool {
	t := c.Totals
	return c.From.Version == c.To.Version && t.ImagesChanged+t.ImagesRebuilt+t.ImagesAdded+t.ImagesRemoved+
		t.ObjectsAdded+t.ObjectsChanged+t.ObjectsRemoved+t.ObjectsDeleted+t.ObjectsOrphaned+t.Files == 0
}

// Options configure a comparison.
type Options struct {
	// Literal compares manifests literally. By default, placeholders replace the release's version and the pullspecs of its images,
	// because they differ in nearly every release.
	Literal bool
	// Component limits the result to one component; empty for all components.
	Component string
}

// Releases returns the differences between two releases. It reads only manifests and fetches no component images. It fails if it cannot
// read a release or a manifest.
func Releases(ctx context.Context, from, to *inspect.Release, options Options) (*Result, error) {
	var sides [2]*side
	var group errgroup.Group
	for i, r := range []*inspect.Release{from, to} {
		group.Go(func() (err error) {
			sides[i], err = readSide(ctx, r, options)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	before, after := sides[0], sides[1]
	c := &Result{
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

func (c *Result) compareFiles(before, after *side) {
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

// unionKeys returns the keys of both maps, sorted.
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

// same reports whether two manifests have equal objects.
func same(a, b *manifest.Manifest) bool {
	return a.Content == b.Content || reflect.DeepEqual(a.Object.Object, b.Object.Object)
}
