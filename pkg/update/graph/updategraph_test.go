package graph_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
)

const always = `{"type":"Always"}`

// riskOf returns a risk as JSON.
func riskOf(name, rules string) string {
	return fmt.Sprintf(`{"url":"https://example.com/%[1]s","name":%[1]q,"message":"about %[1]s","matchingRules":[%[2]s]}`, name, rules)
}

// conditional returns a group of conditional edges from 4.1.0 as JSON.
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

//threat:graph-lies-edges
//threat:risk-no-cluster omits an update with a risk that no cluster can evaluate from both lists
func TestUpdatesSelectsFromTheGraph(t *testing.T) {
	for _, tt := range []struct {
		name, graph string
		query       updategraph.Query
		available   []string
		// conditional contains each target with its risks and the types of their rules
		conditional []string
		leftOut     []string
		reason, err string
	}{
		{
			name:      "sorts by version, not by text",
			graph:     `{` + nodes + `,"edges":[[0,1],[0,3],[0,2],[1,2]]}`,
			available: []string{"4.2.0-rc.1 r@rc", "4.1.10 r@10", "4.1.9 r@9"},
		},
		{name: "lists an update once", graph: `{` + nodes + `,"edges":[[0,1],[0,1]]}`, available: []string{"4.1.9 r@9"}},
		{name: "skips edges to missing nodes", graph: `{` + nodes + `,"edges":[[0,0]],"conditionalEdges":[` + conditional(riskOf("A", always), "4.1.0") + `]}`},
		{name: "treats null as empty", graph: `{` + nodes + `,"edges":null,"conditionalEdges":null}`},
		{name: "ignores unknown fields", graph: `{"version":1,"x":{"a":[{}]},` + nodes + `,"edges":[]}`},
		{
			name: "compares versions by precedence", query: updategraph.Query{Version: "4.1.0+build"},
			graph: `{` + nodes + `,"edges":[[0,1]]}`, available: []string{"4.1.9 r@9"},
		},
		{
			name:   "reports a version that is not in the graph",
			query:  updategraph.Query{Version: "4.1.1", Channel: "stable"},
			graph:  `{` + nodes + `}`,
			reason: "VersionNotFound", err: `currently reconciling cluster version 4.1.1 not found in the "stable" channel`,
		},
		{name: "refuses an invalid version", query: updategraph.Query{Version: "x"}, graph: `{` + nodes + `}`, reason: "InvalidRequest", err: `version "x"`},
		{
			name: "offers only the same version for a migration to multiple architectures", query: updategraph.Query{Migrate: true},
			graph: `{` + nodes + `,"edges":[[0,1]]}`, available: []string{"4.1.0 r@0 Multi"},
		},
		{
			name:        "lists updates in both lists as conditional only",
			graph:       `{` + nodes + `,"edges":[[0,1],[0,2]],"conditionalEdges":[` + conditional(riskOf("A", always), "4.1.10", "4.2.0-rc.1") + `]}`,
			available:   []string{"4.1.9 r@9"},
			conditional: []string{"4.2.0-rc.1 A[Always]", "4.1.10 A[Always]"},
		},
		{
			name: "drops rules that no cluster can evaluate",
			graph: `{` + nodes + `,"conditionalEdges":[` + conditional(riskOf("A", `{"type":"Moon"},{"type":"PromQL"},{"type":"PromQL","promql":{"promql":""}},{"type":"Always","promql":{"promql":"up"}},{"type":"PromQL","promql":{"promql":"up"}}`),
				"4.1.9") + `]}`,
			conditional: []string{"4.1.9 A[PromQL]"},
		},
		{
			name:        "omits an update with a risk that no cluster can evaluate from both lists",
			graph:       `{` + nodes + `,"edges":[[0,1]],"conditionalEdges":[` + conditional(riskOf("A", always)+","+riskOf("B", `{"type":"Moon"}`), "4.1.9") + `]}`,
			conditional: nil,
			leftOut:     []string{`4.1.9: risk "B" needs 1 to 20 rules that this cluster can evaluate, but has 0`},
		},
		{
			name:    "omits duplicate conditional updates from both lists",
			graph:   `{` + nodes + `,"edges":[[0,1]],"conditionalEdges":[` + conditional(riskOf("A", always), "4.1.9") + `,` + conditional(riskOf("B", always), "4.1.9") + `]}`,
			leftOut: []string{`4.1.9: listed as a conditional update 2 times`},
		},
		{
			name:        "merges equal risks",
			graph:       `{` + nodes + `,"conditionalEdges":[` + conditional(riskOf("A", always)+","+riskOf("A", always), "4.1.9") + `]}`,
			conditional: []string{"4.1.9 A[Always]"},
		},
		{
			name:    "omits an update with two risks of the same name",
			graph:   `{` + nodes + `,"conditionalEdges":[` + conditional(riskOf("A", always)+","+riskOf("A", `{"type":"PromQL","promql":{"promql":"up"}}`), "4.1.9") + `]}`,
			leftOut: []string{`4.1.9: two different risks have the name "A"`},
		},
		{
			name: "omits updates that a ClusterVersion cannot hold",
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
				`4.1.4: conditional, but without risks`, `4.1.5: no image`, `4.1.6: architecture "vax" is neither empty nor multi`,
				`x: "x" is not a semantic version`,
			},
		},
		{name: "refuses an edge beyond the nodes", graph: `{` + nodes + `,"edges":[[0,4]]}`, reason: "ResponseInvalid", err: "edges[0] refers to node 4, but there are 4 nodes"},
		{name: "refuses an edge before the nodes", graph: `{` + nodes + `,"edges":[[-1,0]]}`, reason: "ResponseInvalid", err: "edges[0] refers to node -1, but there are 4 nodes"},
		{name: "refuses an edge with one end", graph: `{` + nodes + `,"edges":[[0]]}`, reason: "ResponseInvalid", err: "edges[0]: an edge needs two ends, not 1"},
		{name: "refuses an edge of strings", graph: `{` + nodes + `,"edges":[["a","b"]]}`, reason: "ResponseInvalid", err: "edges[0]: json: cannot unmarshal string"},
		{
			name:   "refuses a conditional update to a missing node",
			graph:  `{` + nodes + `,"conditionalEdges":[` + conditional(riskOf("A", always), "4.9.9") + `]}`,
			reason: "ResponseInvalid", err: "no node for the conditional update to 4.9.9",
		},
		{name: "refuses a list", graph: `[]`, reason: "ResponseInvalid", err: `not a JSON object`},
		{name: "refuses an empty response", graph: ``, reason: "ResponseInvalid", err: "unexpected EOF"},
		{name: "refuses an incomplete response", graph: `{` + nodes, reason: "ResponseInvalid", err: "unexpected EOF"},
		{name: "refuses two graphs", graph: `{` + nodes + `}{}`, reason: "ResponseInvalid", err: "more data follows the graph"},
		{name: "refuses nodes twice", graph: `{` + nodes + `,` + nodes + `}`, reason: "ResponseInvalid", err: "nodes is listed twice"},
		{name: "refuses nodes that are not a list", graph: `{"nodes":{}}`, reason: "ResponseInvalid", err: "nodes is not a list"},
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

func TestCurrentReleaseHasItsMetadata(t *testing.T) {
	updates, err := updatesOf(`{`+nodes+`}`, updategraph.Query{Version: "4.1.0"})
	require.NoError(t, err)
	assert.Equal(t, configv1.Release{Version: "4.1.0", Image: "r@0", URL: "https://example.com/0", Channels: []string{"candidate", "stable"}}, updates.Current)
}

func TestGraphSurvivesMarshallingUnchanged(t *testing.T) {
	text := `{"nodes":[{"version":"4.1.0","payload":"r@0","metadata":{"url":"u"}},{"version":"4.1.1","payload":"r@1"}],"edges":[[0,1]],"conditionalEdges":[` + conditional(riskOf("A", always), "4.1.1") + `]}`
	graph, err := updategraph.Parse(strings.NewReader(text))
	require.NoError(t, err)
	data, err := json.Marshal(graph)
	require.NoError(t, err)
	assert.JSONEq(t, text, string(data))
}

// TestUpdatesKeepsTheNearestOfManyUpdates offers more updates to a cluster at 4.1.0 than a ClusterVersion can contain.
func TestUpdatesKeepsTheNearestOfManyUpdates(t *testing.T) {
	for _, test := range []struct {
		name string
		// patches contains the number of releases for each minor version, starting with 4.1.
		patches  []int
		kept     []string
		dropped  []string
		ofMinors []int
	}{
		{"it keeps all next patch releases", []int{200, 400, 400}, []string{"4.1.1", "4.1.200", "4.2.400", "4.2.251", "4.3.400", "4.3.251"}, []string{"4.2.250", "4.3.250"}, []int{200, 150, 150}},
		{"it keeps the newest of every minor version", []int{300, 1, 2, 600}, []string{"4.1.1", "4.1.250", "4.1.300", "4.2.1", "4.3.2", "4.3.1", "4.4.600"}, nil, []int{300, 1, 2, 197}},
		{"it keeps the nearest and the newest of one minor version", []int{600}, []string{"4.1.1", "4.1.250", "4.1.351", "4.1.600"}, []string{"4.1.251", "4.1.350"}, []int{500}},
		{"it keeps the newest of many minor versions", slices.Repeat([]int{3}, 300), []string{"4.1.1", "4.1.2", "4.1.3", "4.2.3", "4.300.3"}, []string{"4.300.1"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			nodes, edges := []string{`{"version":"4.1.0","payload":"r"}`}, []string{}
			var groups []string
			for minor, patches := range test.patches {
				for patch := 1; patch <= patches; patch++ {
					edges = append(edges, fmt.Sprintf("[0,%d]", len(nodes)))
					version := fmt.Sprintf("4.%d.%d", minor+1, patch)
					groups = append(groups, conditional(riskOf("A", always), version))
					nodes = append(nodes, fmt.Sprintf(`{"version":%q,"payload":"r@%s"}`, version, version))
				}
			}
			all := `{"nodes":[` + strings.Join(nodes, ",") + `],`
			available, err := updatesOf(all+`"edges":[`+strings.Join(edges, ",")+`]}`, updategraph.Query{Version: "4.1.0"})
			require.NoError(t, err)
			conditional, err := updatesOf(all+`"edges":[],"conditionalEdges":[`+strings.Join(groups, ",")+`]}`, updategraph.Query{Version: "4.1.0"})
			require.NoError(t, err)
			var versions, conditionals []string
			for _, r := range available.Available {
				versions = append(versions, r.Version)
			}
			for _, c := range conditional.Conditional {
				conditionals = append(conditionals, c.Release.Version)
			}
			require.Len(t, versions, 500)
			assert.Equal(t, versions, conditionals)
			assert.True(t, slices.IsSortedFunc(available.Available, release.NewestFirst))
			assert.Subset(t, versions, test.kept)
			for _, version := range test.dropped {
				assert.NotContains(t, versions, version)
			}
			for minor, want := range test.ofMinors {
				prefix := fmt.Sprintf("4.%d.", minor+1)
				assert.Len(t, slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return !strings.HasPrefix(v, prefix) }), want, prefix)
			}
		})
	}
}

// TestUpdatesFitIntoTheClusterVersion checks that the number of updates and the text about omitted ones fit into a ClusterVersion.
//
//threat:graph-lies-edges
func TestUpdatesFitIntoTheClusterVersion(t *testing.T) {
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
