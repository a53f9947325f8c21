package updategraph_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/updategraph"
)

const always = `{"type":"Always"}`

// riskOf is a risk on the wire.
func riskOf(name, rules string) string {
	return fmt.Sprintf(`{"url":"https://example.com/%[1]s","name":%[1]q,"message":"about %[1]s","matchingRules":[%[2]s]}`, name, rules)
}

// conditional is a group of conditional edges from 4.1.0.
func conditional(risks string, to ...string) string {
	edges := make([]string, len(to))
	for i, version := range to {
		edges[i] = fmt.Sprintf(`{"from":"4.1.0","to":%q}`, version)
	}
	return fmt.Sprintf(`{"edges":[%s],"risks":[%s]}`, strings.Join(edges, ","), risks)
}

const nodes = `"nodes":[
	{"version":"4.1.0","payload":"r@0","metadata":{"url":"https://example.com/0","io.openshift.upgrades.graph.release.channels":"stable,candidate,stable"}},
	{"version":"4.1.9","payload":"r@9"},{"version":"4.1.10","payload":"r@10"},{"version":"4.2.0-rc.1","payload":"r@rc"}]`

func TestUpdates(t *testing.T) {
	for _, tt := range []struct {
		name, graph string
		query       updategraph.Query
		available   []string
		// conditional is each target with its risks and the types of their rules
		conditional []string
		leftOut     []string
		reason, err string
	}{
		{
			name:      "sorts by version, not by text",
			graph:     `{` + nodes + `,"edges":[[0,1],[0,3],[0,2],[1,2]]}`,
			available: []string{"4.2.0-rc.1 r@rc", "4.1.10 r@10", "4.1.9 r@9"},
		},
		{name: "tells an update once", graph: `{` + nodes + `,"edges":[[0,1],[0,1]]}`, available: []string{"4.1.9 r@9"}},
		{name: "passes over what leads nowhere", graph: `{` + nodes + `,"edges":[[0,0]],"conditionalEdges":[` + conditional(riskOf("A", always), "4.1.0") + `]}`},
		{name: "reads null as nothing", graph: `{` + nodes + `,"edges":null,"conditionalEdges":null}`},
		{name: "passes over what it does not know", graph: `{"version":1,"x":{"a":[{}]},` + nodes + `,"edges":[]}`},
		{
			name: "finds the version by what it means", query: updategraph.Query{Version: "4.1.0+build"},
			graph: `{` + nodes + `,"edges":[[0,1]]}`, available: []string{"4.1.9 r@9"},
		},
		{
			name:   "does not find a version",
			query:  updategraph.Query{Version: "4.1.1", Channel: "stable"},
			graph:  `{` + nodes + `}`,
			reason: "VersionNotFound", err: `currently reconciling cluster version 4.1.1 not found in the "stable" channel`,
		},
		{name: "refuses a version that is none", query: updategraph.Query{Version: "x"}, graph: `{` + nodes + `}`, reason: "InvalidRequest", err: `version "x"`},
		{
			name: "has only the same version on the way to many architectures", query: updategraph.Query{Migrate: true},
			graph: `{` + nodes + `,"edges":[[0,1]]}`, available: []string{"4.1.0 r@0 Multi"},
		},
		{
			name:        "keeps to conditional what is in both lists",
			graph:       `{` + nodes + `,"edges":[[0,1],[0,2]],"conditionalEdges":[` + conditional(riskOf("A", always), "4.1.10", "4.2.0-rc.1") + `]}`,
			available:   []string{"4.1.9 r@9"},
			conditional: []string{"4.2.0-rc.1 A[Always]", "4.1.10 A[Always]"},
		},
		{
			name: "prunes rules that no cluster can evaluate",
			graph: `{` + nodes + `,"conditionalEdges":[` + conditional(riskOf("A", `{"type":"Moon"},{"type":"PromQL"},{"type":"PromQL","promql":{"promql":""}},{"type":"Always","promql":{"promql":"up"}},{"type":"PromQL","promql":{"promql":"up"}}`),
				"4.1.9") + `]}`,
			conditional: []string{"4.1.9 A[PromQL]"},
		},
		{
			name:        "leaves out an update with a risk that nobody could judge, from both lists",
			graph:       `{` + nodes + `,"edges":[[0,1]],"conditionalEdges":[` + conditional(riskOf("A", always)+","+riskOf("B", `{"type":"Moon"}`), "4.1.9") + `]}`,
			conditional: nil,
			leftOut:     []string{`4.1.9: risk "B" has 0 rules that this cluster can evaluate, not 1 to 20`},
		},
		{
			name:    "leaves out what is conditional twice, from both lists",
			graph:   `{` + nodes + `,"edges":[[0,1]],"conditionalEdges":[` + conditional(riskOf("A", always), "4.1.9") + `,` + conditional(riskOf("B", always), "4.1.9") + `]}`,
			leftOut: []string{`4.1.9: it is a conditional update 2 times`},
		},
		{
			name:        "takes the same risk once",
			graph:       `{` + nodes + `,"conditionalEdges":[` + conditional(riskOf("A", always)+","+riskOf("A", always), "4.1.9") + `]}`,
			conditional: []string{"4.1.9 A[Always]"},
		},
		{
			name:    "leaves out what has two risks of one name",
			graph:   `{` + nodes + `,"conditionalEdges":[` + conditional(riskOf("A", always)+","+riskOf("A", `{"type":"PromQL","promql":{"promql":"up"}}`), "4.1.9") + `]}`,
			leftOut: []string{`4.1.9: it has two different risks "A"`},
		},
		{
			name: "leaves out what a ClusterVersion cannot hold",
			graph: `{"nodes":[{"version":"4.1.0","payload":"r@0"},{"version":"4.1.1","payload":"r@1"},{"version":"4.1.2","payload":"r@2"},{"version":"4.1.3","payload":"r@3"},
				{"version":"4.1.4","payload":"r@4"},{"version":"4.1.5"},{"version":"x","payload":"r@x"},{"version":"4.1.6","payload":"r@6","metadata":{"release.openshift.io/architecture":"vax"}}],
				"edges":[[0,5],[0,6],[0,7]],"conditionalEdges":[` + strings.Join([]string{
				conditional(`{"url":"https://example.com","name":"","message":"m","matchingRules":[`+always+`]}`, "4.1.1"),
				conditional(`{"url":"https://example.com","name":"A","message":"","matchingRules":[`+always+`]}`, "4.1.2"),
				conditional(`{"url":"no url","name":"A","message":"m","matchingRules":[`+always+`]}`, "4.1.3"),
				conditional("", "4.1.4"),
			}, ",") + `]}`,
			leftOut: []string{
				`4.1.1: risk "" has no name or no message`, `4.1.2: risk "A" has no name or no message`, `4.1.3: risk "A" has no valid URL`,
				`4.1.4: it is conditional, and has no risks`, `4.1.5: it has no image`, `4.1.6: its architecture is "vax", which is neither multi nor left out`,
				`x: "x" is no semantic version`,
			},
		},
		{name: "refuses an edge beyond the nodes", graph: `{` + nodes + `,"edges":[[0,4]]}`, reason: "ResponseInvalid", err: "edges[0] names node 4, and there are 4"},
		{name: "refuses an edge before the nodes", graph: `{` + nodes + `,"edges":[[-1,0]]}`, reason: "ResponseInvalid", err: "edges[0] names node -1, and there are 4"},
		{name: "refuses an edge of one end", graph: `{` + nodes + `,"edges":[[0]]}`, reason: "ResponseInvalid", err: "edges[0]: an edge has two ends, not 1"},
		{name: "refuses an edge of words", graph: `{` + nodes + `,"edges":[["a","b"]]}`, reason: "ResponseInvalid", err: "edges[0]: json: cannot unmarshal string"},
		{
			name:   "refuses a conditional update to what is not there",
			graph:  `{` + nodes + `,"conditionalEdges":[` + conditional(riskOf("A", always), "4.9.9") + `]}`,
			reason: "ResponseInvalid", err: "there is no node for the conditional update to 4.9.9",
		},
		{name: "refuses a list", graph: `[]`, reason: "ResponseInvalid", err: `it is no JSON object`},
		{name: "refuses nothing", graph: ``, reason: "ResponseInvalid", err: "unexpected EOF"},
		{name: "refuses half an answer", graph: `{` + nodes, reason: "ResponseInvalid", err: "unexpected EOF"},
		{name: "refuses two answers", graph: `{` + nodes + `}{}`, reason: "ResponseInvalid", err: "something follows the graph"},
		{name: "refuses nodes twice", graph: `{` + nodes + `,` + nodes + `}`, reason: "ResponseInvalid", err: "it has nodes twice"},
		{name: "refuses nodes that are no list", graph: `{"nodes":{}}`, reason: "ResponseInvalid", err: "nodes is no list"},
		{name: "refuses a byte order mark", graph: "\xef\xbb\xbf{}", reason: "ResponseInvalid", err: "invalid character"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			if tt.query.Version == "" {
				tt.query.Version = "4.1.0"
			}
			updates, err := updatesOf(tt.graph, tt.query)
			if tt.reason != "" {
				refused := &updategraph.Error{}
				require.ErrorAs(t, err, &refused)
				assert.Equal(t, tt.reason, refused.Reason)
				assert.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.available, available(updates))
			assert.Equal(t, tt.conditional, conditionals(updates))
			assert.Equal(t, tt.leftOut, updates.LeftOut)
		})
	}
}

