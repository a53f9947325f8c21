package clusterversion

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// Engine is what rolls out one payload for one ClusterVersion.
type Engine struct {
	Passer *rollout.Passer
	// Prepare is called before each pass: what is put into manifests from the cluster's configuration is read anew if
	// it has changed. An error puts the pass off.
	Prepare func(ctx context.Context) error
	// Completed is called after each pass that found everything in place.
	Completed func(ctx context.Context)
	Pruner    Pruner
	// Permit is called before orphans are deleted, and sees to it that the operator may; nil asks nobody.
	Permit func(ctx context.Context, orphans []inventory.Record) error
}

// EngineFor makes an Engine.
type EngineFor func(cv *configv1.ClusterVersion, p *payload.Payload) Engine

// prepareRetry is how long to wait with a pass that cannot be prepared.
const prepareRetry = 2 * time.Second

// rolling is one rollout in the background: a plan that is passed over until the reconciler asks for another.
type rolling struct {
	*Reconciler
	log  logr.Logger
	key  string
	mode release.Mode
	r    *round

	plan   *rollout.Plan
	engine Engine
	// pruned is when the deletion of an orphan was last asked for; unpruned are those that may be gone by another time.
	pruned   map[manifest.ID]time.Time
	unpruned map[manifest.ID]bool
}

func (c *Reconciler) rolloutStep(log logr.Logger, key string, mode release.Mode, r *round) func(context.Context) Next {
	w := &rolling{Reconciler: c, log: log, key: key, mode: mode, r: r, pruned: map[manifest.ID]time.Time{}, unpruned: map[manifest.ID]bool{}}
	return w.step
}

// step makes one pass.
func (w *rolling) step(ctx context.Context) Next {
	if w.plan == nil {
		if err := w.begin(ctx); err != nil {
			if !errors.Is(err, errSuperseded) {
				w.log.Error(err, "planning the rollout")
			}
			return Next{After: acceptRetryMin}
		}
	}
	if err := w.engine.Prepare(ctx); err != nil {
		w.log.Info("pass put off", "error", err.Error())
		return Next{After: prepareRetry}
	}
	w.mu.Lock()
	settled := w.memory.settled
	w.mu.Unlock()
	progress, settled, err := w.engine.Passer.Run(ctx, w.plan, settled)
	w.mu.Lock()
	if w.memory.planKey == w.key {
		w.memory.settled = settled
	}
	w.mu.Unlock()
	w.runner.Wake(SlotInventory)
	if err != nil {
		return Next{Done: true}
	}
	w.progressed(w.r.original, w.key, progress)
	var again time.Duration
	if progress.Complete {
		w.engine.Completed(ctx)
		again = w.prune(ctx)
	}
	w.mu.Lock()
	next := Next{After: nextStory(w.memory.story, progress, w.clock.Now())}
	w.mu.Unlock()
	if again > 0 && (next.After == 0 || again < next.After) {
		next.After = again
	}
	if !progress.RetryAt.IsZero() {
		retry := max(progress.RetryAt.Sub(w.clock.Now()), time.Millisecond)
		if next.After == 0 || retry < next.After {
			next.After = retry
		}
	}
	return next
}

// begin prepares the rollout: the first of a process starts from what the inventory knows.
func (w *rolling) begin(ctx context.Context) error {
	p := w.r.accepted.Payload
	restored, err := w.ledger.open(ctx, w.log)
	if err != nil {
		return err
	}
	manifests := managed(*w.r.accepted, w.r.cv.Spec.Overrides)
	plan, err := rollout.NewPlan(p.Release, manifests, w.mode)
	if err != nil {
		return err
	}
	plan.Began = began(w.r.original.Status)
	engine := w.Reconciler.engine(w.r.original, p)
	boundary := -1
	engine.Passer.Report = func(progress rollout.Progress) {
		w.progressed(w.r.original, w.key, progress)
		if level := progress.FirstOpen(); level != boundary {
			boundary = level
			w.runner.Wake(SlotInventory)
		}
	}
	if h := engine.Passer.Handover; h != nil {
		h.Flush = func(ctx context.Context) error { return w.ledger.flush(ctx, plan, engine.Passer) }
	}
	engine.Passer.Repaired = func(r rollout.Repaired) { w.repaired(r) }
	started := w.r.original.Status.History[0].StartedTime.Time
	var said map[string]bool
	if restored != nil {
		said = w.saidSince(ctx, started)
	}
	w.mu.Lock()
	if restored != nil {
		w.memory.restored = restored
	}
	current := w.memory.planKey == w.key
	if current {
		w.memory.takeOver(p.Release)
		w.memory.story, w.memory.said = newStory(w.memory.settled.Progress(plan), started), said
		w.memory.passer = engine.Passer
		w.memory.hold(engine.Passer)
	}
	w.mu.Unlock()
	if !current {
		return errSuperseded
	}
	key := w.ledger.begin(p, plan, engine.Passer)
	w.plan, w.engine = plan, engine
	w.runner.Start(SlotInventory, key, w.ledger.step(w.log, plan, engine.Passer))
	w.log.Info("rollout started", "release", p.Release.Version, "mode", w.mode, "manifests", len(manifests))
	return nil
}

