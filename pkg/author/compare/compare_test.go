package compare_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/compare"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

func differences(t *testing.T, from, to string, options compare.Options) *compare.Result {
	t.Helper()
	a, err := inspect.OpenFolder(from)
	require.NoError(t, err)
	b, err := inspect.OpenFolder(to)
	require.NoError(t, err)
	c, err := compare.Releases(t.Context(), a, b, options)
	require.NoError(t, err)
	return c
}

var small = filepath.Join("testdata", "compare")

func text(t *testing.T, c *compare.Result) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, c.WriteText(&out, false))
	return out.String()
}

//threat:release-raises-own
func TestCompareMatchesTheGoldenFiles(t *testing.T) {
	for _, tt := range []struct {
		name    string
		from    string
		to      string
		options compare.Options
	}{
		{name: "compare", from: "1.0.0", to: "1.1.0"},
		{name: "compare-back", from: "1.1.0", to: "1.0.0"},
		{name: "compare-literal", from: "1.0.0", to: "1.1.0", options: compare.Options{Literal: true, Component: "dns"}},
		{name: "compare-same", from: "1.0.0", to: "1.0.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := differences(t, filepath.Join(small, tt.from), filepath.Join(small, tt.to), tt.options)

			golden.Assert(t, tt.name, text(t, c))
		})
	}
}

func TestCompareIsDeterministic(t *testing.T) {
	want := text(t, differences(t, filepath.Join(small, "1.0.0"), filepath.Join(small, "1.1.0"), compare.Options{}))
	for range 20 {
		assert.Equal(t, want, text(t, differences(t, filepath.Join(small, "1.0.0"), filepath.Join(small, "1.1.0"), compare.Options{})))
	}
}

func TestOnlyKeepsOnePart(t *testing.T) {
	c := differences(t, filepath.Join(small, "1.0.0"), filepath.Join(small, "1.1.0"), compare.Options{})

	images := c.Only(compare.PartImages)
	assert.NotEmpty(t, images.Images)
	assert.Empty(t, images.Objects)
	assert.Empty(t, images.Definitions)
	assert.Equal(t, c.Totals, images.Totals)
	assert.NotEmpty(t, c.Objects, "the original result is unchanged")
	assert.NotEmpty(t, c.Only(compare.PartAPIs).Roles)
	assert.Equal(t, c, c.Only())
}

// TestCompareFindsTheOrphansOfRealReleases compares two consecutive real releases. The expected orphans come from another program.
//
//threat:release-raises-own
func TestCompareFindsTheOrphansOfRealReleases(t *testing.T) {
	dir := filepath.Join(fixture.Testdata(t), "payloads")

	c := differences(t, filepath.Join(dir, "4.22.9"), filepath.Join(dir, "4.23.0"), compare.Options{})

	assert.True(t, c.Upgrade)
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%d definitions, %d roles, %d feature gates, %d files\n", c.Totals, len(c.Definitions), len(c.Roles), len(c.FeatureGates), len(c.Files))
	orphans := 0
	for _, o := range c.Objects {
		if o.Change == compare.Orphaned {
			orphans++
			fmt.Fprintf(&out, "orphaned %s in %d kinds of cluster\n", o.Object, len(o.Clusters))
		}
		if o.Change == compare.Deleted {
			fmt.Fprintf(&out, "deleted %s\n", o.Object)
		}
	}
	assert.Equal(t, 6, orphans)
	golden.Assert(t, "compare-real", out.String())
	id := manifest.ID{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding", Name: "cluster-baremetal-operator"}
	for _, o := range c.Objects {
		assert.False(t, o.Object == id && o.Change == compare.Orphaned, "a stray namespace does not change the identity of a cluster-scoped object")
	}
}

func TestAddedVersionIsComparedWithTheStoredOne(t *testing.T) {
	const (
		served = "{name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string}}}}}"
		stored = "{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string}, b: {type: string}}}}}"
	)
	release := func(versions ...string) string {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(small, "1.0.0"))))
		crd := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\n" +
			"spec: {group: example.com, scope: Cluster, names: {kind: Widget, plural: widgets}, versions: [" + strings.Join(versions, ", ") + "]}\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "release-manifests", "0000_10_widgets.yaml"), []byte(crd), 0o600))
		return dir
	}
	added := strings.NewReplacer("v1", "v3").Replace(served)
	for _, tt := range []struct {
		name   string
		before []string
		added  string
		want   []string
	}{
		{"compares with the stored version, not the first", []string{served, stored}, added, []string{"v3 b removed"}},
		{"ignores an added version that is not served", []string{stored}, strings.Replace(added, "served: true", "served: false", 1), nil},
		{"compares with nothing if the earlier release stores no version", []string{served}, strings.Replace(stored, "v2", "v3", 1), nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			c := differences(t, release(tt.before...), release(append(tt.before, tt.added)...), compare.Options{})
			var got []string
			for _, definition := range c.Definitions {
				for _, change := range definition.Schema {
					assert.False(t, change.Breaking)
					got = append(got, strings.Join([]string{change.Version, change.Path, change.What}, " "))
				}
			}
			assert.Equal(t, tt.want, got)
		})
	}
}
