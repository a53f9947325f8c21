// Package drift decides whether an object still matches our last apply. From the response to that apply, earlier observations and the
// watched state, it returns the next action. It reads only metadata. It also counts repairs and pauses them while another writer keeps
// reverting them. It sends no requests and keeps no values: package rollout applies manifests, and keeps the values and the Pacer, which all
// objects share.
package drift

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/builtin"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Object is an object and its manifest.
type Object struct {
	Manifest *manifest.Manifest
	// Content is the desired content of the object.
	Content inventory.Content
	Applied Applied
	// Expires is true for a finished Job that the cluster deletes after some time. Its absence is not drift.
	Expires bool
	// DefinedAt is the time when the rollout changed the CustomResourceDefinition of its kind; zero if it did not.
	DefinedAt time.Time
	// SeveralVersions is true if that definition has several versions.
	SeveralVersions bool
}

// Unowned reports whether the observed object of a manifest is a custom resource without managedFields. The server can read objects of
// built-in kinds in all versions, so it discards none of their managedFields.
func Unowned(m *manifest.Manifest, state *observe.State) bool {
	return state != nil && state.Fields == (ownership.Hash{}) && state.Writer == "" && builtin.Type(m.GVK()) == nil
}

// Need is the next action for an object.
type Need struct {
	// Apply is true if the manifest must be applied now. If Drift is set, drift is the cause.
	Apply bool
	Drift report.Drift
	// Namesake is true if the other writer uses the name of our field manager.
	Namesake bool
	// Probe is true if metadata shows no drift and the apply only checks for it. It counts as drift only if it changes the object.
	Probe bool
	// Unknown is true while no watch has reported the object's state. The object has to wait.
	Unknown bool
	// Adopted is the UID of an existing create-only object, regardless of its creator; otherwise empty.
	Adopted types.UID
	// RecheckAt is the time of the next check if no event occurs; zero means never.
	RecheckAt time.Time
}

const (
	// WatchPatience is the maximum time to wait for a watch to start, or for a resource to be served again. After that the object is applied
	// again, which is harmless.
	WatchPatience = 10 * time.Second
	// specInterval is the minimum time between no-op applies after other writers change the spec outside our fields.
	specInterval = time.Minute
	// trickleInterval is the time between no-op applies after other clients write to objects without a generation.
	trickleInterval = time.Hour
	// sameTimeWindow is the time after our own write during which another client's managedFields entry may have the same time. These times
	// have a resolution of one second, and the clocks of two API servers differ.
	sameTimeWindow = time.Minute
	// probeDelay is the time between our write and the first no-op apply within sameTimeWindow. It is long enough for the API server to
	// give our entry a new time if that apply changes the object.
	probeDelay = 2 * time.Second
	// lateSchema is how long an API server may take to serve a changed definition. firstRetry is the time from an apply that the former
	// schema may have affected to the first retry.
	lateSchema = time.Minute
	firstRetry = time.Second
	// probesPerSecond is the maximum number of no-op applies per second after a restart.
	probesPerSecond = 50
)

// Assess returns the next action for an object and the next observations, from the applied content and the watched state. It detects drift
// from metadata alone. A writer that changes one of our fields removes it from our managedFields entry, which changes the entry's hash. A
// writer that uses our manager's name changes the entry's time instead. The pacer spreads no-op applies after a restart.
func Assess(o Object, seen Observed, look observe.Look, now time.Time, pacer *Pacer) (Observed, Need) {
	need := assess(o, &seen, look, now, pacer)
	if look.Synced {
		seen.DoubtedSince, seen.Controller = time.Time{}, ""
		if look.State != nil && !o.Manifest.CreateOnly() && !o.Manifest.Tombstone() && !body.NamesOwner(o.Manifest) {
			seen.Controller = look.State.Controller
		}
	}
	return seen, need
}

func assess(o Object, seen *Observed, look observe.Look, now time.Time, pacer *Pacer) Need {
	isApplied := o.Applied.Has(o.Content)
	trusted := isApplied && seen.Trusted
	switch {
	case !isApplied && (look.Synced || !o.Manifest.Tombstone()):
		if o.Applied.Repairing != nil && o.Applied.Content == o.Content {
			return *o.Applied.Repairing
		}
		return Need{Apply: true}
	case !look.Synced && trusted && !isDoubtful(o, look):
		seen.DoubtedSince = time.Time{}
		return Need{}
	case look.Unserved && !trusted && !o.Manifest.Tombstone():
		return Need{Apply: true} // no watch will confirm the object, and only an apply names the cause
	case !look.Synced:
		if seen.DoubtedSince.IsZero() {
			seen.DoubtedSince = now
		}
		if until := seen.DoubtedSince.Add(WatchPatience); now.Before(until) {
			return Need{Unknown: !trusted, RecheckAt: until}
		}
		return Need{Apply: true}
	case o.Manifest.Tombstone():
		seen.Trusted = true
		return assessTombstone(o.Applied, look, now)
	case look.State == nil:
		return assessAbsent(o, seen, look)
	}
	return assessPresent(o, seen, look.State, now, pacer)
}

// isDoubtful reports whether a trusted object may have changed because its resource is not served. Then no watch reports drift, or the end
// of a deletion. A finished deletion stays trusted.
func isDoubtful(o Object, look observe.Look) bool {
	return look.Unserved && (!o.Manifest.Tombstone() || o.Applied.Result == report.Deleting)
}

