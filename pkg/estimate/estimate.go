// Package estimate tells how long a rollout will take from here, by how long its runlevels took in earlier rollouts of the
// same cluster or, where there are none, by its own pace. It is pure: durations and progress go in, a range comes out.
package estimate

import (
	"slices"
	"time"
)

// Level is one runlevel of a rollout that completed.
type Level struct {
	Runlevel  int
	Manifests int
	// Took is from its turn to its last gate, waits counted, pauses not.
	Took time.Duration
}

// Rollout are the runlevels of one rollout that completed.
type Rollout []Level

// State is one runlevel of the rollout under way.
type State struct {
	Runlevel int
	// Manifests of the runlevel, and those that have settled.
	Manifests, Done int
	// Complete: all of it has settled once.
	Complete bool
	// Spent is how long it has been worked on, in the same way as Level.Took; zero before its turn.
	Spent time.Duration
}

// Basis is what an estimate is made of.
type Basis string

const (
	// History: how long runlevels took before.
	History Basis = "History"
	// ThisRollout: the pace of the rollout itself.
	ThisRollout Basis = "ThisRollout"
)

// Estimate is how much time the rest of a rollout takes.
type Estimate struct {
	Low, High time.Duration
	Basis     Basis
	// Rollouts is how many earlier ones went into it.
	Rollouts int
}

const (
	// maxTook bounds what is believed: what is longer is no measurement, and many of them would overflow.
	maxTook = 30 * 24 * time.Hour
	// A pace is told by once a fifth of the manifests has settled.
	paceShare = 5
	// A single earlier rollout tells less than several that agree, a pace less than a duration.
	oneLow, oneHigh   = 0.7, 1.5
	manyLow, manyHigh = 0.8, 1.25
	paceLow, paceHigh = 0.5, 2.0
	// outlier is how many times longer or shorter than the median one of several durations must be to be left aside.
	outlier = 2
	// overdue is which part of its duration a runlevel may still take that has taken longer than ever before.
	overdue = 0.1
)

// Remaining estimates how long the rest takes. It reports false if there is nothing yet to tell by. The more is done at
// the same moment, the less remains; nothing is ever negative.
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
		left := expected.left(state)
		out.Low += left.low
		out.High += left.high
	}
	return out, true
}

// span is a range of durations.
type span struct{ low, high time.Duration }

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

// left is what remains of a runlevel that is expected to take so long. Both ends shrink with what is done, because a
// runlevel often waits for the last gate most of the time, the upper one by time alone until it is overdue.
func (e span) left(state State) span {
	open := 1.0
	if state.Manifests > 0 {
		open = 1 - float64(min(max(state.Done, 0), state.Manifests))/float64(state.Manifests)
	}
	spent := max(state.Spent, 0)
	low := min(max(e.low-spent, 0), scale(e.low, open))
	return span{low, max(e.high-spent, scale(e.high, overdue*open), low)}
}

// expect is how long a runlevel takes: as long as it did before, or, if it was never there before, as long as so many
// manifests did.
func expect(past []Rollout, state State) span {
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
	return span{capped(took[0], paceLow*manifests), capped(took[len(took)-1], paceHigh*manifests)}
}

// rangeOf widens durations to a range that the next one may well lie in. One of three or more that is far off is left
// aside: a night in which somebody had to fetch a new disk says nothing about the next update.
func rangeOf(took []time.Duration) span {
	slices.Sort(took)
	if len(took) == 1 {
		return span{scale(took[0], oneLow), scale(took[0], oneHigh)}
	}
	if median := took[len(took)/2]; len(took) > 2 {
		first, last := took[0], took[len(took)-1]
		switch high, low := last > outlier*median, outlier*first < median; {
		case high && (!low || last-median >= median-first):
			took = took[:len(took)-1]
		case low:
			took = took[1:]
		}
	}
	return span{scale(took[0], manyLow), scale(took[len(took)-1], manyHigh)}
}

// perManifest is the pace of a rollout.
func (r Rollout) perManifest() time.Duration {
	var took time.Duration
	manifests := 0
	for _, level := range r {
		took += level.Took
		manifests += level.Manifests
	}
	return took / time.Duration(max(manifests, 1))
}

// byPace goes by what this rollout took so far.
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

// capped is a product that is still a duration.
func capped(d time.Duration, by float64) time.Duration {
	return time.Duration(min(float64(d)*by, float64(maxTook)))
}

// usable leaves aside what cannot have been measured.
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