// errSuperseded says that another rollout is wanted by now; its beginning takes over what is known.
var errSuperseded = errors.New("another rollout is wanted")

// takeOver has a rollout begin with what is known: by the inventory of a predecessor, or by the passes before. One that was
// cut short has not returned what it came to; it has ended by now.
func (m *memory) takeOver(next release.Release) {
	switch {
	case m.restored != nil:
		m.settled, m.restored = rollout.Restore(believed(*m.restored, next), next.Version), nil
	case m.passer != nil:
		if settled := m.passer.Settled(); !settled.Empty() {
			m.settled = settled.Restart(m.another)
		}
	}
	m.another = false
}

// believed is what of an inventory can be relied on by a rollout. A predecessor may have died after it had applied what the
// inventory does not have yet; then values of another release stand where ours are recorded, and managedFields tells of
// fields, not of values. So objects of an inventory that was kept for another release are all applied once more.
func believed(inv inventory.Inventory, next release.Release) inventory.Inventory {
	_, digest, named := strings.Cut(next.Image, "@")
	if !named || inv.Digest == "" || inv.Digest == digest {
		return inv
	}
	inv.Records = maps.Clone(inv.Records)
	for id, r := range inv.Records {
		r.Content = inventory.Content{}
		inv.Records[id] = r
	}
	return inv
}

// began is when what is rolled out now was asked for: with the newest entry of the history or, if that release gives the
// cluster something anew, when status began to say so.
func began(status configv1.ClusterVersionStatus) time.Time {
	at := status.History[0].StartedTime.Time
	if c := api.FindCondition(status.Conditions, configv1.OperatorProgressing); c != nil && c.Status == configv1.ConditionTrue && c.LastTransitionTime.After(at) {
		at = c.LastTransitionTime.Time
	}
	return at
}

// saidSince returns the headlines of what a predecessor of this process has told of a rollout. Without them something is
// told twice, which does no harm.
func (w *rolling) saidSince(ctx context.Context, started time.Time) map[string]bool {
	if w.options.Events == nil {
		return nil
	}
	events, err := w.options.Events(ctx, w.r.original)
	if err != nil {
		w.log.V(1).Info("events of a predecessor not read", "error", err.Error())
		return nil
	}
	said := map[string]bool{}
	for _, e := range events {
		if last := cmp.Or(e.LastTimestamp.Time, e.EventTime.Time); !last.Before(started) {
			said[headline(e.Reason, e.Message)] = true
		}
	}
	return said
}

// repaired tells of a repair of drift, and of a fight once it is one.
func (w *rolling) repaired(r rollout.Repaired) {
	w.log.Info("drift repaired", "object", r.ID.String(), "reason", r.Reason, "manager", r.Manager)
	list := []event{driftRepaired(r)}
	if r.Fight {
		list = append(list, repairsHeldBack(r))
	}
	w.emit(w.r.original, list)
}

// progressed stores the progress of a rollout, tells what is new in it, and has it reconciled.
func (c *Reconciler) progressed(cv *configv1.ClusterVersion, key string, progress rollout.Progress) {
	c.mu.Lock()
	if c.memory.planKey != key {
		c.mu.Unlock()
		return
	}
	before := c.memory.progress
	controlNews := c.memory.track(cv, &progress, c.clock.Now())
	c.memory.progress = &progress
	var news []event
	news, c.memory.story = progressEvents(c.memory.story, progress, c.clock.Now())
	said := c.memory.said
	c.mu.Unlock()
	c.emit(cv, append(unsaid(news, said), controlNews...))
	c.runner.Wake(SlotControl)
	if before == nil || !before.Same(progress) {
		c.changed()
	}
}

// Snapshot returns the progress of the rollout under way with the last result of every manifest; for views. It reports
// false if there is no rollout.
func (c *Reconciler) Snapshot() (rollout.Snapshot, bool) {
	c.mu.Lock()
	progress, passer, accepted := c.memory.progressNow(c.clock.Now()), c.memory.passer, c.memory.accepted
	c.mu.Unlock()
	if progress == nil || accepted == nil || passer == nil {
		return rollout.Snapshot{}, false
	}
	snapshot := rollout.Snapshot{At: c.clock.Now(), Progress: *progress, Objects: passer.Objects()}
	planned := make(map[manifest.ID]bool, len(snapshot.Objects))
	for _, o := range snapshot.Objects {
		planned[o.ID] = true
	}
	for _, m := range accepted.Payload.Manifests {
		if !planned[m.ID()] {
			snapshot.Objects = append(snapshot.Objects, skipped(m, "overridden"))
		}
	}
	for _, e := range accepted.Payload.Excluded {
		snapshot.Objects = append(snapshot.Objects, skipped(e.Manifest, e.Reason))
	}
	return snapshot, true
}

// skipped is what there is to tell of a manifest that this cluster does not get.
func skipped(m *manifest.Manifest, why string) rollout.Object {
	return rollout.Object{
		ID: m.ID(), File: m.File, Runlevel: m.Runlevel, Component: m.Component,
		State: rollout.StateSkipped, Reason: "Excluded", Message: why,
	}
}
