package main

import (
	"fmt"
	"html"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/view/nodes"
	"github.com/cluster-version/cvo/test/golden"
)

// TestPictureMatchesTheView checks that the picture in the README matches the view. -update redraws it.
func TestPictureMatchesTheView(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "images", "demo.svg")
	got := svg(render(picture(), at(21.4), 100, 26), 100, 26)
	golden.AssertFile(t, file, got)
}

// picture returns a story in the middle of the example platform's update.
func picture() story {
	s := story{began: epoch(), operators: map[string]configv1.ClusterOperatorStatus{}}
	s.phases = []phase{{to: "1.0.0", began: at(5), ended: at(10), mode: release.Initializing}, {from: "1.0.0", to: "1.1.0", began: at(10.2)}}
	s.notes = []note{
		{at: at(9.9), kind: goodNote, text: "control plane at 1.0.0, nodes handed over to machine-config"},
		{at: at(10), kind: goodNote, text: "installed 1.0.0 in 5.0 s: 182 manifests, signature verified"},
		{at: at(10.2), kind: commandNote, text: `kubectl patch clusterversion version --type merge -p '{"spec":{"desiredUpdate":{"version":"1.1.0",…`},
	}
	s.clusterVersion(clusterVersion("1.0.0", strings.Replace(accepted, "127.0.0.1:41234", "registry.example", 1),
		"Working towards 1.1.0: 189 of 194 done (97% complete), waiting on machine-config", ""), at(20))
	s.operators[api.MachineConfigOperator] = configv1.ClusterOperatorStatus{Conditions: []configv1.ClusterOperatorStatusCondition{
		condition(configv1.OperatorProgressing, configv1.ConditionTrue, "Working towards 1.1.0: 2 of 3 nodes are updated"),
	}}
	// Each argument has the completed manifests of a runlevel.
	levels := func(now float64, first, second, third, fourth, fifth, nodes int, problems ...report.Problem) {
		p := progressOf("1.1.0", release.Updating, problems,
			runlevel(0, component("cluster-version-operator", 30, 30), component("example-config", 1, 1)),
			runlevel(10, component("example-config", first, 9)), runlevel(20, component("example-backup", second, 8)),
			runlevel(30, component("example-dns", third, 15), component("example-network", third, 15)),
			runlevel(40, component("example-identity", fourth, 13)),
			runlevel(50, component("example-autoscaler", fifth, 13), component("example-console", min(fifth, 12), 12), component("example-ingress", fifth, 13),
				component("example-monitoring", fifth, 13), component("example-storage", min(fifth, 12), 12)),
			runlevel(80, component(api.MachineConfigOperator, nodes, 36)),
			runlevel(90, component("cluster-version-operator", 0, 3), component("example-monitoring", 0, 1)))
		s.progress(p, at(now))
	}
	levels(10.5, 0, 0, 0, 0, 0, 0)
	levels(12.1, 9, 0, 0, 0, 0, 0)
	levels(12.5, 9, 8, 0, 0, 0, 0)
	levels(14.6, 9, 8, 15, 0, 0, 0)
	levels(16.6, 9, 8, 15, 13, 0, 0)
	levels(18.9, 9, 8, 15, 13, 13, 0)
	levels(21, 9, 8, 15, 13, 13, 35,
		operatorProblem(api.MachineConfigOperator, 80, gate.Waiting, "Cluster operator machine-config is updating versions", at(20.1)))
	s.pools = []nodes.Pool{
		{Name: api.ControlPlanePool, State: nodes.PoolUpdating, Total: 3, Done: 2, Nodes: []nodes.Node{{Name: "control-2", Phase: nodes.Applying}}},
		{Name: api.WorkerPool, State: nodes.PoolUpdating, Total: 7, Done: 2, Nodes: []nodes.Node{
			{Name: "worker-2", Phase: nodes.Draining}, {Name: "worker-3", Phase: nodes.Draining},
		}},
	}
	return s
}

// svg draws a screen with the few colors of the palette.
func svg(screen string, columns, rows int) string {
	const cell, line, margin = 8.43, 18, 14
	width, height := int(float64(columns)*cell)+2*margin, rows*line+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="The demo in the middle of an update">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#16202a"/>`+"\n", width, height)
	fmt.Fprintln(&b, `<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14" fill="#dbe4ec" xml:space="preserve">`)
	colours := map[string]string{"31": "#f2777a", "32": "#7fc98b", "33": "#e8c468", "35": "#c79bf0", "36": "#6fc7d8", "90": "#6b7b8a"}
	sequence := regexp.MustCompile("\x1b\\[([0-9;]*)m")
	for row, text := range strings.Split(screen, "\n") {
		column, style, at := 0, "", 0
		draw := func(run string) {
			cells := len([]rune(run))
			if strings.TrimSpace(run) != "" {
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" textLength="%.1f" lengthAdjust="spacingAndGlyphs"%s>%s</text>`+"\n",
					margin+float64(column)*cell, margin+line*row+line-4, float64(cells)*cell, style, html.EscapeString(run))
			}
			column += cells
		}
		for _, m := range sequence.FindAllStringSubmatchIndex(text, -1) {
			draw(text[at:m[0]])
			style, at = "", m[1]
			for code := range strings.SplitSeq(text[m[2]:m[3]], ";") {
				if code == "1" {
					style += ` font-weight="bold"`
				} else if colour, ok := colours[code]; ok {
					style += fmt.Sprintf(` fill=%q`, colour)
				}
			}
		}
		draw(text[at:])
	}
	fmt.Fprintln(&b, "</g>\n</svg>")
	return b.String()
}
