package clusterversion

import (
	"errors"
	"sync"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// acceptance is the one writer of the decision. A reconcile sets the question and adopts the answer. The background work answers it. Both
// read snapshots.
type acceptance struct {
	mu      sync.Mutex
	current accept.Decision
}

// snapshot returns the current decision.
func (a *acceptance) snapshot() accept.Decision {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

// change replaces the decision with the result of a transition. It returns the decision before and after it.
func (a *acceptance) change(transition func(accept.Decision) accept.Decision) (before, after accept.Decision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before = a.current
	a.current = transition(before)
	return before, a.current
}

// Reset drops all state.
func (a *acceptance) Reset() { a.change(accept.Decision.Reset) }

// unapplied returns the reason why the operator applies nothing, nil if a release is accepted or no reason is known yet.
func unapplied(idle accept.Idleness, cv *configv1.ClusterVersion) *report.Problem {
	if idle.Cause == "" {
		return nil
	}
	remedy := ""
	switch {
	case reported.HasCompleted(cv.Status.History):
		remedy = ", or request a release by digest: " + api.RequestByDigest + " (with --force if no one signed it)"
	case len(cv.Status.History) > 0: // before that, every request waits for the install
		remedy = ", or request a release by digest: " + api.RequestByDigest + " (the same digest from another registry, or another release with --force)"
	}
	return &report.Problem{
		Reason: api.ReasonNoAcceptedRelease, Since: idle.Since, Err: errors.New(idle.Cause),
		Message: "The operator applies and repairs nothing until it accepts a release. Remove the cause" + remedy + ". " + idle.Cause,
	}
}
