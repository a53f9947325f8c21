package clusterversion

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
)

// TestAnswersAreKeptUntilTheQuestionChanges asks several questions.
func TestAnswersAreKeptUntilTheQuestionChanges(t *testing.T) {
	cv := clusterAt(completed("1.0.0"))
	target, settings := request.Target{Image: imageOf("1.1.0")}, accept.Settings{}
	var m answers
	answer := func(a accept.Acceptance) {
		assert.True(t, m.isNews(m.key, a))
		m = m.answer(m.key, a, now)
	}
	recheck := func() bool {
		before := m
		m = m.ask(accept.NewQuestion(cv, target, 0, settings), cv, now)
		return m.recheck(before)
	}
	ask := func() string {
		recheck()
		return m.key
	}
	assert.Equal(t, "1", ask())
	assert.Equal(t, "1", ask())
	answer(acceptedRelease("1.1.0"))
	assert.Equal(t, "1", ask(), "the question is answered")
	settings.FeatureSet = "TechPreviewNoUpgrade"
	assert.Equal(t, "2", ask())
	assert.True(t, m.latest.Done, "the last answer stands until there is a new one")
	target = request.Target{Image: imageOf("1.2.0")}
	assert.Equal(t, "3", ask())
	assert.Empty(t, m.latest.Step, "another release has no answer")

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
	assert.Equal(t, "3", m.key)
}
