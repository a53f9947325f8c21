package rollout_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// stamps stands in for the watches on the causes of failures.
type stamps struct {
	// now is the state of the webhook, and others are those of other objects.
	now     string
	others  rollout.Stamp
	watched bool
}

func (s *stamps) Stamp(_ context.Context, _ *manifest.Manifest, err error) rollout.Stamp {
	s.watched = err != nil
	stamp := maps.Clone(s.others)
	if stamp == nil {
		stamp = rollout.Stamp{}
	}
	if s.now != "" {
		stamp["webhook"] = s.now
	}
	return stamp
}

// passes returns a function that runs the next pass of a rollout with one manifest, a.
func passes(t *testing.T, c *cluster, causes rollout.Causes) (next func() report.Progress) {
	t.Helper()
	plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
	executor := c.executor()
	executor.Causes = causes
	var settled rollout.Settled
	return func() report.Progress {
		progress, after, err := executor.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		settled = after
		return progress
	}
}

// TestChangeOfTheCauseEndsTheWait checks that a failed apply is retried as soon as its cause changes, at most once a second.
//
//threat:tenant-keeps-changing
func TestChangeOfTheCauseEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, causes := newCluster(), &stamps{}
		broken := true
		c.onApply = func(context.Context, string) error {
			if broken {
				return errors.New("the webhook does not answer")
			}
			return nil
		}
		pass := passes(t, c, causes)
		var progress report.Progress
		for range 7 {
			progress = pass()
			time.Sleep(time.Until(progress.RetryAt))
		}
		progress = pass()
		require.Greater(t, time.Until(progress.RetryAt), 10*time.Second)
		assert.True(t, causes.watched)
		c.takeLog()

		causes.now = "before" // the first state from the watches, which is not a change
		progress = pass()
		assert.Empty(t, c.takeLog())
		require.Greater(t, time.Until(progress.RetryAt), 10*time.Second)

		time.Sleep(5 * time.Second)
		causes.now = "after"
		progress = pass()
		assert.Equal(t, []string{"fail a"}, c.takeLog())
		assert.Less(t, time.Until(progress.RetryAt), time.Second, "the change may take effect slightly later")

		for i := range 100 { // a tenant keeps changing the cause
			causes.now = time.Duration(i).String()
			pass()
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, len(c.takeLog()), 16, "in ten seconds")

		broken = false
		time.Sleep(time.Until(progress.RetryAt))
		causes.now = "repaired"
		time.Sleep(time.Second)
		progress = pass()
		assert.True(t, progress.Complete)
		assert.False(t, causes.watched, "the watches end with the error")
	})
}

// TestMoreCausesDoNotEndTheWait begins to watch another object, whose first state is not a change. A change of the first object counts, even if it
// comes with another object.
func TestMoreCausesDoNotEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, causes := newCluster(), &stamps{now: "broken"}
		c.onApply = func(context.Context, string) error { return errors.New("the webhook does not answer") }
		run := passes(t, c, causes)
		pass := func() time.Duration { return time.Until(run().RetryAt) }
		for range 7 {
			time.Sleep(pass())
		}
		wait := pass()
		causes.others = rollout.Stamp{"namespace": "1"}
		time.Sleep(time.Second)
		c.takeLog()
		assert.Greater(t, pass(), wait/2)
		assert.Empty(t, c.takeLog())

		causes.others = rollout.Stamp{"namespace": "1", "object": "1"}
		causes.now = "repaired"
		pass()
		assert.Equal(t, []string{"fail a"}, c.takeLog())
	})
}

// TestChangeDuringAnAttemptEndsTheWait checks that a repair between the server's rejection and the end of the attempt is not missed, even if
// it changes the error.
func TestChangeDuringAnAttemptEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, causes := newCluster(), &stamps{now: "broken"}
		repaired, failure := func() {}, errors.New("the webhook does not answer")
		c.onApply = func(context.Context, string) error {
			repaired()
			return failure
		}
		run := passes(t, c, causes)
		pass := func() time.Duration { return time.Until(run().RetryAt) }
		for range 7 {
			time.Sleep(pass())
		}
		repaired = func() { causes.now, failure = "repaired", errors.New("the webhook was just created") }
		wait := pass()
		assert.LessOrEqual(t, wait, time.Second)
		c.takeLog()
		time.Sleep(wait)
		wait = pass()
		assert.Equal(t, []string{"fail a"}, c.takeLog())

		for range 6 { // the cause no longer changes
			time.Sleep(wait)
			wait = pass()
		}
		assert.Greater(t, wait, 5*time.Second, "the wait grows again")
	})
}
