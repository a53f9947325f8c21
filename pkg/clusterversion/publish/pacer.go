package publish

import (
	"time"

	"golang.org/x/time/rate"
)

// Budget for status writes that do not wait for the interval. Every write uses it. Flapping conditions, or another writer of the status,
// therefore cause at most edgeBurst writes beyond one per second.
const (
	edgeBurst  = 10
	edgeRefill = rate.Limit(1)
	// edgeReserve is the part of the budget that reached runlevels leave, so that a failure or the end of the rollout is written at once.
	edgeReserve = 4
)

// pacer decides when to write a changed status: an edge at once while the budget lasts, a reached runlevel while more than the reserve is
// left, any other change when the interval since the last write has passed.
type pacer struct {
	interval time.Duration
	budget   *rate.Limiter
}

func newPacer(interval time.Duration) pacer {
	return pacer{interval: interval, budget: rate.NewLimiter(edgeRefill, edgeBurst)}
}

// wait returns the time until a write is due. If it is 0, the write is due and uses one unit of the budget.
func (p pacer) wait(edge, runlevel bool, written, now time.Time) time.Duration {
	left := p.interval - now.Sub(written)
	edge = edge || runlevel && p.budget.TokensAt(now) >= edgeReserve+1
	if left > 0 && !edge {
		return left
	}
	if allowed := p.budget.AllowN(now, 1); left > 0 && !allowed {
		return left
	}
	return 0
}
