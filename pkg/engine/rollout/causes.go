package rollout

import (
	"context"
	"time"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Causes watches the objects whose changes may repair a failed apply, until the apply succeeds.
type Causes interface {
	// Stamp identifies the current state of all objects whose changes may repair err, the error from applying m. Every change results in
	// another stamp. The stamp is empty while the state is unknown. A nil err ends the watches.
	Stamp(ctx context.Context, m *manifest.Manifest, err error) string
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

// watchCauses watches the causes of a repeatedly failed apply. before is the error of the attempt before. After another error, the causes may
// be others, so watchCauses records their state now.
func (p *pass) watchCauses(ctx context.Context, m *manifest.Manifest, r *retry, before error) {
	if p.Causes == nil || r.failures < patientFailures {
		return
	}
	stamp := p.Causes.Stamp(ctx, m, r.err)
	if !r.watched || before == nil || before.Error() != r.err.Error() {
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
	switch stamp := p.Causes.Stamp(ctx, m, r.err); {
	case stamp == "":
	case r.stamp == "":
		r.stamp = stamp
	case stamp != r.stamp:
		due := failed.Add(repairInterval)
		if !now.Before(due) {
			r.failures = patientFailures - 1 // the timer restarts with about one second
		}
		if due.Before(r.at) {
			return due
		}
	}
	return r.at
}
