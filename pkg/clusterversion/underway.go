package clusterversion

import (
	"maps"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/status"
	"github.com/cluster-version/cvo/pkg/clusterversion/story"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// underway owns the state of the rollout under way. A reconcile plans a rollout. The background rollout begins and reports with its key, so
// that a superseded one changes nothing.
type underway struct {
	clock clock.PassiveClock

	mu sync.Mutex
	rolled
}

// rolled is a snapshot of a rollout. Everything in it is immutable except the executor, which is safe for concurrent use.
type rolled struct {
	// key identifies the rollout of progress. image is its release image.
	key   string
	image string
	// adds reports that the rollout adds objects to a completed release, for example those of a new capability, and is not an update.
	adds     bool
	progress *report.Progress
	// obstacle is the reason why the rollout can make no pass; nil if it can.
	obstacle *report.Problem
	// settled is the result of the last pass of any rollout.
	settled rollout.Settled
	// releaseChanged reports that the planned release differs from the one that executor ran. restored is the inventory of a predecessor
	// until a rollout begins with it.
	releaseChanged bool
	restored       *inventory.Inventory
	// executor and payload belong to the last rollout that has started.
	executor *rollout.Executor
	payload  *payload.Payload
	// story records what events have reported about the rollout.
	story story.Story
	// reachedWritten is story.Reached() as of the last status write.
	reachedWritten int
	// resumed reports that an earlier process began the rollout and that this one has not counted as far yet.
	resumed bool
}

func (u *underway) snapshot() rolled {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rolled
}

// Reset drops all state, as a restart does.
func (u *underway) Reset() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rolled = rolled{}
}

// supersede ends the rollout under way, because another release was accepted. Applied objects count as settled as long as both releases
// have the same manifest.
func (u *underway) supersede() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.key, u.progress, u.obstacle = "", nil, nil
}

// plan makes the rollout with the given key the one under way, unless it already is. adds reports that it is not an update.
func (u *underway) plan(key, image string, adds bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.key == key {
		return
	}
	changed := u.image != image
	u.resumed = u.image == "" || u.resumed && !changed
	u.releaseChanged = u.releaseChanged || changed
	u.key, u.image, u.adds, u.progress, u.obstacle = key, image, adds, nil, nil
}

// beginning is the input for starting a rollout.
type beginning struct {
	plan     *rollout.Plan
	executor *rollout.Executor
	payload  *payload.Payload
	// started is the start time of the release's history entry.
	started time.Time
	// restored is the inventory of an earlier process, nil if it was already taken over.
	restored *inventory.Inventory
}

// begin starts the rollout with the given key from the known state. It returns false if another rollout was requested in the meantime,
// which inherits the state when it begins.
func (u *underway) begin(key string, b beginning) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if b.restored != nil {
		u.restored = b.restored
	}
	if u.key != key {
		return false
	}
	if u.restored != nil {
		next := b.payload.Release
		u.settled, u.restored = rollout.Restore(reliable(*u.restored, next), next.Version), nil
	} else {
		u.settled = u.settled.Restart(u.releaseChanged)
	}
	u.releaseChanged = false
	u.story = story.New(u.settled.Progress(b.plan), b.started, u.adds)
	u.reachedWritten = u.story.Reached()
	u.executor, u.payload = b.executor, b.payload
	return true
}

// reliable returns the part of an inventory that a rollout can rely on. An earlier process may have died after it applied objects and
// before it saved the inventory. The cluster then has values of another release where the inventory records ours. managedFields does not
// show this, because it lists fields without values. So all objects in an inventory of another release are applied again, except finished
// Jobs with a TTL: they would run again, and the values of a Job that still exists belong to its UID.
func reliable(inv inventory.Inventory, next release.Release) inventory.Inventory {
	digest := string(release.Pullspec(next.Image).Digest())
	if digest == "" || inv.Digest == "" || inv.Digest == digest {
		return inv
	}
	inv.Records = maps.Clone(inv.Records)
	for id, r := range inv.Records {
		if !r.Finished {
			r.Content = inventory.Content{}
		}
		inv.Records[id] = r
	}
	return inv
}

// obstruct records the reason why the rollout with the given key can make no pass, nil if it can. It reports whether that is news. For a
// superseded rollout it does nothing.
func (u *underway) obstruct(key string, err error) (changed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.obstacle
	switch {
	case u.key != key, err == nil && before == nil, err != nil && before != nil && before.Err.Error() == err.Error():
		return false
	case err == nil:
		u.obstacle = nil
		return true
	}
	since := u.clock.Now()
	if before != nil {
		since = before.Since
	}
	u.obstacle = &report.Problem{
		Reason: api.ReasonPayloadFailed, Since: since, Err: err,
		Message: "The operator applies and repairs nothing, because it cannot prepare the rollout, and retries: " + err.Error(),
	}
	return true
}

// settle stores the result of a pass, for the next pass or for the rollout that replaces this one. A canceled pass returns before that one
// begins. After Reset, a late result is dropped.
func (u *underway) settle(executor *rollout.Executor, settled rollout.Settled) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.executor == executor {
		u.settled = settled
	}
}

// advance stores the progress of the rollout with the given key. It returns the events for the changes and whether the status may change.
// For a superseded rollout it does nothing, and ok is false.
func (u *underway) advance(key string, progress report.Progress) (news []event.Event, changed, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.key != key {
		return nil, false, false
	}
	before := u.progress
	u.progress = &progress
	news, u.story = story.Events(u.story, progress, u.clock.Now())
	return news, before == nil || !before.Same(progress), true
}

// excerpt is the part of a rollout that the status shows.
type excerpt struct {
	// progress is nil if unknown. latest is also the progress of a rollout that another one is about to replace.
	progress, latest *report.Progress
	// obstacle is the reason why the rollout can make no pass; nil if it can.
	obstacle *report.Problem
	// reached counts the reached runlevels. newRunlevel reports that another one was reached since the last status write.
	reached     int
	newRunlevel bool
}

// report returns the part of the next status about the rollout with the given key. before is the current status.
func (u *underway) report(key string, before configv1.ClusterVersionStatus) excerpt {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := excerpt{latest: u.progress, reached: u.story.Reached()}
	if key != "" && u.key == key {
		out.progress, out.obstacle = u.progress, u.obstacle
	}
	if u.resumed && out.progress != nil {
		out.progress, u.resumed = status.NotLess(out.progress, before)
	}
	out.newRunlevel = out.progress != nil && out.reached != u.reachedWritten
	return out
}

// wrote records the number of reached runlevels in the last status write.
func (u *underway) wrote(reached int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reachedWritten = reached
}
