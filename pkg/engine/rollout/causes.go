package rollout

import (
	"context"
	"time"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Causes watches the objects whose changes may repair a failed apply, until the apply succeeds.
type Causes interface {
	// Stamp returns the current state of the objects whose changes may repair err, the error from applying m. A nil err ends the watches.
	Stamp(ctx context.Context, m *manifest.Manifest, err error) Stamp
}

// Stamp has a text for the state of each watched object or group of objects. Every change results in another text. The text is missing while
// the state is unknown.
type Stamp map[string]string

// Changed reports whether something that both stamps contain has changed.
func (s Stamp) Changed(now Stamp) bool {
	for object, state := range now {
		if before, known := s[object]; known && before != state {
			return true
		}
	}
	return false
}

const (
	// patientFailures is the number of consecutive failures before the pass starts to watch the causes. Most errors are over by then.
	patientFailures = 3
	// repairInterval is the minimum time between an attempt and a retry after a change.
	repairInterval = time.Second
)

// stampCauses records the state of watched causes before an attempt. A change during the attempt then counts as a change after it.
func (p *pass) stampCauses(ctx context.Context, m *manifest.Manifest, r *retry) {
	if r.watched {
		r.stamp = p.Causes.Stamp(ctx, m, r.err)
	}
}

// watchCauses watches the causes of a repeatedly failed apply. It keeps what is known from before the attempt, because a repair during the
// attempt may change the error.
func (p *pass) watchCauses(ctx context.Context, m *manifest.Manifest, r *retry) {
	if p.Causes == nil || r.failures < patientFailures {
		return
	}
	if stamp := p.Causes.Stamp(ctx, m, r.err); !r.watched || !r.stamp.Changed(stamp) {
		r.stamp = stamp
	}
	r.watched = true
}

// endCauses ends the watches once the object is applied.
func (p *pass) endCauses(ctx context.Context, m *manifest.Manifest, before wait) {
	if before.retry.watched {
		p.Causes.Stamp(ctx, m, nil)
	}
}

// due returns the time to retry an apply that failed at the given time. That is when its timer expires, or earlier after a change that may
// have repaired the cause.
func (p *pass) due(ctx context.Context, m *manifest.Manifest, r *retry, failed, now time.Time) time.Time {
	if !r.watched {
		return r.at
	}
	stamp := p.Causes.Stamp(ctx, m, r.err)
	if !r.stamp.Changed(stamp) {
		r.stamp = stamp // more may be known now
		return r.at
	}
	due := failed.Add(repairInterval)
	if !now.Before(due) {
		r.failures = patientFailures - 1 // the timer restarts with about one second
	}
	if due.Before(r.at) {
		return due
	}
	return r.at
}
