package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
)

// Drift says in what way an object differs from what was applied. The set is closed: it labels a metric.
type Drift string

const (
	// DriftDeleted: it is gone, or has lost the label that makes it ours.
	DriftDeleted Drift = "deleted"
	// DriftReplaced: another object has its name.
	DriftReplaced Drift = "replaced"
	// DriftChanged: somebody else changed or removed fields that were ours.
	DriftChanged Drift = "changed"
	// DriftMutated: applying again changed it, though managedFields told of nothing: an admission webhook changed our
	// value within somebody else's write.
	DriftMutated Drift = "mutated"
	// DriftReappeared: what a tombstone deleted is there again.
	DriftReappeared Drift = "reappeared"
)

// need is what an object asks for.
type need struct {
	// apply: its manifest is to be applied now, because of drift if that is not empty.
	apply bool
	drift Drift
	// namesake: whoever caused the drift goes by our own field manager.
	namesake bool
	// unknown: no watch has told yet how it is; it is not gone on with.
	unknown bool
	// at is when to look again though nothing may have happened; zero for never.
	at time.Time
}

const (
	// A watch that does not come to be is not waited for longer than this: applying again does no harm.
	watchPatience = 10 * time.Second
	// A spec that changed in fields that are not ours is followed by one apply that makes sure, at most this often.
	specInterval = time.Minute
	// Objects without generation that were written by others are made sure of this often.
	trickleInterval = time.Hour
)

// assess decides what an object needs, from what was applied and what its watch tells. Drift is read from metadata
// alone: the hash of our entry in managedFields stands for the values of all our fields, because whoever changes one of
// them takes it from our entry.
func assess(t *task, m *manifest.Manifest, e *entry, content inventory.Content, look observe.Look, now time.Time) need {
	asked := e.applied && e.content == content
	switch {
	case !asked && (look.Synced || !m.Tombstone()):
		return need{apply: true}
	case !look.Synced && asked && e.trusted:
		return need{}
	case !look.Synced:
		if e.doubted.IsZero() {
			e.doubted = now
		}
		if until := e.doubted.Add(watchPatience); now.Before(until) {
			return need{unknown: true, at: until}
		}
		return need{apply: true}
	case m.Tombstone():
		return assessTombstone(e, look, now)
	case look.State == nil:
		return assessAbsent(t, e, look)
	}
	return assessPresent(m, e, look.State, now)
}

// assessTombstone has an object deleted that is there again after its deletion.
func assessTombstone(e *entry, look observe.Look, now time.Time) need {
	e.trusted = true
	if look.State == nil || e.result == Skipped || (look.State.UID == e.uid && look.State.Deleting) {
		return need{}
	}
	if look.State.UID == e.uid && older(look.State.ResourceVersion, e.resourceVersion) {
		return need{} // the watch has yet to tell of the deletion
	}
	if e.result == Deleted && look.State.UID == e.uid { // the same, or the server has not done what it said
		if until := e.at.Add(watchPatience); now.Before(until) {
			return need{at: until}
		}
		return need{apply: true}
	}
	if e.result == Deleted {
		return need{apply: true, drift: DriftReappeared}
	}
	return need{apply: true}
}

// assessAbsent tells an object that was deleted from one that the watch has not told of yet.
func assessAbsent(t *task, e *entry, look observe.Look) need {
	behind := e.resourceVersion != "" && !e.observed && (look.At == "" || older(look.At, e.resourceVersion))
	if behind || (t.passing && e.finished) {
		return need{}
	}
	return need{apply: true, drift: DriftDeleted}
}

// assessPresent compares an object with what was applied to it.
func assessPresent(m *manifest.Manifest, e *entry, state *observe.State, now time.Time) need {
	if e.uid == "" && (e.fields == state.Fields || m.CreateOnly()) { // known from an inventory only
		e.uid, e.generation, e.resourceVersion, e.checked = state.UID, state.Generation, state.ResourceVersion, now
	}
	if older(state.ResourceVersion, e.resourceVersion) {
		// The watch has yet to tell of what we applied. One that stays behind tells that the cluster was set back.
		if until := e.at.Add(specInterval); now.Before(until) {
			return need{at: until}
		}
		return need{apply: true, drift: DriftMutated}
	}
	e.observed = true
	switch {
	case m.CreateOnly():
		e.uid, e.trusted = state.UID, true
		return need{}
	case e.uid != "" && state.UID != e.uid:
		return need{apply: true, drift: DriftReplaced}
	case state.Fields != e.fields:
		return need{apply: true, drift: DriftChanged}
	}
	e.trusted = true
	return assessUntold(e, state, now)
}

// assessUntold has the server asked, now and then, what managedFields does not tell: whether an admission webhook has
// changed a value of ours within somebody else's write. Only an object that was written at all can be concerned, and
// where there is a generation, only one whose spec changed.
func assessUntold(e *entry, state *observe.State, now time.Time) need {
	interval := specInterval
	switch {
	case state.ResourceVersion == e.resourceVersion || state.Generation != 0 && state.Generation <= e.generation:
		return need{}
	case state.Generation == 0:
		interval = trickleInterval
	}
	if until := e.checked.Add(interval); now.Before(until) {
		return need{at: until}
	}
	return need{apply: true, drift: DriftMutated}
}

// older reports whether resource version a is known to be before b.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
