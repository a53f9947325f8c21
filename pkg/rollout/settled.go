package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
)

// Settled is what earlier passes have achieved: which content was applied to which object, what is ours of it since,
// and what the attempts that failed are waiting for. A pass takes one and returns the next. It belongs to a process;
// what of it is worth keeping goes into the inventory, see Restore. The zero value is empty: it costs applies that
// change nothing.
type Settled struct {
	entries map[manifest.ID]entry
	// restored: no pass of this process has been made yet.
	restored bool
}

// entry is what is known of one object.
type entry struct {
	// applied: content was applied, and what follows is what the server answered.
	applied         bool
	content         inventory.Content
	uid             types.UID
	generation      int64
	resourceVersion string
	fields          ownership.Hash
	// dropped are the fields that the server did not know when content was applied.
	dropped []string
	// sent: this process applied it, so that generation is that of its own apply.
	sent bool
	// byName: the object does not carry our label, so it has a watch of its own.
	byName bool

	// trusted: content was applied in this rollout, or a watch has confirmed in this rollout that it stands.
	trusted bool
	// observed: a watch has delivered the object with that uid, so if it is missing later, it was deleted.
	observed bool
	// doubted is when the entry was first looked at without being trusted.
	doubted time.Time
	// checked is when we last made sure of what managedFields cannot tell.
	checked time.Time

	// result is what the last attempt came to, at when, message what there is to say of it.
	result  Result
	at      time.Time
	message string
	// ended: somebody else deletes the object, which is not gone yet.
	ended bool

	// reached: the gate was met once in this rollout, so progress counts it from then on.
	reached bool
	// finished: the gate of this content was met once, in whatever rollout.
	finished bool
	// waitingSince is when a pass first found the gate unmet, in a row, or when the object itself says that it began to be;
	// zero when it is met.
	waitingSince time.Time

	// failures in a row, the last error, and when the next attempt is due.
	failures int
	err      error
	retryAt  time.Time

	repairs *repairs
	// loosened is what others added that loosens the security of the object's pods, of the suspected fields by which
	// they may have.
	suspected, loosened []string
	// confirmed is the generation at which their values were read.
	confirmed int64
}

// Empty reports whether nothing is known.
func (s Settled) Empty() bool { return len(s.entries) == 0 }

// Restart returns a Settled for a new rollout: what was applied stays, but has to be confirmed by a watch before it
// counts; what failed is tried at once. With another release, what was reached and waited for starts anew; a change of
// what the cluster gets of the same one lets no progress run backwards and no clock start again. Tombstones that an install passed over get their turn. Fields that
// the server did not know may be known to the schemas that another release brings, so with another one their objects
// are applied again.
func (s Settled) Restart(anotherRelease bool) Settled {
	next := make(map[manifest.ID]entry, len(s.entries))
	for id, e := range s.entries {
		next[id] = entry{
			applied: e.applied && e.result != Skipped && (len(e.dropped) == 0 || !anotherRelease),
			content: e.content, uid: e.uid, generation: e.generation, resourceVersion: e.resourceVersion, fields: e.fields,
			sent: e.sent, dropped: e.dropped, byName: e.byName, observed: e.observed, checked: e.checked, finished: e.finished,
			result: e.result, at: e.at, message: e.message, repairs: e.repairs, suspected: e.suspected, loosened: e.loosened, confirmed: e.confirmed,
		}
		if again := next[id]; !anotherRelease {
			again.reached, again.waitingSince = e.reached, e.waitingSince
			next[id] = again
		}
	}
	return Settled{entries: next}
}

// Restore returns what an inventory knows, for the first pass of a process over a release. Objects of an earlier
// release are known by their content alone; those of this one keep whether their gate was met, and since when it is not. Nothing of it counts
// before a watch has shown that what is ours of the object is what the inventory says.
func Restore(inv inventory.Inventory, release string) Settled {
	entries := make(map[manifest.ID]entry, len(inv.Records))
	for id, r := range inv.Records {
		e := entry{applied: true, content: r.Content, fields: r.Fields, finished: r.Reached}
		if r.Release == release {
			e.reached, e.waitingSince = r.Reached, r.Since
		}
		entries[id] = e
	}
	return Settled{entries: entries, restored: true}
}

// Progress is how far a plan is by what has settled alone, before any pass: what a pass finds beyond it is news. Of an
// object that an inventory tells to lack fields it tells so, without the fields.
func (s Settled) Progress(plan *Plan) Progress {
	p := &pass{plan: plan, before: s, slots: make([]slot, len(plan.tasks))}
	progress := p.progress()
	for _, n := range plan.Graph.Tasks() {
		id := plan.tasks[n.Index].id
		if e := s.entries[id]; e.applied && e.content == (inventory.Content{}) {
			progress.Dropped = append(progress.Dropped, Dropped{ID: id, File: n.Manifest.File})
		}
	}
	return progress
}

// Records returns what is worth keeping beyond the process, for the inventory: every object of the plan that we brought
// into the cluster. An object some of whose fields the server did not know is recorded without its content, so that
// another process applies it once more.
func (s Settled) Records(plan *Plan) []inventory.Record {
	records := make([]inventory.Record, 0, len(s.entries))
	for _, n := range plan.Graph.Tasks() {
		id := plan.tasks[n.Index].id
		e, ok := s.entries[id]
		if !ok || !e.applied || e.byName || n.Manifest.Tombstone() {
			continue
		}
		r := inventory.Record{
			ID: id, Version: n.Manifest.GVK().Version, Content: e.content, Fields: e.fields,
			Release: plan.Release.Version, Reached: e.reached, File: n.Manifest.File, Document: n.Manifest.Document,
		}
		if isClusterOperator(n.Manifest) {
			r.Since = e.waitingSince.UTC().Truncate(time.Second)
		}
		if len(e.dropped) > 0 {
			r.Content = inventory.Content{}
		}
		records = append(records, r)
	}
	return records
}
