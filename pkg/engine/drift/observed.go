package drift

import (
	"slices"
	"time"

	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
)

// Observed contains the observations of an object since our last apply, and its repairs. Only Assess and the methods below create new
// values.
type Observed struct {
	// Trusted is true if the content was applied during this rollout, or a watch has confirmed it.
	Trusted bool
	// Present is true once a watch has reported the applied object. If it is missing later, it was deleted.
	Present bool
	// DoubtedSince is the time when the object was found untrusted, or its resource not served; zero once a watch reports the object.
	DoubtedSince time.Time
	// CheckedAt is the time of the response to our last apply, even if it changed nothing. Without an apply by this process, it is the time
	// when the object first matched its record; zero if it has not.
	CheckedAt time.Time
	// ProbeAt is the time of the next no-op apply; zero if none is due.
	ProbeAt time.Time

	Repairs  *Repairs
	Loosened Loosened
	// Controller is the object's controller if that is another object than the ClusterVersion; see observe.State.
	Controller string
}

// Loosened contains the fields through which other writers weaken the security of an object's pods.
type Loosened struct {
	// Suspected contains such fields according to the metadata. Confirmed contains those whose values do weaken the security.
	Suspected, Confirmed []string
	// Generation is the object's generation at the time when the values were read.
	Generation int64
}

// Outdated reports whether other writers may have weakened the security since the values were read.
func (l Loosened) Outdated(state *observe.State) bool {
	return !slices.Equal(l.Suspected, state.Loosened) || len(l.Suspected) > 0 && state.Generation != l.Generation
}

// Answered returns the observations after an apply, which invalidates all earlier observations.
func (o Observed) Answered(now time.Time) Observed {
	return Observed{Trusted: true, CheckedAt: now, Repairs: o.Repairs, Loosened: o.Loosened, Controller: o.Controller}
}

// Read returns the observations after reading the values of all suspected fields.
func (o Observed) Read(state *observe.State, confirmed []string) Observed {
	o.Loosened = Loosened{Suspected: state.Loosened, Confirmed: confirmed, Generation: state.Generation}
	return o
}

// Repaired returns the observations after one more repair. fight reports whether another writer keeps reverting our repairs, so the next
// repair is paused.
func (o Observed) Repaired(repair report.Repair) (next Observed, fight bool) {
	o.Repairs, fight = o.Repairs.add(repair)
	return o, fight
}

// Restarted returns the observations at the start of a new rollout, when a watch has to confirm the object again.
func (o Observed) Restarted() Observed {
	o.Trusted, o.DoubtedSince = false, time.Time{}
	return o
}
