package estimate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/estimate"
)

const minute = time.Minute

// took returns a rollout of runlevels 10, 20, … with these durations in minutes and ten manifests each.
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

func TestRemainingUsesEarlierUpdates(t *testing.T) {
	for _, test := range []struct {
		name      string
		past      []estimate.Rollout
		now       []estimate.State
		known     bool
		low, high time.Duration
		basis     estimate.Basis
	}{
		{"has no estimate before the first runlevel completes", nil, []estimate.State{open(10, 3, minute), open(20, 0, 0)}, false, 0, 0, ""},
		{
			"has no estimate after only a few manifests", nil,
			[]estimate.State{{Runlevel: 10, Manifests: 1, Done: 1, Complete: true, Spent: minute}, open(20, 1, 0), open(30, 0, 0)},
			false, 0, 0, "",
		},
		{
			"uses the current pace during the first update", nil,
			[]estimate.State{complete(10), open(20, 0, 0), open(30, 0, 0)},
			true, 10 * minute, 40 * minute, estimate.ThisRollout,
		},
		{
			"widens the duration of a single earlier update",
			[]estimate.Rollout{took(10, 20)},
			[]estimate.State{complete(10), open(20, 0, 0)},
			true, 14 * minute, 30 * minute, estimate.History,
		},
		{
			"uses the range of several earlier updates",
			[]estimate.Rollout{took(10, 20), took(10, 24)},
			[]estimate.State{complete(10), open(20, 0, 0)},
			true, 16 * minute, 30 * minute, estimate.History,
		},
		{
			"ignores one update that was far too long",
			[]estimate.Rollout{took(10), took(600), took(12)},
			[]estimate.State{open(10, 0, 0)},
			true, 8 * minute, 15 * minute, estimate.History,
		},
		{
			"ignores one update that was far too short",
			[]estimate.Rollout{took(10), took(1), took(12)},
			[]estimate.State{open(10, 0, 0)},
			true, 8 * minute, 15 * minute, estimate.History,
		},
		{
			"subtracts the time spent on the current runlevel",
			[]estimate.Rollout{took(10), took(10)},
			[]estimate.State{open(10, 2, 5*minute)},
			true, 3 * minute, 7*minute + 30*time.Second, estimate.History,
		},
		{
			"keeps some time for an overdue runlevel",
			[]estimate.Rollout{took(10), took(10)},
			[]estimate.State{open(10, 0, 500*minute)},
			true, 0, minute + 15*time.Second, estimate.History,
		},
		{
			"estimates a new runlevel from its number of manifests",
			[]estimate.Rollout{took(10, 10)},
			[]estimate.State{complete(10), complete(20), open(70, 0, 0)},
			true, 5 * minute, 20 * minute, estimate.History,
		},
		{"has no time left when everything is complete", []estimate.Rollout{took(10)}, []estimate.State{complete(10)}, true, 0, 0, estimate.History},
		{
			"ignores impossible durations",
			[]estimate.Rollout{{{Runlevel: 10, Manifests: 10, Took: -minute}, {Runlevel: 20, Manifests: 1, Took: 1 << 62}, {Runlevel: 30, Manifests: -1, Took: minute}}},
			[]estimate.State{open(10, 0, 0)},
			false, 0, 0, "",
		},
		{"ignores an empty earlier rollout", []estimate.Rollout{{}}, nil, false, 0, 0, ""},
		{
			"ignores no duration of only two",
			[]estimate.Rollout{took(1), took(10)},
			[]estimate.State{open(10, 0, 0)},
			true, 48 * time.Second, 12*minute + 30*time.Second, estimate.History,
		},
		{
			"keeps a duration of exactly twice the median",
			[]estimate.Rollout{took(10), took(10), took(20)},
			[]estimate.State{open(10, 0, 0)},
			true, 8 * minute, 25 * minute, estimate.History,
		},
		{
			"keeps a duration of exactly half the median",
			[]estimate.Rollout{took(5), took(10), took(10)},
			[]estimate.State{open(10, 0, 0)},
			true, 4 * minute, 12*minute + 30*time.Second, estimate.History,
		},
		{
			"ignores the longest if both ends are outliers",
			[]estimate.Rollout{took(1), took(10), took(30)},
			[]estimate.State{open(10, 0, 0)},
			true, 48 * time.Second, 12*minute + 30*time.Second, estimate.History,
		},
		{
			"shortens the lower bound by the settled manifests",
			[]estimate.Rollout{took(10), took(10)},
			[]estimate.State{open(10, 5, 0)},
			true, 4 * minute, 12*minute + 30*time.Second, estimate.History,
		},
		{
			"expects the whole duration of a runlevel without manifests",
			[]estimate.Rollout{took(10), took(10)},
			[]estimate.State{{Runlevel: 10}},
			true, 8 * minute, 12*minute + 30*time.Second, estimate.History,
		},
		{
			"uses the pace once exactly a fifth has settled", nil,
			[]estimate.State{{Runlevel: 10, Manifests: 2, Done: 2, Complete: true, Spent: minute}, {Runlevel: 20, Manifests: 8}},
			true, 2 * minute, 8 * minute, estimate.ThisRollout,
		},
		{
			"accepts durations at both limits and a runlevel without manifests",
			[]estimate.Rollout{{{Runlevel: 10}, {Runlevel: 20, Manifests: 1, Took: 30 * 24 * time.Hour}}},
			[]estimate.State{open(10, 0, 0), open(20, 0, 0)},
			true, 21 * 24 * time.Hour, 45 * 24 * time.Hour, estimate.History,
		},
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

// world returns random earlier rollouts and a rollout in progress.
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

// TestMoreProgressNeverMeansMoreTime checks that at any moment more progress never results in a longer estimate. No value is negative.
func TestMoreProgressNeverMeansMoreTime(t *testing.T) {
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

// TestOneOutlierChangesLittle checks that one outlier among many similar updates has no effect.
func TestOneOutlierChangesLittle(t *testing.T) {
	past := []estimate.Rollout{took(10), took(11), took(12), took(10)}
	now := []estimate.State{open(10, 0, 0)}
	without, _ := estimate.Remaining(past, now)
	with, _ := estimate.Remaining(append(past, took(5000)), now)
	assert.Equal(t, without.High, with.High)
	assert.Equal(t, without.Low, with.Low)
}
