package clusterversion

import (
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/estimate"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// started is a rollout whose runlevels have no times yet.
func started(cv *configv1.ClusterVersion, progress rollout.Progress) api.CurrentRollout {
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

// trackRollout notes when runlevels began and completed. What is known of the same rollout already stays; the result
// shares nothing with it. A runlevel begins with the end of the one below, or with the end of the pause before it.
func trackRollout(known *api.CurrentRollout, next api.CurrentRollout, progress rollout.Progress, now time.Time) *api.CurrentRollout {
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	var before []api.RunlevelProgress
	if known != nil && known.Image == next.Image && known.StartedAt.Equal(&next.StartedAt) {
		before = known.Runlevels
	}
	begun := true // the turn of the lowest has come
	for _, level := range progress.Runlevels {
		entry := api.RunlevelProgress{Runlevel: int32(level.Runlevel), Manifests: int32(level.Total)} //nolint:gosec // few digits
		if i := slices.IndexFunc(before, func(r api.RunlevelProgress) bool { return r.Runlevel == entry.Runlevel }); i >= 0 {
			entry.StartedAt, entry.CompletedAt = before[i].StartedAt, before[i].CompletedAt
		}
		if entry.StartedAt == nil {
			entry.CompletedAt = nil // by whoever wrote that: nothing ends that did not begin
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

// remember puts a rollout that completed in front of those before.
func remember(history []api.CompletedRollout, current api.CurrentRollout, now time.Time) []api.CompletedRollout {
	entry := api.CompletedRollout{
		From: current.From, To: current.To, StartedAt: current.StartedAt, CompletedAt: metav1.NewTime(now.UTC().Truncate(time.Second)),
	}
	if entry.CompletedAt.Before(&entry.StartedAt) {
		entry.CompletedAt = entry.StartedAt // the clock was set back; the API server would refuse this and whatever comes after it
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

// estimateOf works out when the rollout will be complete; nil if that cannot be told.
func estimateOf(history []api.CompletedRollout, current api.CurrentRollout, progress rollout.Progress, now time.Time) *rollout.Estimate {
	past := make([]estimate.Rollout, len(history))
	for i, entry := range history {
		for _, level := range entry.Runlevels {
			past[i] = append(past[i], estimate.Level{Runlevel: int(level.Runlevel), Manifests: int(level.Manifests), Took: level.Took.Duration})
		}
	}
	states := make([]estimate.State, len(progress.Runlevels))
	for i, level := range progress.Runlevels {
		states[i] = estimate.State{Runlevel: level.Runlevel, Manifests: level.Total, Done: level.Done}
		times := current.Runlevels[i] // as trackRollout has made it of the same progress
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
	out := &rollout.Estimate{
		Low: remaining.Low.Round(time.Second), High: remaining.High.Round(time.Second), Basis: string(remaining.Basis), Rollouts: remaining.Rollouts,
	}
	if progress.Paused == nil || !progress.Paused.Reached {
		now = now.UTC().Truncate(time.Second)
		out.Earliest, out.Latest = now.Add(out.Low), now.Add(out.High)
	}
	return out
}

func estimateStatus(e *rollout.Estimate) *api.RolloutEstimate {
	if e == nil {
		return nil
	}
	out := &api.RolloutEstimate{
		RemainingLow: metav1.Duration{Duration: e.Low}, RemainingHigh: metav1.Duration{Duration: e.High},
		Basis: e.Basis, Rollouts: int32(e.Rollouts), //nolint:gosec // at most api.ReleaseRolloutHistory
	}
	if !e.Earliest.IsZero() {
		earliest, latest := metav1.NewTime(e.Earliest), metav1.NewTime(e.Latest)
		out.EarliestCompletion, out.LatestCompletion = &earliest, &latest
	}
	return out
}

// progressNow is the progress of the rollout under way with an estimate as of now, nil if there is none.
func (m *memory) progressNow(now time.Time) *rollout.Progress {
	if m.progress == nil || m.progress.Estimate == nil || m.control.current == nil {
		return m.progress
	}
	progress := *m.progress
	progress.Estimate = estimateOf(m.control.history, *m.control.current, progress, now)
	return &progress
}
