package insight_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/view/insight"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// past returns an entry of a history. A zero duration means that the update is incomplete.
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

// operators returns total operators of the release. The first updated operators report the version.
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

func TestTargetNamesTheRunningUpdate(t *testing.T) {
	for _, tt := range []struct {
		name    string
		history []configv1.UpdateHistory
		want    string
	}{
		{"it works without a history", nil, "Target Version:  unknown\n"},
		{"it has no duration without a history", nil, "Duration:        now"},
		{"it recognizes an install", []configv1.UpdateHistory{past("1.0.0", "a", time.Minute, 0)}, "Target Version:  1.0.0 (a new install)\n"},
		{"it names an incomplete update", []configv1.UpdateHistory{past("1.2.0", "c", time.Minute, 0), past("1.1.0", "b", time.Hour, 0)}, "Target Version:  1.2.0 (from incomplete 1.1.0)\n"},
		{"it recognizes a change of architecture", []configv1.UpdateHistory{past("1.1.0", "c", 20*time.Minute, 0), past("1.1.0", "b", time.Hour, time.Minute)}, "Target Version:  1.1.0 to Multi-Architecture\n"},
		{"it has no estimate for a change of architecture", []configv1.UpdateHistory{past("1.1.0", "c", 20*time.Minute, 0), past("1.1.0", "b", time.Hour, time.Minute)}, "(Est. Time Remaining: N/A for Multi-Architecture Migration)\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Contains(t, text(t, updating(tt.history...), insight.Details{}), tt.want)
		})
	}
}

func TestCompletedControlPlaneNamesItsDuration(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 50*time.Minute), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Operators = operators(3, 3, "1.2.0")
	assert.Contains(t, text(t, in, insight.Details{}), "= Control Plane =\nUpdate to 1.2.0 successfully completed at 2026-01-02T11:50:00Z (duration: 50m)\n")
}

// TestUpdatedOperatorsDoNotCompleteTheUpdate assesses an update in which a manifest after the last ClusterOperator is pending.
func TestUpdatedOperatorsDoNotCompleteTheUpdate(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Operators = operators(3, 3, "1.2.0")
	in.ClusterVersion.Status.Conditions[0].Status = configv1.ConditionTrue
	in.ClusterVersion.Status.Conditions[1].Message = "Unable to apply 1.2.0: deployment a/b is invalid"
	got := text(t, in, insight.Details{})
	assert.Contains(t, got, `Assessment:      Stalled
Target Version:  1.2.0 (from 1.1.0)
Completion:      100% (3 operators updated, 0 updating, 0 waiting)
Pending:         All operators are updated. The ClusterVersion reports: Unable to apply 1.2.0: deployment a/b is invalid
Duration:        1h
`)
	assert.NotContains(t, got, "completed")
	a, err := insight.Assess(in)
	require.NoError(t, err)
	assert.Nil(t, a.ControlPlane.Completed)
	assert.Equal(t, in.ClusterVersion.Status.Conditions[1].Message, a.ControlPlane.Pending)
	assert.Contains(t, a.Summary(), "Stalled, 3 of 3 operators updated")

	in.ClusterVersion.Status.Conditions[0].Status = configv1.ConditionFalse
	assert.Contains(t, text(t, in, insight.Details{}), "Assessment:      Progressing\n")
	in.AsOriginal = true
	assert.Contains(t, text(t, in, insight.Details{}), "Update to 1.2.0 successfully completed at 2026-01-02T12:00:00Z (duration: 1h)\n", "as oc does")
}

// TestInterruptedUpdateIsReportedDuringTheNextOne has a platform without ClusterOperators, whose next update then completes.
func TestInterruptedUpdateIsReportedDuringTheNextOne(t *testing.T) {
	const interrupted = "Previous update to 1.1.0 never completed, last complete update was 1.0.0"
	in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 2*time.Hour, 0), past("1.0.0", "a", 10*time.Hour, time.Hour))
	in.Operators = nil
	assert.Contains(t, text(t, in, insight.Details{}), interrupted)
	in.ClusterVersion.Status.History[0] = past("1.2.0", "c", time.Hour, 50*time.Minute)
	assert.NotContains(t, text(t, in, insight.Details{}), interrupted)
	in.AsOriginal = true
	assert.Contains(t, text(t, in, insight.Details{}), interrupted, "as oc does")
}

