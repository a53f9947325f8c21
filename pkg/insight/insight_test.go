package insight_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/insight"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// past is an entry of a history; one that took no time is under way.
func past(version, image string, began, took time.Duration) configv1.UpdateHistory {
	entry := configv1.UpdateHistory{Version: version, Image: image, State: configv1.PartialUpdate, StartedTime: ago(began)}
	if took > 0 {
		done := ago(began - took)
		entry.State, entry.CompletionTime = configv1.CompletedUpdate, &done
	}
	return entry
}

func is(kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus, since time.Duration) configv1.ClusterOperatorStatusCondition {
	return configv1.ClusterOperatorStatusCondition{Type: kind, Status: status, Reason: "Why", LastTransitionTime: ago(since)}
}

// operators are so many of the release, of which the first have that version.
func operators(total, updated int, version string) []configv1.ClusterOperator {
	all := make([]configv1.ClusterOperator, total)
	for i := range all {
		all[i].Name = fmt.Sprintf("operator-%02d", i)
		all[i].Annotations = map[string]string{"include.release.openshift.io/x": "true"}
		all[i].Status.Conditions = []configv1.ClusterOperatorStatusCondition{
			is(configv1.OperatorAvailable, configv1.ConditionTrue, time.Hour), is(configv1.OperatorProgressing, configv1.ConditionFalse, 2*time.Minute),
		}
		if i < updated {
			all[i].Status.Versions = []configv1.OperandVersion{{Name: "operator", Version: version}}
		}
	}
	return all
}

func updating(history ...configv1.UpdateHistory) insight.Input {
	cv := &configv1.ClusterVersion{}
	cv.Name = "version"
	cv.Status.History = history
	if len(history) > 0 {
		cv.Status.Desired.Version = history[0].Version
	}
	cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		is("Failing", configv1.ConditionFalse, time.Hour), is(configv1.OperatorProgressing, configv1.ConditionTrue, time.Hour),
	}
	return insight.Input{Now: now, ClusterVersion: cv, Operators: operators(10, 5, cv.Status.Desired.Version)}
}

func text(t *testing.T, in insight.Input, details insight.Details) string {
	t.Helper()
	a, err := insight.Assess(in)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, a.Text(&out, details))
	return out.String()
}

func TestTarget(t *testing.T) {
	for _, tt := range []struct {
		name    string
		history []configv1.UpdateHistory
		want    string
	}{
		{"it does without a history", nil, "Target Version:  unknown\n"},
		{"it knows no duration then", nil, "Duration:        now"},
		{"it knows an install", []configv1.UpdateHistory{past("1.0.0", "a", time.Minute, 0)}, "Target Version:  1.0.0 (a new install)\n"},
		{"it names what never ended", []configv1.UpdateHistory{past("1.2.0", "c", time.Minute, 0), past("1.1.0", "b", time.Hour, 0)}, "Target Version:  1.2.0 (from incomplete 1.1.0)\n"},
		{"it knows a change of architecture", []configv1.UpdateHistory{past("1.1.0", "c", 20*time.Minute, 0), past("1.1.0", "b", time.Hour, time.Minute)}, "Target Version:  1.1.0 to Multi-Architecture\n"},
		{"it has no estimate for that", []configv1.UpdateHistory{past("1.1.0", "c", 20*time.Minute, 0), past("1.1.0", "b", time.Hour, time.Minute)}, "(Est. Time Remaining: N/A for Multi-Architecture Migration)\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Contains(t, text(t, updating(tt.history...), insight.Details{}), tt.want)
		})
	}
}

func TestCompletedControlPlane(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 50*time.Minute), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Operators = operators(3, 3, "1.2.0")
	assert.Contains(t, text(t, in, insight.Details{}), "= Control Plane =\nUpdate to 1.2.0 successfully completed at 2026-01-02T11:50:00Z (duration: 50m)\n")
}

func TestEstimateTakesThePaceOfTheLastUpdate(t *testing.T) {
	in := updating(past("1.2.0", "c", 4*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, 2*time.Hour), past("1.0.0", "a", 20*time.Hour, 9*time.Hour))
	a, err := insight.Assess(in)
	require.NoError(t, err)
	assert.Equal(t, 139*time.Minute, a.ControlPlane.Remaining.Duration, "two hours, less four minutes, and a fifth more")
	in = updating(past("1.2.0", "c", 4*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, 2*time.Hour))
	a, err = insight.Assess(in)
	require.NoError(t, err)
	assert.Equal(t, 67*time.Minute, a.ControlPlane.Remaining.Duration, "an install is no measure: an hour")
}

