package rollout

import (
	"context"
	"time"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Causes watches the objects whose changes may repair a failed apply, until the apply succeeds.
type Causes interface {
	// Stamp identifies the objects whose changes may repair err, the error from applying m, and their current state. A nil err ends the
	// watches.
	Stamp(ctx context.Context, m *manifest.Manifest, err error) Stamp
}

// Stamp identifies the state of the objects whose changes may repair an error.
type Stamp struct {
	// Objects identifies the objects. Only stamps of the same objects can be compared.
	Objects string
	// State identifies their state. Every change results in another text. It is empty while the state is unknown.
	State string
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

// watchCauses watches the causes of a repeatedly failed apply. If these are other objects than before the attempt, watchCauses records their
// state now. The text of the error does not decide: a repair during the attempt may change it.
func (p *pass) watchCauses(ctx context.Context, m *manifest.Manifest, r *retry) {
	if p.Causes == nil || r.failures < patientFailures {
		return
	}
	if stamp := p.Causes.Stamp(ctx, m, r.err); !r.watched || stamp.Objects != r.stamp.Objects {
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
	case stamp.State == "":
	case r.stamp.State == "", stamp.Objects != r.stamp.Objects: // for example because the end of another watch has made room for one
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