func updatesOf(graph string, q updategraph.Query) (updategraph.Updates, error) {
	g, err := updategraph.Parse(strings.NewReader(graph))
	if err != nil {
		return updategraph.Updates{}, err
	}
	return g.Updates(q)
}

func available(updates updategraph.Updates) []string {
	var out []string
	for _, r := range updates.Available {
		out = append(out, strings.TrimSpace(r.Version+" "+r.Image+" "+string(r.Architecture)))
	}
	return out
}

func conditionals(updates updategraph.Updates) []string {
	var out []string
	for _, u := range updates.Conditional {
		text := u.Release.Version
		for _, risk := range u.Risks {
			var types []string
			for _, rule := range risk.MatchingRules {
				types = append(types, rule.Type)
			}
			text += fmt.Sprintf(" %s%v", risk.Name, types)
		}
		out = append(out, text)
	}
	return out
}

func TestCurrentRelease(t *testing.T) {
	updates, err := updatesOf(`{`+nodes+`}`, updategraph.Query{Version: "4.1.0"})
	require.NoError(t, err)
	assert.Equal(t, configv1.Release{Version: "4.1.0", Image: "r@0", URL: "https://example.com/0", Channels: []string{"candidate", "stable"}}, updates.Current)
}

func TestGraphSurvivesTheWire(t *testing.T) {
	text := `{"nodes":[{"version":"4.1.0","payload":"r@0","metadata":{"url":"u"}},{"version":"4.1.1","payload":"r@1"}],"edges":[[0,1]],"conditionalEdges":[` + conditional(riskOf("A", always), "4.1.1") + `]}`
	graph, err := updategraph.Parse(strings.NewReader(text))
	require.NoError(t, err)
	data, err := json.Marshal(graph)
	require.NoError(t, err)
	assert.JSONEq(t, text, string(data))
}

