package clusterversion

import (
	"errors"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

func TestAcceptanceEventsOfRetries(t *testing.T) {
	failed := Acceptance{Step: "RetrievePayload", Message: "m1", Err: errors.New("e")}
	other := failed
	other.Message = "m2"
	assert.Equal(t, []string{"RetrievePayloadFailed"}, reasonsOf(acceptanceEvents(Acceptance{Step: "RetrievePayload"}, failed)))
	assert.Empty(t, acceptanceEvents(failed, failed), "the same failure again is nothing new")
	assert.Equal(t, []event{{"Warning", "RetrievePayloadFailed", "m2"}}, acceptanceEvents(failed, other))

	// A retry is told when it has an answer.
	done := acceptedRelease("1.1.0")
	assert.Equal(t, []string{"PreconditionsPassed", "PayloadLoaded"}, reasonsOf(acceptanceEvents(failed, done)))
	done.Verified = release.Verified{Forced: errUnsigned}
	assert.Equal(t, []string{"RetrievePayload", "PreconditionsPassed", "PayloadLoaded"}, reasonsOf(acceptanceEvents(failed, done)), "force is never silent")
	assert.Empty(t, acceptanceEvents(done, done))
}

func TestHistoryEvents(t *testing.T) {
	status := func(history ...configv1.UpdateHistory) configv1.ClusterVersionStatus {
		return configv1.ClusterVersionStatus{History: history}
	}
	again := partial("1.0.0")
	again.StartedTime = metav1.NewTime(now)
	for _, tt := range []struct {
		name          string
		before, after configv1.ClusterVersionStatus
		want          []event
	}{
		{name: "nothing"},
		{name: "an install begins", after: status(partial("1.0.0")), want: []event{{"Normal", "UpdateStarted", "Started to install 1.0.0"}}},
		{name: "and goes on", before: status(partial("1.0.0")), after: status(partial("1.0.0"))},
		{name: "and completes", before: status(partial("1.0.0")), after: status(completed("1.0.0")), want: []event{{"Normal", "UpdateCompleted", "Completed 1.0.0 in 10m0s"}}},
		{name: "at rest", before: status(completed("1.0.0")), after: status(completed("1.0.0"))},
		{name: "an update begins", before: status(completed("1.0.0")), after: status(partial("1.1.0"), completed("1.0.0")), want: []event{{"Normal", "UpdateStarted", "Started to update from 1.0.0 to 1.1.0"}}},
		{name: "and turns back", before: status(partial("1.1.0"), completed("1.0.0")), after: status(again, partial("1.1.0"), completed("1.0.0")), want: []event{{"Normal", "UpdateStarted", "Started to update from 1.1.0 to 1.0.0"}}},
		{
			name: "both at once", before: status(completed("1.0.0")), after: status(completed("1.1.0"), completed("1.0.0")),
			want: []event{{"Normal", "UpdateStarted", "Started to update from 1.0.0 to 1.1.0"}, {"Normal", "UpdateCompleted", "Completed 1.1.0 in 10m0s"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, historyEvents(tt.before, tt.after)) })
	}
}

func TestEventTexts(t *testing.T) {
	assert.Equal(t, event{"Normal", "NodesHandedOver", "The control plane is at 1.1.0; the nodes are handed over to machine-config"}, nodesHandedOver("1.1.0"))
	d := rollout.Dropped{ID: manifest.ID{Group: "g", Kind: "K", Name: "n"}, File: "f.yaml", Fields: []string{".a", ".b"}}
	assert.Equal(t, event{"Warning", "FieldDropped", "K.g n (f.yaml): left out .a, .b, which the API server's schema does not have"}, fieldDropped(d))
	assert.Equal(t, "Completed 1.1.0 in 2s", updateCompleted("1.1.0", 1500*time.Millisecond).message)
}
