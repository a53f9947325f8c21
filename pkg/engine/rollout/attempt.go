package rollout

import (
	"context"
	"time"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/engine/drift"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// The pass retries a failed apply after 200 ms, and doubles the wait up to 25 s, with a jitter of a fifth. After
// patientFailures it also watches the cause, and retries after a change that may have repaired it, but not within repairInterval of the
// last attempt; see Causes. The timer covers causes that no watch shows. While a server or webhook does not respond, the wait is shorter,
// because everything can continue once it is back.
var (
	retryDelay = backoff.Doubling{First: 200 * time.Millisecond, Max: 25 * time.Second}
	retryAway  = backoff.Doubling{First: retryDelay.First, Max: 5 * time.Second}
)

// schemaRetries is how often the pass retries an object with unknown fields before it first omits them, after the definition of its kind
// was changed. The API server serves a changed definition a moment after it has accepted it.
const schemaRetries = 3

func (p *pass) apply(
	ctx context.Context, n *taskgraph.Node, t *task, s *slot, object drift.Object, look observe.Look, need drift.Need,
) {
	content := object.Content
	s.entry.applied = s.entry.applied.Attempted(need)
	for _, operator := range t.precreate {
		if p.Observer.Object(operator.ID()) == nil {
			// This is only an early attempt. The operator's own node in the chain reports errors.
			_, _ = p.Applier.Precreate(ctx, operator)
		}
	}
	if err := p.flush(ctx, n, &s.entry, content); err != nil {
		p.failed(ctx, n.Manifest, content, s, err)
		return
	}
	p.stampCauses(ctx, n.Manifest, &s.entry.wait.retry)
	started := p.Clock.Now()
	options := apply.Options{
		Strict:          !object.DefinedAt.IsZero() && len(object.Applied.Dropped) == 0 && s.entry.wait.retry.failures < schemaRetries,
		Controller:      s.entry.observed.Controller,
		UID:             object.Applied.UID,
		Changed:         object.Applied.UID != "" && object.Applied.Differs(content),
		Former:          p.Former,
		ReplicasForeign: replicasForeign(object.Applied, look),
	}
	change, err := p.Applier.Apply(ctx, n.Manifest, p.plan.Mode(), options)
	if err != nil {
		p.failed(ctx, n.Manifest, content, s, err)
		p.measure(s, p.Clock.Since(started))
		return
	}
	before, now := s.entry, p.Clock.Now()
	p.endCauses(ctx, n.Manifest, before.wait)
	s.entry = entry{
		applied:  before.applied.Answered(object, change, look, need, now),
		observed: before.observed.Answered(now),
		wait:     before.wait.answered(),

		scaledToZero: before.scaledToZero,
	}
	p.look(ctx, n.Manifest, t, &s.entry) // starts the watch if the kind was unknown before, or the object lacks our label
	s.recheckAt = s.entry.applied.RetryAt(object.DefinedAt, object.SeveralVersions)
	s.changed = true
	if s.entry.applied.Result == report.Deleting && !n.Manifest.Tombstone() {
		// The watch reports when the deletion is complete, and then the object is recreated. The timer covers a watch that misses it.
		s.recheckAt = now.Add(drift.WatchPatience)
	}
	p.measure(s, now.Sub(started))
	if need.Drift != "" && s.entry.applied.Result != report.Unchanged {
		writer, reason := writerOf(n.Manifest, look), need.Drift
		if need.Namesake {
			writer = api.FieldManager
		}
		if reason == report.DriftDeleted && change.Action != apply.Created { // the watch shows only objects with our label
			reason = report.DriftReplaced
			if change.UID == before.applied.UID {
				reason = report.DriftChanged
			}
		}
		p.repaired(t.id, s, report.Repair{At: now, Reason: reason, Manager: writer, Unowned: drift.Unowned(n.Manifest, look.State)})
	} else if change.TakenBack != "" && p.TakenBack != nil {
		p.TakenBack(t.id, change.TakenBack)
	}
}

// replicasForeign reports whether a watch shows that no entry of ours or of a former manager contains spec.replicas. It can only show this
// if it shows our last apply.
func replicasForeign(applied drift.Applied, look observe.Look) bool {
	return look.Synced && look.State != nil && !look.State.Replicas && look.State.Fields == applied.Fields
}

func (p *pass) failed(ctx context.Context, m *manifest.Manifest, content inventory.Content, s *slot, err error) {
	if ctx.Err() != nil {
		s.canceled = true
		s.entry.applied = s.entry.applied.Canceled() // even a canceled request may have reached the server
		return
	}
	now := p.Clock.Now()
	retry := &s.entry.wait.retry
	if s.entry.applied.Content != content {
		retry.failures = 0
	}
	s.err = err
	s.entry.applied = s.entry.applied.Failed(content, err, now)
	retry.failures, retry.err = retry.failures+1, err
	delay := retryDelay
	if failure.IsUnavailable(err) {
		delay = retryAway
	}
	p.mu.Lock()
	random := p.Rand.Float64()
	p.mu.Unlock()
	retry.at = now.Add(backoff.Jitter(delay.After(retry.failures), 0.2, random))
	p.watchCauses(ctx, m, retry)
	s.recheckAt = p.due(ctx, m, retry, now, now)
}

// measure records the result and duration of an attempt that was not canceled.
func (p *pass) measure(s *slot, took time.Duration) {
	if p.Metrics == nil || s.canceled {
		return
	}
	p.Metrics.applied(s.entry.applied.Result, took)
	if s.err != nil {
		p.Metrics.failed(p.plan.Release.Version)
	}
}

// repaired records a repair and reports it.
func (p *pass) repaired(id manifest.ID, s *slot, repair report.Repair) {
	observed, fight := s.entry.observed.Repaired(repair)
	s.entry.observed = observed
	repaired := report.Repaired{ID: id, Repair: repair, Fight: fight, HeldBack: observed.Repairs.TruceEnd}
	if p.Metrics != nil {
		p.Metrics.repaired(repaired)
	}
	if p.Repaired != nil {
		p.Repaired(repaired)
	}
}

// writerOf returns the client to name for a drift; "" if the object shows none.
func writerOf(m *manifest.Manifest, look observe.Look) string {
	switch {
	case look.State == nil:
		return ""
	case look.State.Scaler != "" && !m.LeavesOut(look.State.ScaledField...): // otherwise, scaling is no drift
		return look.State.Scaler
	}
	return look.State.Writer
}