func TestEstimateUsesTheDurationOfTheLastUpdate(t *testing.T) {
	in := updating(past("1.2.0", "c", 4*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, 2*time.Hour), past("1.0.0", "a", 20*time.Hour, 9*time.Hour))
	a, err := insight.Assess(in)
	require.NoError(t, err)
	assert.Equal(t, 139*time.Minute, a.ControlPlane.Remaining.Duration, "two hours, less four minutes, and a fifth more")
	in = updating(past("1.2.0", "c", 4*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, 2*time.Hour))
	a, err = insight.Assess(in)
	require.NoError(t, err)
	assert.Equal(t, 67*time.Minute, a.ControlPlane.Remaining.Duration, "an install does not count, so the estimate starts from an hour")
}

func TestOperatorsBecomeInsightsWithTime(t *testing.T) {
	for _, tt := range []struct {
		name      string
		condition configv1.ClusterOperatorStatusCondition
		want      string
	}{
		{"it waits before it warns", is(configv1.OperatorAvailable, configv1.ConditionFalse, 5*time.Minute), "Update is proceeding well"},
		{"it warns", is(configv1.OperatorAvailable, configv1.ConditionFalse, 6*time.Minute), "6m      Warning   API Availability   Cluster Operator operator-00 is unavailable (Why)"},
		{"it reports an error after a longer time", is(configv1.OperatorAvailable, configv1.ConditionFalse, 21*time.Minute), "21m     Error   API Availability   Cluster Operator operator-00 is unavailable (Why)"},
		{"it waits longer for degraded operators", is(configv1.OperatorDegraded, configv1.ConditionTrue, 40*time.Minute), "40m     Warning   API Availability   Cluster Operator operator-00 is degraded (Why)"},
		{"it ignores Unknown", is(configv1.OperatorAvailable, configv1.ConditionUnknown, time.Hour), "Update is proceeding well"},
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
		api.CurrentConfigAnnotation: "old", api.DesiredConfigAnnotation: "old", "machineconfiguration.openshift.io/state": "Done",
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

func TestNodesWithoutAPoolAreUnknown(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Nodes = []corev1.Node{node("a", "master", 0), node("b", "worker", 0)}
	in.Releases = map[string]string{"old": "1.1.0", "new": "1.2.0"}
	got := text(t, in, insight.Details{})
	assert.Contains(t, got, `Control Plane Nodes: unknown: there is no MachineConfigPool "master"`)

	in.Pools = []mcfgv1.MachineConfigPool{pool("master", "master"), {ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}
	got = text(t, in, insight.Details{})
	assert.Contains(t, got, "Missing data: 1 nodes, such as b, are in no MachineConfigPool")
	assert.Contains(t, got, "\nControl Plane Nodes\nNAME   ASSESSMENT   PHASE     VERSION   EST   MESSAGE\na      Outdated     Pending   1.1.0     ?     \n")
}

// TestNodeOfSeveralCustomPoolsIsInNone agrees with the controllers of pools, which do not update such a node.
func TestNodeOfSeveralCustomPoolsIsInNone(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Nodes = []corev1.Node{node("a", "worker", 0)}
	in.Pools = []mcfgv1.MachineConfigPool{pool("zebra", "worker"), pool("worker", "worker"), pool("ape", "worker")}
	in.Pools = append(in.Pools, pool("master", "master"))

	a, err := insight.Assess(in)

	require.NoError(t, err)
	assert.Equal(t, []int{0, 0, 0}, []int{a.WorkerPools[0].Total, a.WorkerPools[1].Total, a.WorkerPools[2].Total})
	assert.Contains(t, text(t, in, insight.Details{}), "1 nodes, such as a, are in no MachineConfigPool")
}

// TestNodesOfAPoolWithAnInvalidSelectorAreUnknown has a node of that pool, which the worker pool selects, too.
func TestNodesOfAPoolWithAnInvalidSelectorAreUnknown(t *testing.T) {
	in := updating(past("1.2.0", "c", time.Hour, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Nodes = []corev1.Node{node("a", "worker", 0)}
	in.Pools = []mcfgv1.MachineConfigPool{pool("infra", "infra"), pool("worker", "worker"), pool("master", "master")}
	in.Pools[0].Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Between"}}}

	a, err := insight.Assess(in)

	require.NoError(t, err)
	states := map[string]insight.State{}
	for _, p := range a.WorkerPools {
		states[p.Name] = p.State
	}
	assert.Equal(t, map[string]insight.State{"infra": insight.StateUnknown, "worker": insight.StatePending}, states)
	assert.Contains(t, text(t, in, insight.Details{}), "\ninfra         Unknown ")
	assert.Contains(t, text(t, in, insight.Details{}),
		"the nodes of MachineConfigPool infra are unknown, and may appear in other pools: its spec.nodeSelector is invalid")

	in.Pools[2].Spec.NodeSelector = in.Pools[0].Spec.NodeSelector
	assert.Contains(t, text(t, in, insight.Details{}), "Control Plane Nodes: unknown: the nodes of MachineConfigPool master are unknown")
}

func TestNewNodeProblemsHaveAGracePeriod(t *testing.T) {
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

func TestUpdateContinuesForWaitingWorkers(t *testing.T) {
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

func TestClusterWithoutReportIsUnknown(t *testing.T) {
	got := text(t, insight.Input{ClusterVersion: &configv1.ClusterVersion{}}, insight.Details{})
	assert.Equal(t, "It is unknown whether the cluster is updating: the ClusterVersion has no condition Progressing: no version operator has reported on it yet\n", got)
	_, err := insight.Assess(insight.Input{})
	require.Error(t, err)
}

func TestIncompleteInputIsReportedAsMissing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		edit    func(*insight.Input)
		section insight.Section
		reason  string
		text    string
	}{
		{"it works without Progressing", func(in *insight.Input) { in.ClusterVersion.Status.Conditions = nil }, insight.SectionVersion, "the ClusterVersion has no condition Progressing: using its history", "Target Version:  1.2.0 (from 1.1.0)\n"},
		{"it works without a history", func(in *insight.Input) { in.ClusterVersion.Status.History = nil }, insight.SectionVersion, "the ClusterVersion has no history: neither the target nor the start of the update is known", "Target Version:  unknown\n"},
		{"it works without operators", func(in *insight.Input) { in.Operators = nil }, insight.SectionOperators, "no ClusterOperator belongs to the release", "Duration:        20m\n"},
		{"it works without operators of a release", func(in *insight.Input) {
			for i := range in.Operators {
				in.Operators[i].Annotations = nil
			}
		}, insight.SectionOperators, "no ClusterOperator belongs to the release", "Duration:        20m\n"},
		{"it works without the pool of the control plane", func(in *insight.Input) { in.Nodes = []corev1.Node{node("a", "master", 0)} }, insight.SectionControlNodes, `there is no MachineConfigPool "master"`, "\nControl Plane Nodes: unknown: there is no MachineConfigPool"},
		{"it works with pools that select nothing", func(in *insight.Input) {
			in.Nodes = []corev1.Node{node("a", "worker", 0)}
			in.Pools = []mcfgv1.MachineConfigPool{{}, {}}
			in.Pools[0].Name, in.Pools[1].Name = "master", "worker"
			in.Pools[1].Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Between"}}}
		}, insight.SectionWorkers, "1 nodes, such as a, are in no MachineConfigPool", "= Worker Upgrade ="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := updating(past("1.2.0", "c", 20*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
			tt.edit(&in)
			a, err := insight.Assess(in)
			require.NoError(t, err)
			assert.Contains(t, a.Missing, insight.Missing{Section: tt.section, Reason: tt.reason, Absent: tt.section == insight.SectionOperators})
			assert.Contains(t, text(t, in, insight.Details{Nodes: true, Health: true, Operators: true}), tt.text)
			assert.NotEmpty(t, a.Summary())
		})
	}
}

func TestTargetOfAnInterruptingArchitectureChangeIsNamed(t *testing.T) {
	in := updating(past("1.1.0", "c", 20*time.Minute, 0), past("1.1.0", "b", time.Hour, 0))
	assert.Contains(t, text(t, in, insight.Details{}), "Target Version:  1.1.0 (from incomplete 1.1.0)\n")
}

func TestSummaryListsPoolsAndProblems(t *testing.T) {
	in := updating(past("1.2.0", "c", 20*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Operators[9].Status.Conditions[1] = is(configv1.OperatorProgressing, configv1.ConditionTrue, 2*time.Minute)
	in.Operators[9].Status.Conditions[0] = is(configv1.OperatorAvailable, configv1.ConditionFalse, time.Hour)
	in.Nodes = []corev1.Node{node("a", "worker", 0)}
	in.Pools = []mcfgv1.MachineConfigPool{pool("worker", "worker")}
	in.Rollout = &api.ReleaseRollout{Status: api.ReleaseRolloutStatus{
		Current:    &api.CurrentRollout{To: "1.2.0"},
		Estimate:   &api.RolloutEstimate{RemainingLow: metav1.Duration{Duration: 11 * time.Minute}, RemainingHigh: metav1.Duration{Duration: 25 * time.Minute}},
		Conditions: []metav1.Condition{{Type: api.RolloutPaused, Status: metav1.ConditionTrue, Message: "Held back before runlevel 50."}},
	}}
	a, err := insight.Assess(in)
	require.NoError(t, err)
	assert.Equal(t, "1.2.0 (from 1.1.0): Progressing, 5 of 10 operators updated, updating operator-09, 11m to 25m left, paused: Held back before runlevel 50.; worker nodes 0/1; 1 error; 1 warning", a.Summary())
	assert.Contains(t, text(t, in, insight.Details{}), "Duration:        20m (Est. Time Remaining: 11m to 25m)\n", "the same figure")
	assert.Equal(t, 25*time.Minute, a.ControlPlane.Remaining.Duration)

	in.Rollout.Status.Current.To = "1.1.0"
	a, err = insight.Assess(in)
	require.NoError(t, err)
	assert.Nil(t, a.Estimate, "reports about another release do not count")
}

// TestRemainingTimeIsEstimated checks that there is one remaining time, none in the past, and none while the update fails.
func TestRemainingTimeIsEstimated(t *testing.T) {
	at := func(in insight.Input, minutes time.Duration) *metav1.Time {
		return &metav1.Time{Time: in.Now.Add(minutes * time.Minute)}
	}
	estimate := func(earliest, latest time.Duration) func(*insight.Input) {
		return func(in *insight.Input) {
			in.Rollout = &api.ReleaseRollout{Status: api.ReleaseRolloutStatus{Current: &api.CurrentRollout{To: "1.2.0"}, Estimate: &api.RolloutEstimate{
				RemainingLow: metav1.Duration{Duration: time.Hour}, RemainingHigh: metav1.Duration{Duration: 2 * time.Hour},
				EarliestCompletion: at(*in, earliest), LatestCompletion: at(*in, latest),
			}}}
		}
	}
	for _, tt := range []struct {
		name string
		edit func(*insight.Input)
		want string
	}{
		{"equals oc's estimate without a ReleaseRollout", func(*insight.Input) {}, " (Est. Time Remaining: 31m)"},
		{"counts down to the completion", estimate(11, 25), " (Est. Time Remaining: 11m to 25m)"},
		{"starts now once the earliest completion has passed", estimate(-5, 25), " (Est. Time Remaining: up to 25m)"},
		{"is missing once the latest completion has passed", estimate(-25, -5), ""},
		{"is missing without the operator's own estimate", func(in *insight.Input) {
			estimate(1, 2)(in)
			in.Rollout.Status.Estimate = nil
		}, ""},
		{"is missing while the update fails", func(in *insight.Input) {
			estimate(11, 25)(in)
			*api.FindCondition(in.ClusterVersion.Status.Conditions, api.Failing) = is(api.Failing, configv1.ConditionTrue, time.Minute)
		}, ""},
		{"is missing if it is in the past", func(in *insight.Input) {
			in.ClusterVersion.Status.History[0].StartedTime = *at(*in, -90)
			for i := range in.Operators {
				in.Operators[i].Status.Conditions[1].LastTransitionTime = *at(*in, -89)
			}
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := updating(past("1.2.0", "c", 20*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
			tt.edit(&in)
			out := text(t, in, insight.Details{})
			_, after, _ := strings.Cut(out, "Duration:")
			duration, _, _ := strings.Cut(after, "\n")
			_, remaining, _ := strings.Cut(strings.TrimSpace(duration), " ")
			assert.Equal(t, strings.TrimSpace(tt.want), remaining, out)
			a, err := insight.Assess(in)
			require.NoError(t, err)
			assert.Equal(t, tt.want != "", a.ControlPlane.Remaining != nil)
			assert.Equal(t, strings.Contains(tt.want, "25m"), strings.Contains(a.Summary(), " left"), a.Summary())
		})
	}
}

func TestInvalidSpecIsAnInsight(t *testing.T) {
	invalid := is(api.Invalid, configv1.ConditionTrue, time.Minute)
	invalid.Message = "The cluster version is invalid: spec.desiredUpdate: Required value"
	in := updating(past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Operators = operators(3, 3, "1.1.0")
	in.ClusterVersion.Status.Conditions[1].Status = configv1.ConditionFalse
	in.ClusterVersion.Status.Conditions = append(in.ClusterVersion.Status.Conditions, invalid)
	a, err := insight.Assess(in)
	require.NoError(t, err)
	require.Len(t, a.Insights, 1)
	assert.Equal(t, "The operator ignores invalid values in the spec", a.Insights[0].Summary)
	assert.Equal(t, invalid.Message, a.Insights[0].Description)
	in.AsOriginal = true
	a, err = insight.Assess(in)
	require.NoError(t, err)
	assert.Empty(t, a.Insights)
}

func TestRejectedReleaseIsAnInsight(t *testing.T) {
	rejected := is(api.ReleaseAccepted, configv1.ConditionFalse, time.Minute)
	rejected.Reason, rejected.Message = "RetrievePayload", "Nobody signed it."
	in := updating(past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Operators = operators(3, 3, "1.1.0")
	in.ClusterVersion.Status.Conditions[1].Status = configv1.ConditionFalse
	in.ClusterVersion.Spec.DesiredUpdate = &configv1.Update{Version: "1.2.0", Image: "c"}
	in.ClusterVersion.Status.Conditions = append(in.ClusterVersion.Status.Conditions, rejected)
	a, err := insight.Assess(in)
	require.NoError(t, err)
	require.Len(t, a.Insights, 1)
	assert.Equal(t, "Release 1.2.0 is not accepted (RetrievePayload)", a.Insights[0].Summary)
	assert.Equal(t, "Nobody signed it.", a.Insights[0].Description)
	assert.Equal(t, "The cluster is not updating.\n", text(t, in, insight.Details{}))

	install := updating()
	install.ClusterVersion.Status.Desired.Image = "a"
	install.ClusterVersion.Status.Conditions = append(install.ClusterVersion.Status.Conditions, rejected)
	got := text(t, install, insight.Details{})
	assert.Contains(t, got, "1m      Warning   Update Stalled   Release a is not accepted (RetrievePayload)\n")
	assert.NotContains(t, got, "proceeding well")
	install.AsOriginal = true
	assert.NotContains(t, text(t, install, insight.Details{}), "not accepted", "oc does not show it")
}

// TestVacantLeaseIsAnInsight has an operator that died, whose Lease has expired, and operators that released the Lease.
func TestVacantLeaseIsAnInsight(t *testing.T) {
	const (
		released = "No version operator leads: Lease ns/version was released\n"
		expired  = "No version operator leads: Lease ns/version expired: its holder pod stopped renewing it\n"
	)
	for _, tt := range []struct {
		name, host string
		gone       bool
		silent     time.Duration
		want       string
		state      insight.State
	}{
		{"is empty while an operator leads", "pod", false, 13 * time.Second, "proceeding well", insight.StateProgressing},
		{"is an error as soon as the Lease is expired", "pod", true, 13 * time.Second, "13s     Error   Update Stalled   " + expired, insight.StateStalled},
		{"ignores a short handover", "", true, 5 * time.Second, "proceeding well", insight.StateProgressing},
		{"shows a longer handover", "", true, 6 * time.Second, "6s      Info    Update Speed   " + released, insight.StateProgressing},
		{"shows a released Lease as an error after a minute", "", true, 61 * time.Second, "1m1s    Error   Update Stalled   " + released, insight.StateStalled},
		{
			"is an error during an uninstall", api.UninstallHolder, false, 0,
			"-       Error   Update Stalled   No version operator leads: Lease ns/version is held by 'cvo uninstall'\n", insight.StateStalled,
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			in := updating(past("1.2.0", "c", 20*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
			in.Leader = leader.Record{Namespace: "ns", LeaseName: "version", RenewedAt: ago(tt.silent).Time, Silent: tt.silent, Gone: tt.gone}
			in.Leader.Host = tt.host
			assert.Contains(t, text(t, in, insight.Details{}), tt.want)
			a, err := insight.Assess(in)
			require.NoError(t, err)
			assert.Equal(t, tt.state, a.ControlPlane.State)
			assert.Equal(t, tt.state == insight.StateStalled, a.ControlPlane.Remaining == nil, "a stalled update has no estimate")
			in.AsOriginal = true
			assert.NotContains(t, text(t, in, insight.Details{}), "No version operator", "oc does not show it")
		})
	}
}

func TestUnfinishedUninstallIsAnInsight(t *testing.T) {
	in := updating(past("1.2.0", "c", 20*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.Leader = leader.Record{Namespace: "ns", LeaseName: "version", RenewedAt: ago(time.Minute).Time, Silent: time.Minute, Gone: true, AfterUninstall: true}
	got := text(t, in, insight.Details{Health: true})
	assert.Contains(t, got, "No version operator leads: Lease ns/version was released by 'cvo uninstall', which did not finish\n")
	assert.Contains(t, got, "Run 'cvo uninstall --namespace ns' with the flags of the first run to finish the uninstall, or 'cvo install' to restore deleted objects.")
}

func TestDeletionOfTheClusterVersionIsAnInsight(t *testing.T) {
	in := updating(past("1.2.0", "c", 20*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	deleted := ago(time.Minute)
	in.ClusterVersion.DeletionTimestamp, in.ClusterVersion.Finalizers = &deleted, []string{"example.com/keep", "orphan"}
	got := text(t, in, insight.Details{Health: true})
	assert.NotContains(t, got, "proceeding well")
	assert.Contains(t, got, "Assessment:      Stalled\n")
	assert.Contains(t, got, "Message: ClusterVersion version is being deleted and waits for its finalizers example.com/keep, orphan (kube-controller-manager removes it)\n"+
		"  Since:       1m\n  Level:       Error\n")
	assert.Contains(t, got, "'cvo uninstall --force' finishes it")
	in.ClusterVersion.Status.History[0].State = configv1.CompletedUpdate
	assert.Contains(t, text(t, in, insight.Details{Health: true}), "'cvo uninstall' finishes it")
	in.ClusterVersion.Name, in.Leader = "main", leader.Record{Namespace: "ops", LeaseName: "main"}
	assert.Contains(t, text(t, in, insight.Details{Health: true}), "'cvo uninstall --namespace ops --name main' finishes it")
	in.AsOriginal = true
	assert.NotContains(t, text(t, in, insight.Details{}), "is being deleted", "oc does not show it")
}

func TestPauseIsAnInsight(t *testing.T) {
	for _, tt := range []struct {
		name, reason, to string
		status           metav1.ConditionStatus
		want             string
	}{
		{"shows a paused update", api.ReasonPaused, "1.2.0", metav1.ConditionTrue, "1m      Warning   Update Stalled   Held back\n"},
		{"shows an update that is about to pause", api.ReasonPausing, "1.2.0", metav1.ConditionFalse, "Held back\n"},
		{"ignores the pause of another update", api.ReasonPaused, "1.1.0", metav1.ConditionTrue, "proceeding well"},
		{"shows a pause of the next update", api.ReasonNoUpdate, "1.1.0", metav1.ConditionFalse, "Held back\n"},
		{"is empty without a pause", api.ReasonNotAsked, "1.2.0", metav1.ConditionFalse, "proceeding well"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := updating(past("1.2.0", "c", 20*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
			in.Rollout = &api.ReleaseRollout{Status: api.ReleaseRolloutStatus{
				Current:    &api.CurrentRollout{To: tt.to},
				Conditions: []metav1.Condition{{Type: api.RolloutPaused, Status: tt.status, Reason: tt.reason, Message: "Held back", LastTransitionTime: ago(time.Minute)}},
			}}
			assert.Contains(t, text(t, in, insight.Details{}), tt.want)
		})
	}
}

func TestReleaseWithoutManifestsIsAnInsight(t *testing.T) {
	accepted := is(api.ReleaseAccepted, configv1.ConditionTrue, time.Minute)
	accepted.Message = `Payload loaded version="1.2.0"; warning: none of the 9 manifests is for this cluster`
	in := updating(past("1.2.0", "c", 20*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.ClusterVersion.Status.Conditions = append(in.ClusterVersion.Status.Conditions, accepted)
	a, err := insight.Assess(in)
	require.NoError(t, err)
	require.Len(t, a.Insights, 1)
	assert.Equal(t, "The cluster gets no component of release 1.2.0", a.Insights[0].Summary)
	assert.Equal(t, "none of the 9 manifests is for this cluster", a.Insights[0].Description)
}

// TestProgressWithoutOperatorsIsThatOfTheClusterVersion assesses a platform without ClusterOperators.
func TestProgressWithoutOperatorsIsThatOfTheClusterVersion(t *testing.T) {
	const line = "Pending:         The ClusterVersion reports: Working towards 1.2.0: 32 of 37 done (86% complete), waiting on shop/web\n"
	in := updating(past("1.2.0", "c", 20*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
	in.ClusterVersion.Status.Desired.Image = "c"
	in.ClusterVersion.Status.Conditions[1].Message = "Working towards 1.2.0: 32 of 37 done (86% complete), waiting on shop/web"
	in.Operators = nil
	assert.Contains(t, text(t, in, insight.Details{}), line)
	asOriginal := in
	asOriginal.AsOriginal = true
	assert.NotContains(t, text(t, asOriginal, insight.Details{}), "Pending:")
	in.ClusterVersion.Status.History[0].State = configv1.CompletedUpdate
	assert.NotContains(t, text(t, in, insight.Details{}), "Pending:")
}

// TestStateWithoutOperatorsFollowsTheClusterVersion assesses a platform without ClusterOperators.
func TestStateWithoutOperatorsFollowsTheClusterVersion(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*insight.Input)
		want   insight.State
	}{
		{"progresses", func(*insight.Input) {}, insight.StateProgressing},
		{"is stalled while it fails", func(in *insight.Input) { in.ClusterVersion.Status.Conditions[0].Status = configv1.ConditionTrue }, insight.StateStalled},
		{"is slow if Failing is Unknown", func(in *insight.Input) { in.ClusterVersion.Status.Conditions[0].Status = configv1.ConditionUnknown }, insight.StateSlow},
		{"is completed", func(in *insight.Input) { in.ClusterVersion.Status.History[0].State = configv1.CompletedUpdate }, insight.StateCompleted},
		{"is unknown without Failing", func(in *insight.Input) { in.ClusterVersion.Status.Conditions = in.ClusterVersion.Status.Conditions[1:] }, insight.StateUnknown},
		{"is unknown if the operators cannot be read", func(in *insight.Input) {
			in.Missing = []insight.Missing{{Section: insight.SectionOperators, Reason: "forbidden"}}
		}, insight.StateUnknown},
		{"is unknown in a dump of oc", func(in *insight.Input) { in.AsOriginal = true }, insight.StateUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := updating(past("1.2.0", "c", 20*time.Minute, 0), past("1.1.0", "b", 10*time.Hour, time.Hour))
			in.ClusterVersion.Status.Desired.Image = "c"
			in.Operators = nil
			tt.change(&in)
			a, err := insight.Assess(in)
			require.NoError(t, err)
			assert.Equal(t, tt.want, a.ControlPlane.State)
		})
	}
}
