package estimate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/estimate"
)

const minute = time.Minute

// took is a rollout of runlevels 10, 20, … that took so many minutes, of ten manifests each.
func took(minutes ...int) estimate.Rollout {
	var out estimate.Rollout
	for i, m := range minutes {
		out = append(out, estimate.Level{Runlevel: 10 * (i + 1), Manifests: 10, Took: time.Duration(m) * minute})
	}
	return out
}

func complete(runlevel int) estimate.State {
	return estimate.State{Runlevel: runlevel, Manifests: 10, Done: 10, Complete: true, Spent: 10 * minute}
}

func open(runlevel, done int, spent time.Duration) estimate.State {
	return estimate.State{Runlevel: runlevel, Manifests: 10, Done: done, Spent: spent}
}

func TestRemaining(t *testing.T) {
	for _, test := range []struct {
		name      string
		past      []estimate.Rollout
		now       []estimate.State
		known     bool
		low, high time.Duration
		basis     estimate.Basis
	}{
		{"knows nothing before anything has completed", nil, []estimate.State{open(10, 3, minute), open(20, 0, 0)}, false, 0, 0, ""},
		{
			"knows nothing by the first few manifests", nil,
			[]estimate.State{{Runlevel: 10, Manifests: 1, Done: 1, Complete: true, Spent: minute}, open(20, 1, 0), open(30, 0, 0)},
			false, 0, 0, "",
		},
		{
			"goes by its own pace in a cluster's first update", nil,
			[]estimate.State{complete(10), open(20, 0, 0), open(30, 0, 0)},
			true, 10 * minute, 40 * minute, estimate.ThisRollout,
		},
		{
			"widens what one earlier update took",
			[]estimate.Rollout{took(10, 20)},
			[]estimate.State{complete(10), open(20, 0, 0)},
			true, 14 * minute, 30 * minute, estimate.History,
		},
		{
			"takes the range of several",
			[]estimate.Rollout{took(10, 20), took(10, 24)},
			[]estimate.State{complete(10), open(20, 0, 0)},
			true, 16 * minute, 30 * minute, estimate.History,
		},
		{
			"leaves one night aside that was far too long",
			[]estimate.Rollout{took(10), took(600), took(12)},
			[]estimate.State{open(10, 0, 0)},
			true, 8 * minute, 15 * minute, estimate.History,
		},
		{
			"leaves one aside that was far too short",
			[]estimate.Rollout{took(10), took(1), took(12)},
			[]estimate.State{open(10, 0, 0)},
			true, 8 * minute, 15 * minute, estimate.History,
		},
		{
			"counts what was spent on the runlevel under way",
			[]estimate.Rollout{took(10), took(10)},
			[]estimate.State{open(10, 2, 5*minute)},
			true, 3 * minute, 7*minute + 30*time.Second, estimate.History,
		},
		{
			"still expects something of one that is overdue",
			[]estimate.Rollout{took(10), took(10)},
			[]estimate.State{open(10, 0, 500*minute)},
			true, 0, minute + 15*time.Second, estimate.History,
		},
		{
			"expects of a new runlevel what so many manifests took",
			[]estimate.Rollout{took(10, 10)},
			[]estimate.State{complete(10), complete(20), open(70, 0, 0)},
			true, 5 * minute, 20 * minute, estimate.History,
		},
		{"has nothing left when all is done", []estimate.Rollout{took(10)}, []estimate.State{complete(10)}, true, 0, 0, estimate.History},
		{
			"leaves aside what cannot have been measured",
			[]estimate.Rollout{{{Runlevel: 10, Manifests: 10, Took: -minute}, {Runlevel: 20, Manifests: 1, Took: 1 << 62}, {Runlevel: 30, Manifests: -1, Took: minute}}},
			[]estimate.State{open(10, 0, 0)},
			false, 0, 0, "",
		},
		{"is not misled by a rollout of nothing", []estimate.Rollout{{}}, nil, false, 0, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, known := estimate.Remaining(test.past, test.now)
			require.Equal(t, test.known, known)
			assert.Equal(t, test.low, got.Low)
			assert.Equal(t, test.high, got.High)
			assert.Equal(t, test.basis, got.Basis)
		})
	}
}

// world makes up a cluster's history and a rollout that is somewhere in it.
func world(r *rand.Rand) ([]estimate.Rollout, []estimate.State) {
	var past []estimate.Rollout
	for range r.IntN(6) {
		var rollout estimate.Rollout
		for level := range 1 + r.IntN(6) {
			rollout = append(rollout, estimate.Level{
				Runlevel: 10 * level, Manifests: r.IntN(30), Took: time.Duration(r.Int64N(int64(40 * 24 * time.Hour))),
			})
		}
		past = append(past, rollout)
	}
	var now []estimate.State
	levels := 1 + r.IntN(8)
	under := r.IntN(levels)
	for level := range levels {
		s := estimate.State{Runlevel: 10 * level, Manifests: 1 + r.IntN(30)}
		switch {
		case level < under:
			s.Done, s.Complete, s.Spent = s.Manifests, true, time.Duration(r.Int64N(int64(time.Hour)))
		case level == under:
			s.Done, s.Spent = r.IntN(s.Manifests), time.Duration(r.Int64N(int64(time.Hour)))
		}
		now = append(now, s)
	}
	return past, now
}

// TestMoreDoneIsNotLater: at one moment, a rollout that has come further never has more left, and nothing is negative.
func TestMoreDoneIsNotLater(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	for range 20000 {
		past, now := world(r)
		before, known := estimate.Remaining(past, now)
		require.GreaterOrEqual(t, before.Low, time.Duration(0))
		require.GreaterOrEqual(t, before.High, before.Low)
		if !known {
			continue
		}
		for i := range now {
			if now[i].Complete {
				continue
			}
			if now[i].Done++; now[i].Done == now[i].Manifests {
				now[i].Complete = true
			}
			break
		}
		after, known := estimate.Remaining(past, now)
		require.True(t, known)
		require.LessOrEqual(t, after.Low, before.Low, "past %v now %v", past, now)
		require.LessOrEqual(t, after.High, before.High, "past %v now %v", past, now)
	}
}

// TestOneOutlierChangesLittle: of many updates that took alike, one that did not has no say.
func TestOneOutlierChangesLittle(t *testing.T) {
	past := []estimate.Rollout{took(10), took(11), took(12), took(10)}
	now := []estimate.State{open(10, 0, 0)}
	without, _ := estimate.Remaining(past, now)
	with, _ := estimate.Remaining(append(past, took(5000)), now)
	assert.Equal(t, without.High, with.High)
	assert.Equal(t, without.Low, with.Low)
}