// TestManyUpdates holds the number of updates, and of what is told of those left out, to what a ClusterVersion can hold.
func TestManyUpdates(t *testing.T) {
	var nodes, edges, groups []string
	nodes = append(nodes, `{"version":"4.1.0","payload":"r@0"}`)
	for i := 1; i <= 1600; i++ {
		version := fmt.Sprintf("4.1.%d", i)
		nodes = append(nodes, fmt.Sprintf(`{"version":%q,"payload":"r@%d"}`, version, i))
		switch {
		case i <= 600:
			edges = append(edges, fmt.Sprintf("[0,%d]", i))
		case i <= 1200:
			groups = append(groups, conditional(riskOf("A", always), version))
		default:
			groups = append(groups, conditional("", version))
		}
	}
	updates, err := updatesOf(`{"nodes":[`+strings.Join(nodes, ",")+`],"edges":[`+strings.Join(edges, ",")+`],"conditionalEdges":[`+strings.Join(groups, ",")+`]}`, updategraph.Query{Version: "4.1.0"})
	require.NoError(t, err)
	require.Len(t, updates.Available, 500)
	assert.Equal(t, "4.1.600", updates.Available[0].Version)
	require.Len(t, updates.Conditional, 500)
	assert.Equal(t, "4.1.1200", updates.Conditional[0].Release.Version)
	require.Len(t, updates.LeftOut, 21)
	assert.Equal(t, "and 382 more", updates.LeftOut[20])
}
