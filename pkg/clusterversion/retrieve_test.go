package clusterversion

import (
	"context"
	"errors"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// wakes counts how often each slot was woken.
type wakes map[string]int

func (wakes) Start(string, string, func(context.Context) background.Next) {}
func (w wakes) Wake(slot string)                                          { w[slot]++ }
func (wakes) Stop()                                                       {}

// TestChangedInputsTriggerARetrieval changes an input of a retrieval in each phase of an acceptance.
func TestChangedInputsTriggerARetrieval(t *testing.T) {
	work := wakes{}
	s := newScribe(t, func(p *parts) { p.runner = work })
	s.reconcile(t)
	s.at(time.Minute)
	woken := func() bool {
		before := work[background.SlotAccept]
		s.RetrieveAgain()
		return work[background.SlotAccept] > before
	}
	unsigned := errors.New("signed by no key")
	phase := func(step string, err error) accept.Acceptance {
		a := acceptedRelease("1.0.0")
		a.Done, a.Step, a.Err = false, step, err
		return a
	}
	assert.True(t, woken(), "before the first step")
	s.accepts(phase(api.ReasonRetrievePayload, nil))
	assert.True(t, woken(), "the running verification may have read the earlier input")
	s.accepts(phase(api.ReasonRetrievePayload, unsigned))
	assert.True(t, woken(), "rejected")
	s.accepts(phase(api.ReasonPreconditionChecks, errors.New("too far ahead")))
	assert.False(t, woken(), "no input of the retrieval rejected it")
	s.accepts(phase(api.ReasonPreconditionChecks, nil))
	assert.False(t, woken())
	s.accepts(phase(api.ReasonRetrievePayload, nil))
	assert.True(t, woken(), "preconditions pass now, and the release is being verified again")
	s.accepts(acceptedRelease("1.0.0"))
	s.reconcile(t)
	assert.False(t, woken(), "it is accepted")
	assert.Zero(t, work[background.SlotPreflight], "no preflight failed")
	s.unretrievedAhead.Store(true)
	assert.False(t, woken())
	assert.Equal(t, 1, work[background.SlotPreflight])
}

// TestFailedRetrievalIsRetriedWithinHalfAMinute requests a release from a registry that is down.
func TestFailedRetrievalIsRetriedWithinHalfAMinute(t *testing.T) {
	registry, work := newShelf("1.0.0"), slots{}
	registry.err = errors.New("connection refused")
	s := newScribe(t, func(p *parts) { p.stages, p.runner = registry.stages(), work })
	s.reconcile(t)
	for _, want := range []time.Duration{2, 4, 8, 16, 30, 30} {
		assert.Equal(t, background.Next{After: want * time.Second}, work[background.SlotAccept].step(t.Context()))
	}
	registry.err = nil
	assert.Equal(t, background.Next{Done: true}, work[background.SlotAccept].step(t.Context()))
}

// TestChangedObstaclesTriggerAnAttempt acknowledges a gate that has rejected a release.
func TestChangedObstaclesTriggerAnAttempt(t *testing.T) {
	work, cluster := wakes{}, upgradeable.Cluster{Gates: upgradeable.ConfigMap{Found: true, Data: map[string]string{"ack-1.0-storage": "Storage changes."}}}
	s := newScribe(t, func(p *parts) {
		p.runner, p.stages.Cluster = work, func() upgradeable.Cluster { return cluster }
	})
	cv := s.get(t)
	cv.Status = clusterAt(completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.reconcile(t)
	s.accepts(acceptedRelease("1.0.0"))
	s.edit(t, func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Image: imageOf("1.1.0")}) })
	s.reconcile(t)
	rejected := acceptedRelease("1.1.0")
	rejected.Done, rejected.Step, rejected.Err = false, api.ReasonPreconditionChecks, errors.New("a gate is not acknowledged")
	s.accepts(rejected)
	s.reconcile(t)
	rejected.Obstacles = s.findObstacles(s.get(t))
	require.NotEmpty(t, rejected.Obstacles)
	s.accepts(rejected)
	before := work[background.SlotAccept]
	s.reconcile(t)
	assert.Equal(t, before, work[background.SlotAccept], "nothing has changed")
	cluster.Acks = upgradeable.ConfigMap{Found: true, Data: map[string]string{"ack-1.0-storage": "true"}}
	s.reconcile(t)
	assert.Equal(t, before+1, work[background.SlotAccept], "no time has passed")
}

