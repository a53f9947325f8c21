package status

import (
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/clusterversion/event"
)

func TestHistoryChangesEmitEvents(t *testing.T) {
	status := func(history ...configv1.UpdateHistory) configv1.ClusterVersionStatus {
		return configv1.ClusterVersionStatus{History: history}
	}
	again := partial("1.0.0")
	again.StartedTime = metav1.NewTime(now)
	for _, tt := range []struct {
		name          string
		before, after configv1.ClusterVersionStatus
		want          []event.Event
	}{
		{name: "emits nothing without a history"},
		{name: "reports the start of an install", after: status(partial("1.0.0")), want: []event.Event{{Kind: "Normal", Reason: "UpdateStarted", Message: "Started to install 1.0.0"}}},
		{name: "emits nothing during an install", before: status(partial("1.0.0")), after: status(partial("1.0.0"))},
		{name: "reports the end of an install", before: status(partial("1.0.0")), after: status(completed("1.0.0")), want: []event.Event{{Kind: "Normal", Reason: "UpdateCompleted", Message: "Completed 1.0.0 in 10m0s"}}},
		{name: "emits nothing at rest", before: status(completed("1.0.0")), after: status(completed("1.0.0"))},
		{name: "reports the start of an update", before: status(completed("1.0.0")), after: status(partial("1.1.0"), completed("1.0.0")), want: []event.Event{{Kind: "Normal", Reason: "UpdateStarted", Message: "Started to update from 1.0.0 to 1.1.0"}}},
		{name: "reports a canceled update", before: status(partial("1.1.0"), completed("1.0.0")), after: status(again, partial("1.1.0"), completed("1.0.0")), want: []event.Event{{Kind: "Normal", Reason: "UpdateStarted", Message: "Started to update from 1.1.0 to 1.0.0"}}},
		{
			name: "reports a start and an end in one write", before: status(completed("1.0.0")), after: status(completed("1.1.0"), completed("1.0.0")),
			want: []event.Event{{Kind: "Normal", Reason: "UpdateStarted", Message: "Started to update from 1.0.0 to 1.1.0"}, {Kind: "Normal", Reason: "UpdateCompleted", Message: "Completed 1.1.0 in 10m0s"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, HistoryEvents(tt.before, tt.after)) })
	}
}

func TestCompletionEventNamesTheDuration(t *testing.T) {
	assert.Equal(t, "Completed 1.1.0 in 2s", updateCompleted("1.1.0", 1500*time.Millisecond).Message)
}

func TestFailuresEmitEventsOnce(t *testing.T) {
	status := func(value configv1.ConditionStatus, reason string) configv1.ClusterVersionStatus {
		return configv1.ClusterVersionStatus{Conditions: []configv1.ClusterOperatorStatusCondition{
			{Type: "Failing", Status: value, Reason: reason, Message: "It does not work", LastTransitionTime: metav1.NewTime(now)},
		}}
	}
	none, fine, slow, bad, worse := configv1.ClusterVersionStatus{}, status("False", ""), status("Unknown", "SlowClusterOperator"), status("True", "A"), status("True", "B")
	for _, tt := range []struct {
		name          string
		before, after configv1.ClusterVersionStatus
		want          []event.Event
	}{
		{name: "emits nothing without a failure", before: none, after: fine},
		{name: "emits nothing for a slow rollout", before: fine, after: slow},
		{name: "reports a failure", before: fine, after: bad, want: []event.Event{{Kind: "Warning", Reason: "RolloutFailing", Message: "A: It does not work"}}},
		{name: "emits nothing for the same failure", before: bad, after: bad},
		{name: "emits nothing for another reason", before: bad, after: worse},
		{name: "reports a recovery", before: bad, after: fine, want: []event.Event{{Kind: "Normal", Reason: "RolloutRecovered", Message: "Recovered from A, which began at 2026-03-01T12:00:00Z"}}},
		{name: "reports a recovery if the rollout is only slow now", before: bad, after: slow, want: []event.Event{{Kind: "Normal", Reason: "RolloutRecovered", Message: "Recovered from A, which began at 2026-03-01T12:00:00Z"}}},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, FailingEvents(tt.before, tt.after)) })
	}
}
