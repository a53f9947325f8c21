package report

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/watching"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/pkg/view/insight"
)

func TestUpgradeStatusWatchPrintsOnlyChanges(t *testing.T) {
	assess := func(change func(*insight.Input)) *insight.Assessment {
		in, err := collect.Dump("../../testdata/upgrade-status/nodes" + collect.DumpSuffix)
		require.NoError(t, err)
		change(&in)
		a, err := insight.Assess(in)
		require.NoError(t, err)
		return a
	}
	same := func(*insight.Input) {}
	later := func(in *insight.Input) { in.Now = in.Now.Add(time.Second) }
	fewer := func(in *insight.Input) { in.Nodes = in.Nodes[:1] }
	for _, tt := range []struct {
		name, output string
		terminal     bool
		steps        []func(*insight.Input)
		news         []bool
		want         string
	}{
		{"it writes lines", "", false, []func(*insight.Input){same, same, later, fewer}, []bool{true, false, false, true}, "Z 1.2.0 (from 1.1.0): Progressing, 1 of 2 operators updated"},
		{"it redraws a terminal", "", true, []func(*insight.Input){same, same, fewer}, []bool{true, false, true}, watching.ClearScreen + "= Control Plane =\n"},
		{"it writes one object per line", printing.FormatJSON, false, []func(*insight.Input){same, same, later, fewer}, []bool{true, false, false, true}, `{"at":"`},
		{"it writes documents", printing.FormatYAML, false, []func(*insight.Input){same, same, later, fewer}, []bool{true, false, false, true}, "---\nat: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			o := &statusOptions{output: tt.output}
			show := o.changes(command.Streams{Out: &out, Err: &errs}, tt.terminal)
			for i, step := range tt.steps {
				out.Reset()
				require.NoError(t, show(assess(step)))
				assert.Equal(t, tt.news[i], out.Len() > 0, "step %d: %s", i, &out)
				if tt.news[i] {
					assert.Contains(t, out.String(), tt.want)
				}
			}
		})
	}
}