// TestFailingReportsThatNothingIsApplied starts an operator that can no longer verify the release of the history. The cluster has every
// other condition of a healthy one.
func TestFailingReportsThatNothingIsApplied(t *testing.T) {
	const remedy = "The operator applies and repairs nothing until it accepts a release. Remove the cause, or request a release by digest: " +
		api.RequestByDigest + " (with --force if no one signed it). "
	rejected := func(version string) accept.Acceptance {
		a := acceptedRelease(version)
		a.Done, a.Step, a.Err, a.Message = false, api.ReasonRetrievePayload, errors.New("signed by no key"), version+": signed by no key"
		return a
	}
	restarted := func(t *testing.T) *scribe {
		s := newScribe(t)
		cv := s.get(t)
		cv.Status = clusterAt(completed("1.0.0")).Status
		cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
			{Type: configv1.OperatorAvailable, Status: configv1.ConditionTrue, Message: "Done applying 1.0.0"},
			{Type: api.Failing, Status: configv1.ConditionFalse},
			{Type: configv1.OperatorProgressing, Status: configv1.ConditionFalse, Message: "Cluster version is 1.0.0"},
		}
		require.NoError(t, s.client.Status().Update(t.Context(), cv))
		s.reconcile(t)
		return s
	}
	assertReports := func(t *testing.T, s *scribe, failing, progressing string) {
		t.Helper()
		status := s.get(t).Status
		assert.Equal(t, failing, said(status, api.Failing))
		assert.Equal(t, progressing, said(status, configv1.OperatorProgressing))
		assert.Equal(t, "True||Done applying 1.0.0", said(status, configv1.OperatorAvailable))
	}
	const idle = "False|NoAcceptedRelease|Error while reconciling 1.0.0: no release is accepted, so nothing is applied or repaired"

	t.Run("after the release of the history is rejected", func(t *testing.T) {
		s := restarted(t)
		s.at(time.Second)
		s.accepts(rejected("1.0.0"))
		result := s.reconcile(t)
		assertReports(t, s, "False||", "False||Cluster version is 1.0.0")
		assert.Equal(t, 10*time.Second, result.RequeueAfter, "failed requests are retried before they are reported")
		s.at(11 * time.Second)
		s.reconcile(t)
		assertReports(t, s, "True|NoAcceptedRelease|"+remedy+"1.0.0: signed by no key", idle)
		s.accepts(acceptedRelease("1.0.0"))
		s.at(12 * time.Second)
		s.reconcile(t)
		assertReports(t, s, "True|NoAcceptedRelease|"+remedy+"1.0.0: signed by no key", idle)
		s.progresses(progressOf("1.0.0", 4, 4))
		s.at(14 * time.Second)
		s.reconcile(t)
		assertReports(t, s, "False||", "False||Cluster version is 1.0.0")
	})
	t.Run("while an update is rejected too", func(t *testing.T) {
		s := restarted(t)
		s.edit(t, func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Image: imageOf("1.1.0")}) })
		s.at(time.Second)
		s.reconcile(t)
		s.acceptance.change(func(a accept.Decision) accept.Decision { return a.Resume(a.Key, rejected("1.0.0")) })
		s.accepts(rejected("1.1.0"))
		s.reconcile(t)
		s.at(12 * time.Second)
		s.reconcile(t)
		assertReports(t, s, "True|NoAcceptedRelease|"+remedy+"1.0.0: signed by no key", idle)
	})
	t.Run("but not while only an update is rejected", func(t *testing.T) {
		s := restarted(t)
		s.accepts(acceptedRelease("1.0.0"))
		s.at(time.Second)
		s.reconcile(t)
		s.progresses(progressOf("1.0.0", 4, 4))
		s.edit(t, func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Image: imageOf("1.1.0")}) })
		s.at(2 * time.Second)
		s.reconcile(t)
		s.accepts(rejected("1.1.0"))
		s.at(time.Minute)
		s.reconcile(t)
		assertReports(t, s, "False||", "False||Cluster version is 1.0.0")
		assert.Equal(t, "False|RetrievePayload|1.1.0: signed by no key", said(s.get(t).Status, api.ReleaseAccepted))
	})
	t.Run("during a first install", func(t *testing.T) {
		s := newScribe(t)
		s.reconcile(t)
		s.accepts(rejected("1.0.0"))
		s.reconcile(t)
		s.at(10 * time.Second)
		s.reconcile(t)
		status := s.get(t).Status
		assert.Equal(t, "True|NoAcceptedRelease|The operator applies and repairs nothing until it accepts a release. Remove the cause. 1.0.0: signed by no key",
			said(status, api.Failing))
		assert.Equal(t, "True|NoAcceptedRelease|Unable to apply "+imageOf("1.0.0")+": no release is accepted, so nothing is applied or repaired",
			said(status, configv1.OperatorProgressing))

		before := s.acceptance.snapshot().Key
		s.edit(t, func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Image: imageOf("1.0.0")}) })
		s.at(12 * time.Second)
		s.reconcile(t)
		require.NotEqual(t, before, s.acceptance.snapshot().Key, "the edit is another question")
		assert.Equal(t, said(status, api.Failing), said(s.get(t).Status, api.Failing), "it is not answered yet")
		asked, _ := s.acceptance.change(func(a accept.Decision) accept.Decision { return a.Resume(before, rejected("0.9.0")) })
		assert.True(t, asked.KnowsResumption(before, rejected("0.9.0")), "the attempt is superseded")
		s.at(14 * time.Second)
		s.reconcile(t)
		assert.Equal(t, said(status, api.Failing), said(s.get(t).Status, api.Failing))
	})
	t.Run("after a restart during a first install", func(t *testing.T) {
		s := newScribe(t)
		cv := s.get(t)
		cv.Status = clusterAt(partial("1.0.0")).Status
		require.NoError(t, s.client.Status().Update(t.Context(), cv))
		s.reconcile(t)
		s.accepts(rejected("1.0.0"))
		s.reconcile(t)
		s.at(10 * time.Second)
		s.reconcile(t)
		assert.Equal(t, "True|NoAcceptedRelease|The operator applies and repairs nothing until it accepts a release. Remove the cause, or request a release "+
			"by digest: "+api.RequestByDigest+" (the same digest from another registry, or another release with --force). 1.0.0: signed by no key", said(s.get(t).Status, api.Failing))
	})
}

// TestUnansweredRetrievalIsReported restarts the operator of a healthy cluster while its registry does not respond.
func TestUnansweredRetrievalIsReported(t *testing.T) {
	s := newScribe(t)
	cv := s.get(t)
	cv.Status = clusterAt(completed("1.0.0")).Status
	cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: api.ReleaseAccepted, Status: configv1.ConditionTrue, Message: "before"}}
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	result := s.reconcile(t)
	assert.Equal(t, "True||before", said(s.get(t).Status, api.ReleaseAccepted), "a restart does not change it at once")
	s.at(result.RequeueAfter)
	s.reconcile(t)
	assert.Contains(t, said(s.get(t).Status, api.ReleaseAccepted), "Unknown|RetrievePayload|Retrieving and verifying payload")
	s.accepts(acceptedRelease("1.0.0"))
	s.at(time.Minute)
	s.reconcile(t)
	assert.Contains(t, said(s.get(t).Status, api.ReleaseAccepted), "True|PayloadLoaded|")
}
