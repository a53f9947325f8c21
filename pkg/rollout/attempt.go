package rollout

import (
	"context"
	"time"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// Failed applies are tried again after 200 ms, doubling to 25 s, give or take a fifth, so that half a minute is the most
// that anybody waits. Only errors of the API are waited out by the clock; everything else has an event. Those who do not
// answer at all are not waited for that long: once they are back, everything can go on.
const (
	retryMin  = 200 * time.Millisecond
	retryMax  = 25 * time.Second
	retryAway = 5 * time.Second
)

func (p *pass) apply(
	ctx context.Context, n *taskgraph.Node, t *task, s *slot, content inventory.Content, look observe.Look, need need,
) {
	for _, operator := range t.precreate {
		if p.Observer.Object(operator.ID()) == nil {
			// Its own place in the chain reports what goes wrong; here it is only early.
			_, _ = p.Applier.Precreate(ctx, operator)
		}
	}
	if err := p.flush(ctx, n, &s.entry, content); err != nil {
		p.failed(ctx, content, s, err)
		return
	}
	begun := p.Clock.Now()
	change, err := p.Applier.Apply(ctx, n.Manifest, p.plan.Mode())
	if err != nil {
		p.failed(ctx, content, s, err)
		p.measure(s, p.Clock.Since(begun))
		return
	}
	before, now := s.entry, p.Clock.Now()
	s.entry = entry{
		applied: true, sent: true, content: content, uid: change.UID, generation: change.Generation,
		resourceVersion: change.ResourceVersion, fields: change.Fields, dropped: change.Dropped,
		byName: change.Action == apply.Kept, trusted: true, checked: now,
		result: resultOf(change, before, look), at: now, message: change.Message,
		reached: before.reached, waitingSince: before.waitingSince, repairs: before.repairs,
		suspected: before.suspected, loosened: before.loosened, confirmed: before.confirmed,
	}
	s.lookAt = time.Time{}
	p.changes.Add(1)
	if change.Deleting && !n.Manifest.Tombstone() {
		s.entry.result = Deleting // what was applied goes with the object
		s.entry.ended = change.Action != apply.Deleting
	}
	if s.entry.result == Deleting && !n.Manifest.Tombstone() {
		// It is to be created anew once it is gone, which its watch tells; the clock is there for a watch that does not.
		s.entry.applied, s.lookAt = false, now.Add(watchPatience)
	}
	p.measure(s, now.Sub(begun))
	if need.drift != "" && s.entry.result != Unchanged {
		writer := writerOf(look)
		if need.namesake {
			writer = api.FieldManager
		}
		p.repaired(t.id, s, Repair{At: now, Reason: need.drift, Manager: writer})
	}
}

func (p *pass) failed(ctx context.Context, content inventory.Content, s *slot, err error) {
	// Even a cancelled request may have reached the server, so what was applied before is no longer known to be there.
	s.entry.applied = false
	if ctx.Err() != nil {
		s.cancelled = true
		return
	}
	if s.entry.content != content {
		s.entry.failures = 0
	}
	now := p.Clock.Now()
	s.err = err
	s.entry.content, s.entry.err = content, err
	s.entry.result, s.entry.at, s.entry.message = Refused, now, err.Error()
	s.entry.failures++
	longest := retryMax
	if apply.IsAway(err) {
		longest = retryAway
	}
	wait := min(retryMin<<min(s.entry.failures-1, 20), longest)
	p.mu.Lock()
	wait += time.Duration((p.Rand.Float64()*0.4 - 0.2) * float64(wait))
	p.mu.Unlock()
	s.entry.retryAt = now.Add(wait)
	s.lookAt = s.entry.retryAt
}

// resultOf tells what an apply did: one that changed nothing leaves the resource version that was known.
func resultOf(change apply.Change, before entry, look observe.Look) Result {
	if change.Action != apply.Applied {
		return Result(change.Action)
	}
	known := before.uid == change.UID && before.resourceVersion == change.ResourceVersion
	if seen := look.State; known || seen != nil && seen.ResourceVersion == change.ResourceVersion {
		return Unchanged
	}
	return Configured
}

// measure notes what an attempt came to; one that was cut short came to nothing.
func (p *pass) measure(s *slot, took time.Duration) {
	if p.Metrics == nil || s.cancelled {
		return
	}
	p.Metrics.applied(s.entry.result, took)
	if s.err != nil {
		p.Metrics.failed(p.plan.Release.Version)
	}
}

// repaired notes a repair and tells of it.
func (p *pass) repaired(id manifest.ID, s *slot, repair Repair) {
	next, fight := s.entry.repairs.with(repair)
	s.entry.repairs = next
	told := Repaired{ID: id, Repair: repair, Fight: fight, HeldBack: next.until}
	if p.Metrics != nil {
		p.Metrics.repaired(told)
	}
	if p.Repaired != nil {
		p.Repaired(told)
	}
}

func writerOf(look observe.Look) string {
	if look.State == nil {
		return ""
	}
	return look.State.Writer
}