func TestOperatorsBecomeInsightsWithTime(t *testing.T) {
	for _, tt := range []struct {
		name      string
		condition configv1.ClusterOperatorStatusCondition
		want      string
	}{
		{"it waits before it warns", is(configv1.OperatorAvailable, configv1.ConditionFalse, 5*time.Minute), "Update is proceeding well"},
		{"it warns", is(configv1.OperatorAvailable, configv1.ConditionFalse, 6*time.Minute), "6m      Warning   API Availability   Cluster Operator operator-00 is unavailable (Why)"},
		{"it calls it an error", is(configv1.OperatorAvailable, configv1.ConditionFalse, 21*time.Minute), "21m     Error   API Availability   Cluster Operator operator-00 is unavailable (Why)"},
		{"it has more patience with degraded ones", is(configv1.OperatorDegraded, configv1.ConditionTrue, 40*time.Minute), "40m     Warning   API Availability   Cluster Operator operator-00 is degraded (Why)"},
		{"it does not know of Unknown", is(configv1.OperatorAvailable, configv1.ConditionUnknown, time.Hour), "Update is proceeding well"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
			in.Operators[0].Status.Conditions = []configv1.ClusterOperatorStatusCondition{tt.condition}
			assert.Contains(t, text(t, in, insight.Details{}), tt.want)
		})
	}
}

func node(name string, role string, notReady time.Duration) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{role: ""}, Annotations: map[string]string{
		insight.CurrentConfig: "old", insight.DesiredConfig: "old", "machineconfiguration.openshift.io/state": "Done",
	}}}
	if notReady > 0 {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: ago(notReady)}}
	}
	return n
}

func pool(name, role string) mcfgv1.MachineConfigPool {
	p := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{role: ""}}
	p.Spec.Configuration.Name = "new"
	return p
}

func TestNodesInNoPool(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Nodes = []corev1.Node{node("a", "master", 0), node("b", "worker", 0)}
	in.Releases = map[string]string{"old": "1.1.0", "new": "1.2.0"}
	got := text(t, in, insight.Details{})
	assert.Contains(t, got, `Control Plane Nodes: not known: there is no MachineConfigPool "master"`)

	in.Pools = []mcfgv1.MachineConfigPool{pool("master", "master"), {ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}
	got = text(t, in, insight.Details{})
	assert.Contains(t, got, "Not all is known: 1 nodes, such as b, are in no MachineConfigPool")
	assert.Contains(t, got, "\nControl Plane Nodes\nNAME   ASSESSMENT   PHASE     VERSION   EST   MESSAGE\na      Outdated     Pending   1.1.0     ?     \n")
}

func TestCustomPoolsTakeNodesInOrderOfName(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Nodes = []corev1.Node{node("a", "worker", 0)}
	in.Pools = []mcfgv1.MachineConfigPool{pool("zebra", "worker"), pool("worker", "worker"), pool("ape", "worker")}
	for range 20 {
		a, err := insight.Assess(in)
		require.NoError(t, err)
		assert.Equal(t, []int{0, 0, 1}, []int{a.WorkerPools[0].Total, a.WorkerPools[1].Total, a.WorkerPools[2].Total})
	}
}

func TestGraceOfNodes(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Pools = []mcfgv1.MachineConfigPool{pool("worker", "worker")}
	in.Releases = map[string]string{"old": "1.1.0"}
	in.Nodes = []corev1.Node{node("a", "worker", 4*time.Minute)}
	got := text(t, in, insight.Details{})
	assert.Contains(t, got, "Unavailable   Pending   1.1.0     ?     Not ready")
	assert.NotContains(t, got, "Node a is not ready")
	in.Nodes = []corev1.Node{node("a", "worker", 5*time.Minute)}
	assert.Contains(t, text(t, in, insight.Details{}), "Node a is not ready")
}

func TestUpdateGoesOnForWorkersThatWait(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 50*time.Minute), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.ClusterVersion.Status.Conditions[1].Status = configv1.ConditionFalse
	in.Operators = operators(3, 3, "1.2.0")
	assert.Equal(t, "The cluster is not updating.\n", text(t, in, insight.Details{}))
	in.Releases = map[string]string{"old": "1.1.0"}
	in.Nodes = []corev1.Node{node("a", "worker", 0)}
	in.Pools = []mcfgv1.MachineConfigPool{pool("worker", "worker")}
	in.Pools[0].Spec.Paused = true
	got := text(t, in, insight.Details{})
	assert.Contains(t, got, "Update to 1.2.0 successfully completed")
	assert.Contains(t, got, "Outdated nodes in a paused pool 'worker' will not be updated")
}

func TestNobodyReportedYet(t *testing.T) {
	_, err := insight.Assess(insight.Input{ClusterVersion: &configv1.ClusterVersion{}})
	require.ErrorIs(t, err, insight.ErrNoProgressing)
	_, err = insight.Assess(insight.Input{})
	require.Error(t, err)
}
