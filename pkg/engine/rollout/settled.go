package rollout

import (
	"time"

	"github.com/cluster-version/cvo/pkg/engine/drift"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Settled is the result of earlier passes: for each object the applied content, observations since then, and retries of failed attempts. A
// pass takes a Settled and returns the next one. It belongs to one process; the inventory keeps the parts that survive a restart, see
// Restore. The zero value is empty. A pass that starts with the zero value applies every object, also those that match already.
type Settled struct {
	entries map[manifest.ID]entry
	// restored is true until this process has made its first pass.
	restored bool
	// watched is true once an install has applied every manifest. From then on watches detect drift.
	watched bool
	// examined is true once a pass of this rollout over observed objects has ended. What is unknown then may stay unknown.
	examined bool
}

// stands reports whether every manifest of a plan is applied.
func (s Settled) stands(plan *Plan) bool {
	for i := range plan.tasks {
		if t := &plan.tasks[i]; t.id.Kind != "" && !s.entries[t.id].applied.Stands {
			return false
		}
	}
	return true
}

// entry is the known state of one object. It contains only values. During a pass only slots hold entries, and only a node's visit writes
// its entry.
type entry struct {
	// applied is the result of the last attempt to apply the manifest.
	applied drift.Applied
	// observed contains the watches' observations since then.
	observed drift.Observed
	// wait is the object's progress towards a settled gate.
	wait wait
	// scaledToZero is true if the workload has no replicas and its manifest does not set their number; see gate.ScaledToZero.
	scaledToZero bool
	// remaining is the remaining content of a namespace in deletion.
	remaining remaining
	// foreignCRD is the last reading of another client's CRD; zero for other objects.
	foreignCRD foreignCRD
}

// remaining is the remaining content of a namespace at a resource version.
type remaining struct{ version, text string }

// foreignCRD is a CRD of another client at a resource version.
type foreignCRD struct {
	version string
	// object is nil if the CRD did not exist, or after an error.
	object gate.Object
	// err is the error of the last read, and retryAt the time of the next one if no event occurs; nil if it succeeded.
	err     error
	retryAt time.Time
}

// wait is the progress of an object from its first attempt to a settled gate.
type wait struct {
	// reached is true once the gate has settled in this rollout. From then on the object counts as done.
	reached bool
	// finished is true once a Job with a TTL has finished with this content, in any rollout. A restored entry may also have it if it has no
	// TTL.
	finished bool
	// since is the time since when passes have continuously found the gate unsettled, or an earlier start in the object itself; zero if the
	// gate is settled.
	since time.Time
	// retry describes the next attempt after a failure.
	retry retry
	// matched is the verdict of match in the last visit. Of it, latest uses fights and deletions.
	matched gate.Verdict
	// flushError is the error from saving the inventory before handing over to this object; empty if that succeeded.
	flushError string
}

// retry is the next attempt after failures; zero after a successful attempt.
type retry struct {
	// failures is the number of consecutive failures, err the last error, and at the time of the next attempt.
	failures int
	err      error
	at       time.Time
	// watched is true while the causes of err are watched. stamp is their state before the last attempt, or after it if that attempt was the
	// first with these causes.
	watched bool
	stamp   Stamp
}

// answered returns the wait after a successful apply. The gate has not settled yet for the new content.
func (w wait) answered() wait {
	w.finished, w.retry = false, retry{}
	return w
}

// met returns the wait after the gate has settled.
func (w wait) met(hasTTL bool) wait {
	w.reached, w.finished, w.since = true, hasTTL, time.Time{}
	return w
}

// restarted returns the wait at the start of a new rollout.
func (w wait) restarted(anotherRelease bool) wait {
	if anotherRelease {
		return wait{finished: w.finished}
	}
	return wait{reached: w.reached, finished: w.finished, since: w.since}
}

// Restart returns a Settled for a new rollout. It keeps the applied content, but a watch must confirm the content before it counts. Failed
// objects are retried immediately. Tombstones that an install skipped become pending. For another release, it also resets settled gates and
// waits, and applies objects with dropped fields again, because the release may contain schemas with the fields. This does not include
// finished Jobs with a TTL, which must not run again. For another selection of the same release's manifests it keeps gates and waits, so
// neither progress nor waiting times restart.
func (s Settled) Restart(anotherRelease bool) Settled {
	next := make(map[manifest.ID]entry, len(s.entries))
	for id, e := range s.entries {
		next[id] = entry{
			applied: e.applied.Restarted(anotherRelease && !e.wait.finished), observed: e.observed.Restarted(), wait: e.wait.restarted(anotherRelease),
			scaledToZero: e.scaledToZero,
		}
	}
	return Settled{entries: next}
}

// Restore returns the contents of an inventory for the first pass of a process. For objects of an earlier release it restores only the
// content. For objects of this release it also restores whether the gate has settled, or since when the object waits. An entry counts only
// after a watch has shown that our fields in the object match the inventory.
func Restore(inv inventory.Inventory, release string) Settled {
	entries := make(map[manifest.ID]entry, len(inv.Records))
	for id, r := range inv.Records {
		e := entry{applied: drift.Recorded(r), wait: wait{finished: r.Finished || r.Reached}}
		if r.Release == release {
			e.wait.reached, e.wait.since = r.Reached, r.Since
		}
		entries[id] = e
	}
	return Settled{entries: entries, restored: true}
}

// Progress returns the progress of a plan before any pass, from settled objects alone. For restored objects with dropped fields, it reports
// the object without the names of the fields.
func (s Settled) Progress(plan *Plan) report.Progress {
	progress := newPass(plan, s).progress()
	for _, n := range plan.Graph.Tasks() {
		id := plan.tasks[n.Index].id
		if s.entries[id].applied.Has(inventory.Content{}) {
			progress.Dropped = append(progress.Dropped, report.Dropped{ID: id, File: n.Manifest.File})
		}
	}
	return progress
}

// Records returns the records to save in the inventory: one for every object of the plan that we created or applied.
func (s Settled) Records(plan *Plan) []inventory.Record {
	records := make([]inventory.Record, 0, len(s.entries))
	for _, n := range plan.Graph.Tasks() {
		id := plan.tasks[n.Index].id
		e, ok := s.entries[id]
		if !ok || !e.applied.Stands || e.applied.ByName || n.Manifest.Tombstone() {
			continue
		}
		r := e.applied.Record(plan.tasks[n.Index].hasTTL && e.wait.finished)
		r.ID, r.Version, r.File, r.Document = id, n.Manifest.GVK().Version, n.Manifest.File, n.Manifest.Document
		r.Release, r.Reached, r.CreateOnly = plan.Release.Version, e.wait.reached, n.Manifest.CreateOnly()
		if isClusterOperator(n.Manifest) {
			r.Since = e.wait.since.UTC().Truncate(time.Second)
		}
		records = append(records, r)
	}
	return records
}
