package graph_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
	"github.com/cluster-version/cvo/test/fixture"
)

// endless is a reader of a start, followed by the same text forever.
type endless struct{ start, again string }

func (e *endless) Read(buf []byte) (int, error) {
	if e.start == "" {
		e.start = e.again
	}
	n := copy(buf, e.start)
	e.start = e.start[n:]
	return n, nil
}

//threat:answers-never-end
func TestHostileGraphsAreReadWithinBounds(t *testing.T) {
	chunk := func(s string) string { return strings.Repeat(s, 1000) }
	for _, tt := range []struct {
		name, start, again, want string
	}{
		{"nodes without end", `{"nodes":[`, `{},`, "more than 20000 nodes"},
		{"a node without end", `{"nodes":[{"version":"`, `x`, "nodes[0]: an element is longer than 1048576 bytes"},
		{"metadata without end", `{"nodes":[{"metadata":{`, `"a":"b",`, "nodes[0]: an element is longer than 1048576 bytes"},
		{"edges without end", `{"edges":[`, `[0,1],`, "more than 200000 edges"},
		{"an edge without end", `{"edges":[[`, `0,`, "edges[0]: an element is longer than 1048576 bytes"},
		{"groups without end", `{"conditionalEdges":[`, `{},`, "more than 20000 groups of conditional edges"},
		{"conditional edges without end", `{"conditionalEdges":[`, `{"edges":[` + chunk(`{},`) + `{}]},`, "more than 200000 conditional edges"},
		{"risks without end", `{"conditionalEdges":[`, `{"risks":[` + chunk(`{},`) + `{}]},`, "more than 50000 risks"},
		{"a group of risks without end", `{"conditionalEdges":[{"risks":[`, `{},`, "conditionalEdges[0]: an element is longer than 1048576 bytes"},
		{"spaces without end", ``, ` `, "an element is longer than 1048576 bytes"},
		{"spaces without end in a list", `{"nodes":[`, " ", "an element is longer than 1048576 bytes"},
		{"spaces without end after the graph", `{}`, "\n", "more data follows the graph"},
		{"keys without end", `{`, `"a":0,`, "more than 1000 keys"},
		{"a response without end", `{`, `"a":"` + strings.Repeat("a", 900_000) + `",`, "the response is longer than 33554432 bytes"},
		{"a key without end", `{"`, `a`, "an element is longer than 1048576 bytes"},
		{"an unknown field without end", `{"x":[`, `0,`, "an element is longer than 1048576 bytes"},
		{"deep nesting", `{"x":`, `[`, "exceeded max depth"},
		{"deep nesting in a node", `{"nodes":[`, `{"a":`, "exceeded max depth"},
		{"NUL bytes", ``, "\x00", "invalid character"},
		{"bytes that are not UTF-8", `{"`, "\xff", "an element is longer than 1048576 bytes"},
	} {
		t.Run("it survives "+tt.name, func(t *testing.T) {
			again := strings.Repeat(tt.again, 1+64<<10/len(tt.again))
			fixture.Bounded(t, func() {
				_, err := updategraph.Parse(&endless{tt.start, again})
				refused := &updategraph.Error{}
				require.ErrorAs(t, err, &refused)
				assert.Equal(t, "ResponseInvalid", refused.Reason)
				require.ErrorContains(t, err, tt.want)
				assert.Less(t, len(err.Error()), 1000)
			})
		})
	}
}

// TestSelectionFromTheWorstGraphsIsFast selects updates from the worst graphs within the size limits.
//
//threat:graph-lies-edges
func TestSelectionFromTheWorstGraphsIsFast(t *testing.T) {
	version := `{"version":"1.0.0","payload":"a"},`
	for name, graph := range map[string]string{
		"many nodes with one version":                     `{"nodes":[` + strings.Repeat(version, 19_999) + version[:len(version)-1] + `],"edges":[` + strings.Repeat(`[0,19999],`, 199_000) + `[0,1]]}`,
		"one conditional update a hundred thousand times": `{"nodes":[` + version + `{"version":"1.0.1","payload":"b"}],"conditionalEdges":[` + strings.Repeat(`{"edges":[`+strings.Repeat(`{"from":"1.0.0","to":"1.0.1"},`, 9)+`{"from":"1.0.0","to":"1.0.1"}],"risks":[{},{}]},`, 15_000) + `{}]}`,
	} {
		t.Run("it survives "+name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				updates, err := updatesOf(graph, updategraph.Query{Version: "1.0.0"})
				require.NoError(t, err)
				assert.LessOrEqual(t, len(updates.Available), 1)
				assert.Empty(t, updates.Conditional)
			})
		})
	}
}

// TestCompressionBombIsRejected uses a response that becomes a thousand times as long when decompressed.
//
//threat:answers-never-end
func TestCompressionBombIsRejected(t *testing.T) {
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	_, err := io.CopyN(packed, &endless{`{"x":"`, strings.Repeat("a", 64<<10)}, 512<<20)
	require.NoError(t, err)
	require.NoError(t, packed.Close())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	}))
	defer server.Close()
	client := &updategraph.Client{HTTP: server.Client()}
	fixture.Bounded(t, func() {
		_, err := client.Ask(t.Context(), updategraph.Query{Service: server.URL, Version: "1.0.0"}, updategraph.Answer{})
		require.ErrorContains(t, err, "an element is longer than")
	})
}

// FuzzParse parses arbitrary responses of an update service. The updates must be sorted, be in only one of the two lists, and fit into a
// ClusterVersion.
//
//threat:answers-update-service
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"nodes":[{"version":"1.0.0","payload":"a"},{"version":"1.1.0","payload":"b"}],"edges":[[0,1]]}`,
		`{"nodes":[{"version":"1.0.0","payload":"a"}],"edges":[[0,7],[-1,0]]}`,
		`{"nodes":[{"version":"1.0.0","payload":"a","metadata":{"io.openshift.upgrades.graph.release.channels":"b,,a,b","release.openshift.io/architecture":"multi","url":"%"}}],"edges":[[0,0,0]]}`,
		`{"nodes":[{"version":"1.0.0","payload":"a"},{"version":"1.1.0","payload":"b"}],"conditionalEdges":[{"edges":[{"from":"1.0.0","to":"1.1.0"}],"risks":[{"name":"A","message":"m","url":"https://x","matchingRules":[{"type":"Always"}]}]}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, migrate := range []bool{false, true} {
			updates, err := updatesOf(string(data), updategraph.Query{Version: "1.0.0", Migrate: migrate})
			if err != nil {
				refused := &updategraph.Error{}
				require.ErrorAs(t, err, &refused)
				return
			}
			images := map[string]bool{}
			for i, r := range updates.Available {
				images[r.Image] = true
				assert.NotEmpty(t, r.Image)
				assert.True(t, i == 0 || release.NewestFirst(updates.Available[i-1], r) <= 0)
			}
			for _, u := range updates.Conditional {
				assert.False(t, images[u.Release.Image])
				assert.NotEmpty(t, u.Risks)
				for _, risk := range u.Risks {
					assert.NotEmpty(t, risk.MatchingRules)
					assert.NotEmpty(t, risk.URL)
				}
			}
			_, err = json.Marshal(updates)
			require.NoError(t, err)
		}
	})
}
