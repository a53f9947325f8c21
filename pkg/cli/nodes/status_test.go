package nodes

import (
	"bytes"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/watching"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

func TestStatusWatchPrintsOnlyChanges(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	status := func(after time.Duration, config string) *nodes.Status {
		p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"worker": ""}}
		p.Spec.Configuration.Name = "rendered-worker-1"
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"worker": ""}, Annotations: map[string]string{
			api.CurrentConfigAnnotation: config, api.DesiredConfigAnnotation: config, api.NodeStateAnnotation: api.NodeDone,
		}}}
		s, err := nodes.NewStatus(nodes.Cluster{At: start.Add(after), Pools: []*mcfgv1.MachineConfigPool{p}, Nodes: []*corev1.Node{n}}, "")
		require.NoError(t, err)
		return s
	}
	for _, tt := range []struct {
		name, output string
		terminal     bool
		want         string
	}{
		{"it writes lines", "", false, "2026-03-01T12:00:02Z worker: Updated, 1 of 1 nodes done\n"},
		{"it redraws a terminal", "", true, watching.ClearScreen + "POOL "},
		{"it writes one object per line", printing.FormatJSON, false, `{"at":"2026-03-01T12:00:02Z",`},
		{"it writes documents", printing.FormatYAML, false, "---\nat: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			o := &statusOptions{flags: flags{output: tt.output}}
			show := o.changes(command.Streams{Out: &out}, tt.terminal)
			require.NoError(t, show(status(0, "rendered-worker-0")))
			out.Reset()
			require.NoError(t, show(status(time.Second, "rendered-worker-0")))
			assert.Empty(t, out.String(), "time alone is not a change")
			require.NoError(t, show(status(2*time.Second, "rendered-worker-1")))
			assert.Contains(t, out.String(), tt.want)
		})
	}
}
