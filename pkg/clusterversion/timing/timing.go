// Package timing records when the runlevels of an update began and completed, keeps the durations of the last updates, and uses them to
// estimate when the current update will complete. It is pure. The ReleaseRollout stores the values.
package timing

import (
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/estimate"
	"github.com/cluster-version/cvo/pkg/engine/report"
)

// Start returns a rollout without times.
func Start(cv *configv1.ClusterVersion, progress report.Progress) api.CurrentRollout {
	out := api.CurrentRollout{To: progress.Release.Version, Image: progress.Release.Image, Mode: string(progress.Mode)}
	if history := cv.Status.History; len(history) > 0 {
		out.StartedAt = history[0].StartedTime
		for _, entry := range history[1:] {
			if entry.State == configv1.CompletedUpdate {
				out.From = entry.Version
				break
			}
		}
	}
	return out
}

// Track records when runlevels began and completed. It keeps the known times of the same rollout. The result shares no memory with known. A
// runlevel begins when the one below ends, or when the pause before it ends.
func Track(known *api.CurrentRollout, next api.CurrentRollout, progress report.Progress, now time.Time) *api.CurrentRollout {
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	var before []api.RunlevelProgress
	if known != nil && known.Image == next.Image && known.StartedAt.Equal(&next.StartedAt) {
		before = known.Runlevels
	}
	begun := true // the lowest runlevel may begin at once
	for _, level := range progress.Runlevels {
		entry := api.RunlevelProgress{Runlevel: int32(level.Runlevel), Manifests: int32(level.Total)} // few digits
		if i := slices.IndexFunc(before, func(r api.RunlevelProgress) bool { return r.Runlevel == entry.Runlevel }); i >= 0 {
			entry.StartedAt, entry.CompletedAt = before[i].StartedAt, before[i].CompletedAt
		}
		if entry.StartedAt == nil {
			entry.CompletedAt = nil // another client wrote it: a runlevel that has not started cannot end
		}
		done := level.Done == level.Total
		held := progress.Paused != nil && level.Runlevel >= progress.Paused.Before
		if entry.StartedAt == nil && (done || begun && !held) {
			entry.StartedAt = at.DeepCopy()
		}
		if entry.CompletedAt == nil && done {
			entry.CompletedAt = at.DeepCopy()
		}
		begun = begun && entry.CompletedAt != nil
		next.Runlevels = append(next.Runlevels, entry)
	}
	return &next
}

// Complete prepends a completed rollout to the history.
func Complete(history []api.CompletedRollout, current api.CurrentRollout, now time.Time) []api.CompletedRollout {
	entry := api.CompletedRollout{
		From: current.From, To: current.To, StartedAt: current.StartedAt, CompletedAt: metav1.NewTime(now.UTC().Truncate(time.Second)),
	}
	if entry.CompletedAt.Before(&entry.StartedAt) {
		entry.CompletedAt = entry.StartedAt // the clock was set back; the API server would reject this entry and every later status
	}
	for _, level := range current.Runlevels {
		if level.StartedAt == nil || level.CompletedAt == nil {
			continue
		}
		entry.Runlevels = append(entry.Runlevels, api.RunlevelDuration{
			Runlevel: level.Runlevel, Manifests: level.Manifests, Took: metav1.Duration{Duration: max(level.CompletedAt.Sub(level.StartedAt.Time), 0)},
		})
	}
	history = slices.Insert(slices.Clone(history), 0, entry)
	return history[:min(len(history), api.ReleaseRolloutHistory)]
}

// Estimate computes when the rollout will complete; nil if unknown.
func Estimate(history []api.CompletedRollout, current api.CurrentRollout, progress report.Progress, now time.Time) *report.Estimate {
	past := make([]estimate.Rollout, len(history))
	for i, entry := range history {
		for _, level := range entry.Runlevels {
			past[i] = append(past[i], estimate.Level{Runlevel: int(level.Runlevel), Manifests: int(level.Manifests), Took: level.Took.Duration})
		}
	}
	states := make([]estimate.State, len(progress.Runlevels))
	for i, level := range progress.Runlevels {
		states[i] = estimate.State{Runlevel: level.Runlevel, Manifests: level.Total, Done: level.Done}
		times := current.Runlevels[i] // Track made current from the same progress
		switch {
		case times.CompletedAt != nil:
			states[i].Complete, states[i].Done = true, level.Total
			states[i].Spent = times.CompletedAt.Sub(times.StartedAt.Time)
		case times.StartedAt != nil:
			states[i].Spent = now.Sub(times.StartedAt.Time)
		}
	}
	remaining, known := estimate.Remaining(past, states)
	if !known || progress.Complete {
		return nil
	}
	out := &report.Estimate{
		Low: remaining.Low.Round(time.Second), High: remaining.High.Round(time.Second), Basis: string(remaining.Basis), Rollouts: remaining.Rollouts,
	}
	if progress.Paused == nil || !progress.Paused.Reached {
		now = now.UTC().Truncate(time.Second)
		out.Earliest, out.Latest = now.Add(out.Low), now.Add(out.High)
		return out.At(now)
	}
	return out
}

// Status returns an estimate in the form of the ReleaseRollout, nil for none.
func Status(e *report.Estimate) *api.RolloutEstimate {
	if e == nil {
		return nil
	}
	out := &api.RolloutEstimate{
		RemainingLow: metav1.Duration{Duration: e.Low}, RemainingHigh: metav1.Duration{Duration: e.High},
		Basis: e.Basis, Rollouts: int32(e.Rollouts), // at most api.ReleaseRolloutHistory
	}
	if !e.Earliest.IsZero() {
		earliest := metav1.NewTime(e.Earliest)
		out.EarliestCompletion = &earliest
	}
	if !e.Latest.IsZero() {
		latest := metav1.NewTime(e.Latest)
		out.LatestCompletion = &latest
	}
	return out
}
