package drift

import (
	"time"

	"github.com/cluster-version/cvo/pkg/engine/report"
)

const (
	// fightRepairs is the number of repairs of one object within fightWindow that count as a fight with another writer.
	fightRepairs = 10
	fightWindow  = time.Minute
	// During a fight, repairs pause for truceMin, then twice as long each time, until the other writer has been quiet for fightOver.
	truceMin  = time.Minute
	truceMax  = 30 * time.Minute
	fightOver = 10 * time.Minute
)

// Repairs counts the repairs of an object. It prevents two writers with different values from keeping the API server busy forever. It is
// immutable; nil means that the object was never repaired.
type Repairs struct {
	Total int
	Last  report.Repair
	// TruceEnd is the end of the last truce; zero if there was none.
	TruceEnd time.Time

	// recent is a ring of the times of the last repairs. The next slot is Total % fightRepairs.
	recent [fightRepairs]time.Time
	// truces is the number of consecutive truces.
	truces int
}

// PausedUntil returns the time until which repairs of the object are paused; zero if they are not.
func (r *Repairs) PausedUntil(now time.Time) time.Time {
	if r == nil || !now.Before(r.TruceEnd) {
		return time.Time{}
	}
	return r.TruceEnd
}

// add returns the repairs including one more. fight reports whether this is a fight, so the next repair is paused.
func (r *Repairs) add(repair report.Repair) (next *Repairs, fight bool) {
	next = &Repairs{}
	if r != nil {
		*next = *r
	}
	now := repair.At
	if now.Sub(next.Last.At) > fightOver+next.truce() {
		next.truces = 0
	}
	next.recent[next.Total%fightRepairs] = now
	next.Total++
	next.Last = repair
	oldest := next.recent[next.Total%fightRepairs] // of the last fightRepairs
	// A writer that continues after a truce is still fighting.
	if (oldest.IsZero() || now.Sub(oldest) >= fightWindow) && next.truces == 0 {
		return next, false
	}
	next.truces++
	next.TruceEnd = now.Add(next.truce())
	return next, true
}

// truce returns the duration of the current pause.
func (r *Repairs) truce() time.Duration {
	if r.truces == 0 {
		return 0
	}
	return min(truceMin<<min(r.truces-1, 10), truceMax)
}
