package compare_test

import (
	"fmt"
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
