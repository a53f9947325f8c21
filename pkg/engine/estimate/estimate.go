// Package estimate estimates the remaining time of a rollout. It uses the durations of runlevels in earlier rollouts of the same cluster
// or, without those, the pace of the current rollout. It is pure: it takes durations and progress, and returns a range.
package estimate

import (
	"slices"
	"time"
)

// Level is one completed runlevel of an earlier rollout.
type Level struct {
	Runlevel  int
	Manifests int
	// Took is the time from the runlevel's start to its last settled gate. It includes waits and excludes pauses.
	Took time.Duration
}

// Rollout contains the completed runlevels of one rollout.
type Rollout []Level

// State is one runlevel of the current rollout.
type State struct {
	Runlevel int
	// Manifests is the number of manifests in the runlevel, Done the number of those that have settled.
	Manifests, Done int
	// Complete is true once all manifests of the runlevel have settled.
	Complete bool
	// Spent is the time spent on the runlevel so far, measured like Level.Took; zero before its start.
	Spent time.Duration
}

// Basis is the source of an estimate.
type Basis string

const (
	// History is the durations of runlevels in earlier rollouts.
	History Basis = "History"
	// ThisRollout is the pace of the current rollout.
	ThisRollout Basis = "ThisRollout"
)

// Estimate is the remaining time of a rollout.
type Estimate struct {
	Low, High time.Duration
	Basis     Basis
	// Rollouts is the number of earlier rollouts used.
	Rollouts int
}

const (
	// maxTook is the longest credible duration. Anything longer is a measurement error, and the sum of many could overflow.
	maxTook = 30 * 24 * time.Hour
	// paceShare is the divisor for the share of settled manifests that makes the pace meaningful: one fifth.
	paceShare = 5
	// A single earlier rollout predicts less than several that agree, and the pace predicts less than an earlier duration.
	oneLow, oneHigh   = 0.7, 1.5
	manyLow, manyHigh = 0.8, 1.25
	paceLow, paceHigh = 0.5, 2.0
	// outlier is the factor from the median beyond which one of several durations is ignored.
	outlier = 2
	// overdue is the share of its expected duration that a runlevel still gets after it has exceeded all earlier durations.
	overdue = 0.1
)

// Remaining estimates the remaining time. It returns false if there is no basis for an estimate yet. At the same moment, more progress
// never results in a longer estimate. No value is negative.
func Remaining(past []Rollout, now []State) (Estimate, bool) {
	past = usable(past)
	if len(past) == 0 {
		return byPace(now)
	}
	out := Estimate{Basis: History, Rollouts: len(past)}
	for _, state := range now {
		if state.Complete {
			continue
		}
		expected := expect(past, state)
		left := expected.remaining(state)
		out.Low += left.low
		out.High += left.high
	}
	return out, true
}

// bounds is a range of durations.
type bounds struct{ low, high time.Duration }

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

// remaining returns the remaining time of a runlevel with this expected duration. Progress shortens the lower bound. It shortens the upper
// bound only once the runlevel is overdue, because a runlevel often spends most of its time waiting for its last gate.
func (e bounds) remaining(state State) bounds {
	open := 1.0
	if state.Manifests > 0 {
		open = 1 - float64(min(max(state.Done, 0), state.Manifests))/float64(state.Manifests)
	}
	spent := max(state.Spent, 0)
	low := min(max(e.low-spent, 0), scale(e.low, open))
	return bounds{low, max(e.high-spent, scale(e.high, overdue*open), low)}
}

// expect returns the expected duration of a runlevel. For a new runlevel, it is based on the earlier durations per manifest.
func expect(past []Rollout, state State) bounds {
	var took []time.Duration
	for _, rollout := range past {
		for _, level := range rollout {
			if level.Runlevel == state.Runlevel {
				took = append(took, level.Took)
			}
		}
	}
	if len(took) > 0 {
		return rangeOf(took)
	}
	for _, rollout := range past {
		took = append(took, rollout.perManifest())
	}
	slices.Sort(took)
	manifests := float64(max(state.Manifests, 1))
	return bounds{capped(took[0], paceLow*manifests), capped(took[len(took)-1], paceHigh*manifests)}
}

// rangeOf widens durations to a likely range for the next one. It ignores one outlier among three or more: an update during which an
// administrator replaced a disk says nothing about the next update.
func rangeOf(took []time.Duration) bounds {
	slices.Sort(took)
	if len(took) == 1 {
		return bounds{scale(took[0], oneLow), scale(took[0], oneHigh)}
	}
	if median := took[len(took)/2]; len(took) > 2 {
		first, last := took[0], took[len(took)-1]
		// Both can be outliers. Then the longest is the farther one: it exceeds the median by more than the whole median.
		switch {
		case last > outlier*median:
			took = took[:len(took)-1]
		case outlier*first < median:
			took = took[1:]
		}
	}
	return bounds{scale(took[0], manyLow), scale(took[len(took)-1], manyHigh)}
}

// perManifest returns the mean time per manifest.
func (r Rollout) perManifest() time.Duration {
	var took time.Duration
	manifests := 0
	for _, level := range r {
		took += level.Took
		manifests += level.Manifests
	}
	return took / time.Duration(max(manifests, 1))
}

// byPace estimates from the time that the current rollout has needed so far.
func byPace(now []State) (Estimate, bool) {
	var spent time.Duration
	all, done, complete := 0, 0, false
	for _, state := range now {
		spent += min(max(state.Spent, 0), maxTook)
		all += max(state.Manifests, 0)
		done += min(max(state.Done, 0), max(state.Manifests, 0))
		complete = complete || state.Complete
	}
	if !complete || spent == 0 || done*paceShare < all || done == 0 {
		return Estimate{}, false
	}
	rest := float64(all-done) / float64(done)
	return Estimate{Low: capped(spent, rest*paceLow), High: capped(spent, rest*paceHigh), Basis: ThisRollout}, true
}

// capped returns d*by, but at most maxTook.
func capped(d time.Duration, by float64) time.Duration {
	return time.Duration(min(float64(d)*by, float64(maxTook)))
}

// usable drops impossible measurements.
func usable(past []Rollout) []Rollout {
	var out []Rollout
	for _, rollout := range past {
		var kept Rollout
		for _, level := range rollout {
			if level.Took >= 0 && level.Took <= maxTook && level.Manifests >= 0 {
				kept = append(kept, level)
			}
		}
		if len(kept) > 0 {
			out = append(out, kept)
		}
	}
	return out
}
