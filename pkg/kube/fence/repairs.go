package fence

import (
	"errors"
	"time"

	"golang.org/x/time/rate"
)

// RepairsAtOnce is the number of repairs without a limit, and RepairsEvery the interval of further repairs.
const (
	RepairsAtOnce = 8
	RepairsEvery  = time.Minute
)

// ErrTooMany means that another client keeps changing an object that this process repairs.
var ErrTooMany = errors.New("another client keeps changing it, so it is repaired only once a minute")

// Repairs bounds how often a process repairs an object that another client may keep changing or deleting. Failed writes do
// not count: they have another cause, and the caller limits how often it retries. Create it with NewRepairs. It is for one goroutine.
type Repairs struct {
	budget *rate.Limiter
	// at is the time of the last question.
	at time.Time
}

// NewRepairs returns Repairs with a full budget.
func NewRepairs(now time.Time) Repairs {
	return Repairs{budget: rate.NewLimiter(rate.Every(RepairsEvery), RepairsAtOnce), at: now}
}

// Allowed reports whether another repair may be sent.
func (r *Repairs) Allowed(now time.Time) bool {
	r.at = now
	return r.budget.TokensAt(now) >= 1
}

// Count counts a repair with the result err, unless it failed.
func (r *Repairs) Count(err error) {
	if err == nil {
		r.budget.AllowN(r.at, 1)
	}
}
