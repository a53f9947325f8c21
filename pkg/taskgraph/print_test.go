package taskgraph_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/graph/encoding/dot"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

type printer struct {
	name  string
	write func(io.Writer, *taskgraph.Graph) error
}

var printers = []printer{
	{"text", taskgraph.WriteText}, {"dot", taskgraph.WriteDOT}, {"svg", taskgraph.WriteSVG}, {"json", taskgraph.WriteJSON},
}

func TestPrint(t *testing.T) {
	for _, mode := range release.Modes() {
		for _, p := range printers {
			t.Run(string(mode)+" "+p.name, func(t *testing.T) {
				g := build(t, mode, platform()...)
				var first, second bytes.Buffer
				require.NoError(t, p.write(&first, g))
				require.NoError(t, p.write(&second, build(t, mode, platform()...)))
				assert.Equal(t, first.String(), second.String())
				golden.Assert(t, strings.ToLower(string(mode))+"."+p.name, first.String())
				broken := errors.New("broken pipe")
				assert.ErrorIs(t, p.write(writerFunc(func([]byte) (int, error) { return 0, broken }), g), broken)
			})
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestPrintHostileNames: names come from a release and may hold anything.
func TestPrintHostileNames(t *testing.T) {
	name := "\"]; <script>&'\x1b[31m\\N\nx"
	m := object("50/a/00", "v1 Service x")
	m.Object.SetName(name)
	m.Component, m.File = name, name
	n := crd("70/b/00", "Widget.example.com")
	n.Component = name
	for _, mode := range release.Modes() {
		g := build(t, mode, m, n, object("05/a/00", "example.com/v1 Widget w"))
		for _, p := range printers {
			t.Run(string(mode)+" "+p.name, func(t *testing.T) {
				var out bytes.Buffer
				require.NoError(t, p.write(&out, g))
				assert.NotContains(t, out.String(), "\x1b")
				checkSyntax(t, p.name, out.Bytes())
			})
		}
		var empty bytes.Buffer
		for _, p := range printers {
			empty.Reset()
			require.NoError(t, p.write(&empty, build(t, mode)))
			checkSyntax(t, p.name, empty.Bytes())
		}
	}
}

func checkSyntax(t *testing.T, format string, out []byte) {
	t.Helper()
	switch format {
	case "dot":
		require.NoError(t, dot.Unmarshal(out, simple.NewDirectedGraph()), "%s", out)
	case "json":
		var d taskgraph.Document
		require.NoError(t, json.Unmarshal(out, &d))
	case "svg":
		assert.NotContains(t, string(out), "<script>")
		for d := xml.NewDecoder(bytes.NewReader(out)); ; {
			if _, err := d.Token(); err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
		}
	case "text":
		assert.NotContains(t, string(out), "\nx")
	}
}

// TestRealReleases keeps the shape of real releases in view, by figures only.
func TestRealReleases(t *testing.T) {
	root := filepath.Join(fixture.Testdata(t), "payloads")
	var out bytes.Buffer
	for _, version := range []string{"4.22.9", "4.23.0"} {
		manifests := realRelease(t, filepath.Join(root, version))
		for _, mode := range release.Modes() {
			g := build(t, mode, manifests...)
			requireSound(t, g, manifests)
			summary, err := json.Marshal(g.Summary())
			require.NoError(t, err)
			fmt.Fprintf(&out, "%s %s: %s, %d nodes, %d edges\n", version, mode, summary, len(g.Nodes()), g.Edges())
			for _, n := range g.Tasks() {
				if n.Drawn {
					fmt.Fprintf(&out, "  %02d: %s from %s\n", n.Runlevel, n.Label(), n.From)
				}
			}
			for _, p := range printers {
				var printed bytes.Buffer
				require.NoError(t, p.write(&printed, g))
				checkSyntax(t, p.name, printed.Bytes())
				if dir := os.Getenv("CVO_GRAPHS"); dir != "" {
					require.NoError(t, os.WriteFile(filepath.Join(dir, version+"-"+string(mode)+"."+p.name), printed.Bytes(), 0o644))
				}
			}
		}
	}
	golden.Assert(t, "real", out.String())
}

func realRelease(t testing.TB, dir string) []*manifest.Manifest {
	t.Helper()
	p, err := payload.Load(os.DirFS(dir), "registry.example/release", payload.Options{Filter: manifest.Filter{Capabilities: manifest.AllCapabilities(nil)}})
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
