package drawing_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/graph/encoding/dot"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/cluster-version/cvo/pkg/engine/drawing"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/graphs"
	"github.com/cluster-version/cvo/test/golden"
)

type printer struct {
	name  string
	write func(io.Writer, *taskgraph.Graph) error
}

var printers = []printer{
	{"text", drawing.WriteText}, {"dot", drawing.WriteDOT}, {"svg", drawing.WriteSVG}, {"json", writeJSON},
}

func writeJSON(w io.Writer, g *taskgraph.Graph) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(drawing.NewDocument(g))
}

func TestPrintMatchesTheGoldenFiles(t *testing.T) {
	for _, mode := range release.Modes() {
		for _, p := range printers {
			t.Run(string(mode)+" "+p.name, func(t *testing.T) {
				g := build(t, mode, graphs.Platform()...)
				var first, second bytes.Buffer
				require.NoError(t, p.write(&first, g))
				require.NoError(t, p.write(&second, build(t, mode, graphs.Platform()...)))
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

// TestPrintEscapesHostileNames checks names from a release, which may contain anything.
func TestPrintEscapesHostileNames(t *testing.T) {
	name := "\"]; <script>&'\x1b[31m\\N\nx"
	m := graphs.Object("50/a/00", "v1 Service x")
	m.Object.SetName(name)
	m.Component, m.File = name, name
	n := graphs.CRD("70/b/00", "Widget.example.com")
	n.Component = name
	for _, mode := range release.Modes() {
		g := build(t, mode, m, n, graphs.Object("05/a/00", "example.com/v1 Widget w"))
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
		var d drawing.Document
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

func build(t testing.TB, mode release.Mode, manifests ...*manifest.Manifest) *taskgraph.Graph {
	t.Helper()
	g, err := taskgraph.Build(manifests, mode)
	require.NoError(t, err)
	return g
}

// TestRealReleasesAreDrawn draws real releases. Set CVO_GRAPHS to a folder to keep the drawings.
func TestRealReleasesAreDrawn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, version := range []string{"4.22.9", "4.23.0"} {
		files := os.DirFS(filepath.Join(fixture.Testdata(t), "payloads", version))
		loaded, err := payload.Load(files, "registry.example/release", payload.Options{Filter: inclusion.Filter{Capabilities: inclusion.AllCapabilities(nil)}})
		require.NoError(t, err)
		for _, mode := range release.Modes() {
			g := build(t, mode, loaded.Manifests...)
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
}
