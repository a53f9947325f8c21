package accept_test

import (
	"errors"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// TestAnswersAreKeptUntilTheQuestionChanges asks several questions.
func TestAnswersAreKeptUntilTheQuestionChanges(t *testing.T) {
	cv := clusterAt(completed("1.0.0"))
	target, settings := request.Target{Image: imageOf("1.1.0")}, accept.Settings{}
	var d accept.Decision
	answer := func(a accept.Acceptance) {
		assert.True(t, d.IsNews(d.Key, a))
		d = d.Answer(d.Key, a, cluster.Now())
	}
	recheck := func() bool {
		before := d
		d = d.Ask(accept.NewQuestion(cv, target, 0, settings), cv, cluster.Now())
		return d.NeedsRecheck(before)
	}
	ask := func() string {
		recheck()
		return d.Key
	}
	assert.Equal(t, "1", ask())
	assert.Equal(t, "1", ask())
	answer(acceptedRelease("1.1.0"))
	assert.Equal(t, "1", ask(), "the question is answered")
	settings.FeatureSet = "TechPreviewNoUpgrade"
	assert.Equal(t, "2", ask())
	assert.True(t, d.Latest.Done, "the last answer stands until there is a new one")
	target = request.Target{Image: imageOf("1.2.0")}
	assert.Equal(t, "3", ask())
	assert.Empty(t, d.Latest.Step, "another release has no answer")

	checking := acceptedRelease("1.2.0")
	checking.Done, checking.Step = false, api.ReasonPreconditionChecks
	answer(checking)
	cv.Generation++
	assert.False(t, recheck(), "the preconditions are being checked")
	rejected := checking
	rejected.Err = errors.New("no signature found")
	answer(rejected)
	assert.True(t, recheck(), "a change during the check causes another check")
	assert.False(t, recheck(), "once")
	cv.Generation++
	assert.True(t, recheck(), "a change of the spec repeats the preconditions of a rejected release")
	assert.False(t, recheck(), "once")
	assert.Equal(t, "3", d.Key)
}

// TestRequestStaysPendingWithAnotherClock has a newest release that a process began whose clock was ahead.
func TestRequestStaysPendingWithAnotherClock(t *testing.T) {
	cv := cluster.Wants(clusterAt(completed("1.1.0"), completed("1.0.0")), configv1.Update{Image: "example.com/r:stable"})
	cv.Status.ObservedGeneration = cv.Generation
	before := accept.Decision{}.Observe(cv, cv.Status.History[0].StartedTime.Add(-time.Hour)).Identity.Record(api.ReleaseStatusStatus{})
	after := identity.Recall(&before, cv, identity.Of(cv), request.Choose(cv, imageOf("0.1.0"), false), imageOf("0.1.0")).Record(api.ReleaseStatusStatus{})
	assert.Equal(t, before, after, "the next process has the same request")
}
