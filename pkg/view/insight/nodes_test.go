package insight_test

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/view/insight"
)

// annotated returns a node with annotations of its machine config daemon, given as pairs without the prefix.
func annotated(pairs ...string) corev1.Node {
	n := node("node-name", "worker", 0)
	for i := 0; i < len(pairs); i += 2 {
		n.Annotations["machineconfiguration.openshift.io/"+pairs[i]] = pairs[i+1]
	}
	return n
}

func TestNodesReportTheirPhase(t *testing.T) {
	const drain, other = "drain-new", "uncordon-new"
	moves := func(pairs ...string) corev1.Node {
		return annotated(append([]string{"desiredConfig", "new"}, pairs...)...)
	}
	paused := func(in *insight.Input) { in.Pools[0].Spec.Paused = true }
	// toOtherArchitecture keeps the version and changes only configurations.
	toOtherArchitecture := func(in *insight.Input) {
		in.ClusterVersion.Status.History[1].Version = "1.2.0"
		in.Releases["old"] = "1.2.0"
	}
	for _, tt := range []struct {
		name   string
		node   corev1.Node
		change func(*insight.Input)
		want   []string // state, phase, version, estimate, message
	}{
		{"it waits for its turn", annotated(), nil, []string{"Outdated", "Pending", "1.1.0", "?", ""}},
		{"it is excluded by a pause", annotated(), paused, []string{"Excluded", "Paused", "1.1.0", "-", ""}},
		{"it updates although the pool is paused now", moves("state", "Working"), paused, []string{"Progressing", "Updating", "1.1.0", "+5m", ""}},
		{"it has not started, and no drain is requested", moves(), nil, []string{"Completed", "Updated", "1.1.0", "-", ""}},
		{"it will be drained when its daemon notices the update", moves("desiredDrain", other, "lastAppliedDrain", other), nil, []string{"Progressing", "Draining", "1.1.0", "+10m", ""}},
		{"it drains", moves("state", "Working", "desiredDrain", drain, "lastAppliedDrain", other), nil, []string{"Progressing", "Draining", "1.1.0", "+10m", ""}},
		{"it has drained", moves("state", "Working", "desiredDrain", drain, "lastAppliedDrain", drain), nil, []string{"Progressing", "Updating", "1.1.0", "+5m", ""}},
		{"it is uncordoned", moves("state", "Working", "desiredDrain", other, "lastAppliedDrain", drain), nil, []string{"Progressing", "Updating", "1.1.0", "+5m", ""}},
		{"it was never drained", moves("state", "Working", "desiredDrain", drain), nil, []string{"Progressing", "Updating", "1.1.0", "+5m", ""}},
		{"it restarts", moves("state", "Rebooting"), nil, []string{"Progressing", "Rebooting", "1.1.0", "+5m", ""}},
		{"it does not report its state", moves("state", ""), nil, []string{"Progressing", "Updating", "1.1.0", "+5m", ""}},
		{"it is updated", annotated("currentConfig", "new", "desiredConfig", "new"), nil, []string{"Completed", "Updated", "1.2.0", "-", ""}},
		{"it is updated and applies another configuration", annotated("currentConfig", "new", "desiredConfig", "old", "state", "Working"), nil, []string{"Unavailable", "Updated", "1.2.0", "-", "Machine Config Daemon is processing the node"}},
		{"it changes to a configuration that the pool no longer requests", annotated("desiredConfig", "newer"), nil, []string{"Unavailable", "Pending", "1.1.0", "?", "Machine Config Daemon is processing the node"}},
		{"it is degraded during the update", moves("state", "Degraded", "reason", "node-name has no disk"), nil, []string{"Degraded", "Updating", "1.1.0", "?", "<node> has no disk"}},
		{"it cannot be reconciled", annotated("state", "Unreconcilable", "reason", "why"), nil, []string{"Degraded", "Pending", "1.1.0", "?", "why"}},
		{"it builds its image on the cluster", annotated("desiredImage", "b", "currentImage", "a", "state", "Working"), nil, []string{"Outdated", "Pending", "1.1.0", "?", ""}},
		{"it runs a configuration of an unknown release", annotated("currentConfig", "lost"), nil, []string{"Unavailable", "Pending", "", "?", "Machine Config Daemon is processing the node"}},
		{"it has no annotations", corev1.Node{}, nil, []string{"Unavailable", "Pending", "", "?", "Machine Config Daemon is processing the node"}},
		{"it changes to another architecture", moves("state", "Working"), toOtherArchitecture, []string{"Progressing", "Updating", "1.2.0", "+5m", ""}},
		{"it waits for another architecture", annotated(), toOtherArchitecture, []string{"Outdated", "Pending", "1.2.0", "?", ""}},
		{"it has reached the other architecture", annotated("currentConfig", "new", "desiredConfig", "new"), toOtherArchitecture, []string{"Completed", "Updated", "1.2.0", "-", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
			in.Pools = []mcfgv1.MachineConfigPool{pool("worker", "worker")}
			in.Releases = map[string]string{"old": "1.1.0", "new": "1.2.0", "newer": "1.2.0"}
			if tt.node.Labels == nil {
				tt.node.Labels = map[string]string{"worker": ""}
			}
			in.Nodes = []corev1.Node{tt.node}
			if tt.change != nil {
				tt.change(&in)
			}
			a, err := insight.Assess(in)
			require.NoError(t, err)
			require.Len(t, a.WorkerPools[0].Nodes, 1)
			n := a.WorkerPools[0].Nodes[0]
			assert.Equal(t, tt.want, []string{string(n.State), string(n.Phase), n.Version, n.Estimate, n.Message})
		})
	}
}

func TestDegradedNodeThatIsNotReadyHasTwoInsights(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Pools = []mcfgv1.MachineConfigPool{pool("worker", "worker")}
	in.Nodes = []corev1.Node{annotated("state", "Degraded", "reason", "the disk is full")}
	in.Nodes[0].Spec.Unschedulable = true
	in.Nodes[0].Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, LastTransitionTime: ago(time.Hour)},
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: ago(2 * time.Hour)},
	}
	in.AsOriginal = true
	a, err := insight.Assess(in)
	require.NoError(t, err)
	require.Len(t, a.Insights, 2)
	assert.Equal(t, "Node node-name is degraded", a.Insights[0].Summary)
	assert.Equal(t, "the disk is full", a.Insights[0].Description)
	assert.Equal(t, "Node node-name has disk pressure | Node node-name is not ready | Node is marked unschedulable", a.Insights[1].Summary)
	assert.Contains(t, a.Insights[1].Description, "Node has a DiskPressure!=False condition")
	assert.NotContains(t, a.Insights[1].Description, "the disk is full")
	assert.Equal(t, ago(2*time.Hour).Time, a.Insights[1].Since)
	// Without a reason, the first insight is dropped, as in oc. The second is kept.
	in.Nodes[0].Annotations["machineconfiguration.openshift.io/reason"] = ""
	a, err = insight.Assess(in)
	require.NoError(t, err)
	require.Len(t, a.Insights, 1)
	assert.Equal(t, insight.Warning, a.Insights[0].Level)
}
