package taskgraph_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

// TestRealReleasesHaveTheKnownShape checks the shape of real releases, by figures only.
func TestRealReleasesHaveTheKnownShape(t *testing.T) {
	root := filepath.Join(fixture.Testdata(t), "payloads")
	var out bytes.Buffer
	for _, version := range []string{"4.22.9", "4.23.0"} {
		manifests := realRelease(t, filepath.Join(root, version))
		for _, mode := range release.Modes() {
			g := build(t, mode, manifests...)
			requireSound(t, g, manifests)
			summary, err := json.Marshal(g.Summary())
			require.NoError(t, err)
			edges := 0
			for _, n := range g.Nodes() {
				edges += len(g.Successors(n))
			}
			fmt.Fprintf(&out, "%s %s: %s, %d nodes, %d edges\n", version, mode, summary, len(g.Nodes()), edges)
			for _, n := range g.Tasks() {
				if n.Drawn {
					fmt.Fprintf(&out, "  %02d: %s from %s\n", n.Runlevel, n.Label(), n.From)
				}
			}
		}
	}
	golden.Assert(t, "real", out.String())
}

func realRelease(t testing.TB, dir string) []*manifest.Manifest {
	t.Helper()
	p, err := payload.Load(os.DirFS(dir), "registry.example/release", payload.Options{Filter: inclusion.Filter{Capabilities: inclusion.AllCapabilities(nil)}})
	require.NoError(t, err)
	return p.Manifests
}

func BenchmarkBuildRealRelease(b *testing.B) {
	manifests := realRelease(b, filepath.Join(fixture.Testdata(b), "payloads", "4.23.0"))
	for _, mode := range release.Modes() {
		b.Run(string(mode), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := taskgraph.Build(manifests, mode)
				require.NoError(b, err)
			}
		})
	}
}