// assessTombstone requests another deletion if the object exists again.
func assessTombstone(a Applied, look observe.Look, now time.Time) Need {
	if look.State == nil || a.Result == report.Skipped || (look.State.UID == a.UID && look.State.Deleting) {
		return Need{}
	}
	if look.State.UID == a.UID && older(look.State.ResourceVersion, a.ResourceVersion) {
		return Need{} // the watch has not reported the deletion yet
	}
	if a.Result == report.Deleted && look.State.UID == a.UID { // the same object: the server has not deleted it
		if until := a.At.Add(WatchPatience); now.Before(until) {
			return Need{RecheckAt: until}
		}
		return Need{Apply: true}
	}
	if a.Result == report.Deleted {
		return Need{Apply: true, Drift: report.DriftReappeared}
	}
	return Need{Apply: true}
}

// assessAbsent distinguishes a deleted object from an object that the watch has not reported yet.
func assessAbsent(o Object, seen *Observed, look observe.Look) Need {
	version := o.Applied.ResourceVersion
	behind := o.Applied.Sent && version != "" && !seen.Present && (look.At == "" || older(look.At, version))
	if behind || o.Expires {
		return Need{}
	}
	return Need{Apply: true, Drift: report.DriftDeleted}
}

// assessPresent compares an existing object with its applied content.
func assessPresent(o Object, seen *Observed, state *observe.State, now time.Time, pacer *Pacer) Need {
	applied := o.Applied
	if older(state.ResourceVersion, applied.ResourceVersion) {
		// The watch has not reported our apply yet. If it never does, an administrator has restored an older backup of the cluster.
		if until := applied.At.Add(specInterval); now.Before(until) {
			return Need{RecheckAt: until}
		}
		return Need{Apply: true, Drift: report.DriftMutated}
	}
	seen.Present = true
	switch {
	case o.Manifest.CreateOnly():
		seen.Trusted = true
		return Need{Adopted: state.UID}
	case applied.UID != "" && state.UID != applied.UID:
		return Need{Apply: true, Drift: report.DriftReplaced}
	case state.Fields != applied.Fields:
		return Need{Apply: true, Drift: report.DriftChanged}
	case applied.UID != "" && state.Time != applied.Time:
		return Need{Apply: true, Drift: report.DriftChanged, Namesake: true}
	}
	seen.Trusted = true
	if state.Deleting {
		return Need{} // applied fields would be deleted with the object
	}
	if retry := applied.RetryAt(o.DefinedAt, o.SeveralVersions); !retry.IsZero() {
		if now.Before(retry) {
			return Need{RecheckAt: retry}
		}
		return Need{Apply: true}
	}
	return assessHiddenWrite(applied, seen, state, now, pacer)
}

// assessHiddenWrite requests a no-op apply after a write that may have changed our fields without a trace in our managedFields entry.
// Either the write had the same time as ours, an admission webhook changed our value, or the writer restored our entry. Such a write
// changes the generation, or the resource version if the object has no generation. A record without UID also gets one no-op apply, because
// the operator version that wrote it did not record the time.
func assessHiddenWrite(applied Applied, seen *Observed, state *observe.State, now time.Time, pacer *Pacer) Need {
	moved := state.Generation != applied.Generation || state.Generation == 0 && state.ResourceVersion != applied.ResourceVersion
	switch {
	case seen.CheckedAt.IsZero() && !seen.ProbeAt.IsZero(): // restored from a record, waiting for its slot
	case seen.CheckedAt.IsZero() && (moved || applied.UID == ""): // restored from a record, and written by another client in the meantime
		seen.ProbeAt = pacer.slot(now)
	case seen.CheckedAt.IsZero():
		seen.CheckedAt = now
	case moved:
		if due := probeDue(applied, seen, state, now); seen.ProbeAt.IsZero() || due.Before(seen.ProbeAt) {
			seen.ProbeAt = due
		}
	}
	switch {
	case seen.ProbeAt.IsZero():
		return Need{}
	case now.Before(seen.ProbeAt):
		return Need{RecheckAt: seen.ProbeAt}
	}
	return Need{Apply: true, Drift: report.DriftMutated, Probe: true}
}

// probeDue returns the time of the no-op apply after another client's write.
func probeDue(applied Applied, seen *Observed, state *observe.State, now time.Time) time.Time {
	recent := now.Sub(applied.WroteAt) < sameTimeWindow
	switch {
	case recent && seen.CheckedAt.Equal(applied.WroteAt):
		return applied.WroteAt.Add(probeDelay)
	case recent || state.Generation != 0:
		return seen.CheckedAt.Add(specInterval)
	}
	return seen.CheckedAt.Add(trickleInterval)
}

// Pacer spreads the no-op applies after a restart over time, at most probesPerSecond per second. The zero value is ready for use. Pacer is
// safe for concurrent use.
type Pacer struct {
	mu   sync.Mutex
	at   time.Time
	used int
}

// slot returns the earliest time, from now on, for the next no-op apply.
func (p *Pacer) slot(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case now.Sub(p.at) >= time.Second:
		p.at, p.used = now, 0
	case p.used == probesPerSecond:
		p.at, p.used = p.at.Add(time.Second), 0
	}
	p.used++
	return p.at
}

// older reports whether resource version a is known to precede b.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
