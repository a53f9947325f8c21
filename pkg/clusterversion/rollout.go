package clusterversion

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/assess"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/story"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Engine rolls out one payload for one ClusterVersion.
type Engine struct {
	Executor *rollout.Executor
	// Prepare is called before each pass. If values of the cluster's configuration have changed, it renders the manifests again. An error
	// defers the pass.
	Prepare func(ctx context.Context) error
	// Completed is called after each pass that found everything in place, and again after orphans were deleted.
	Completed func(ctx context.Context)
	Pruner    Pruner
	// Permit is called before orphans are deleted and ensures that the operator has the permission; nil checks nothing.
	Permit func(ctx context.Context, orphans []inventory.Record) error
}

// EngineFor returns the Engine of a payload.
type EngineFor func(cv *configv1.ClusterVersion, p *payload.Payload) Engine

// prepareRetry is the time between a failed preparation of a pass and the next attempt.
const prepareRetry = 2 * time.Second

// rolling is one rollout in the background. It makes passes over one plan until the reconciler starts another rollout.
type rolling struct {
	*Reconciler
	log  logr.Logger
	key  string
	mode release.Mode
	r    *round

	plan   *rollout.Plan
	engine Engine
	// prunings has the last attempt to delete each orphan.
	prunings map[manifest.ID]pruning
}

func (c *Reconciler) rolloutStep(log logr.Logger, key string, mode release.Mode, r *round) func(context.Context) background.Next {
	w := &rolling{Reconciler: c, log: log, key: key, mode: mode, r: r, prunings: map[manifest.ID]pruning{}}
	return w.step
}

// step makes one pass.
func (w *rolling) step(ctx context.Context) background.Next {
	if w.plan == nil {
		if err := w.begin(ctx); err != nil {
			if !errors.Is(err, errSuperseded) && w.obstructed(err) {
				w.log.Error(err, "cannot plan the rollout")
			}
			return background.Next{After: pendingRetry}
		}
	}
	if err := w.engine.Prepare(ctx); err != nil {
		if ctx.Err() == nil && w.obstructed(err) {
			w.log.Info("pass deferred", "error", err.Error())
		}
		return background.Next{After: prepareRetry}
	}
	w.obstructed(nil)
	progress, settled, err := w.engine.Executor.Run(ctx, w.plan, w.underway.snapshot().settled)
	w.underway.settle(w.engine.Executor, settled)
	w.runner.Wake(background.SlotInventory)
	if err != nil {
		return background.Next{Done: true}
	}
	w.progressed(w.r.original, w.key, progress)
	var again time.Duration
	if progress.Complete {
		w.engine.Completed(ctx)
		again = w.prune(ctx)
	}
	next := background.Next{After: story.Next(w.underway.snapshot().story, progress, w.clock.Now())}
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

// begin prepares the rollout. The first rollout of a process starts from the inventory.
func (w *rolling) begin(ctx context.Context) error {
	p := w.r.accepted.Payload
	restored, err := w.ledger.Open(ctx, w.log)
	if err != nil {
		return err
	}
	manifests := accept.Managed(*w.r.accepted, w.r.cv.Spec.Overrides)
	plan, err := rollout.NewPlan(p.Release, manifests, w.mode)
	if err != nil {
		return err
	}
	plan.Began = began(w.r.original.Status)
	engine := w.Reconciler.engine(w.r.original, p)
	boundary := -1
	engine.Executor.Report = func(progress report.Progress) {
		w.progressed(w.r.original, w.key, progress)
		if level := progress.FirstOpen(); level != boundary {
			boundary = level
			w.runner.Wake(background.SlotInventory)
		}
	}
	if h := engine.Executor.Handover; h != nil {
		h.Flush = func(ctx context.Context) error { return w.ledger.Flush(ctx, plan, engine.Executor) }
	}
	if f := w.newFormer(); f != nil && w.mode == release.Updating {
		engine.Executor.Former = f.manifests
	}
	engine.Executor.Repaired = func(r report.Repaired) { w.repaired(r) }
	engine.Executor.TakenBack = func(id manifest.ID, text string) { w.emitter.Emit(w.r.original, fieldsTakenBack(id, text)) }
	started := w.r.original.Status.History[0].StartedTime.Time
	if !w.underway.begin(w.key, beginning{plan: plan, executor: engine.Executor, payload: p, started: started, restored: restored}) ||
		!w.control.Begin(w.key, engine.Executor) {
		return errSuperseded
	}
	key, ok := w.ledger.Begin(p, plan, engine.Executor)
	if !ok {
		return errSuperseded
	}
	w.plan, w.engine = plan, engine
	w.runner.Start(background.SlotInventory, key, w.ledger.Step(w.log, plan, engine.Executor))
	w.log.Info("rollout started", "release", p.Release.Version, "mode", w.mode, "manifests", len(manifests))
	return nil
}

// obstructed records why the rollout can make no pass, nil if it can, and has the status show it. It reports whether that is news.
func (w *rolling) obstructed(err error) bool {
	changed := w.underway.obstruct(w.key, err)
	if changed {
		w.changed()
	}
	return changed
}

// errSuperseded reports that another rollout was requested in the meantime. That one inherits the state when it begins.
var errSuperseded = errors.New("another rollout is requested")

// began returns when the current rollout was requested: the start of the newest history entry or, if that release adds objects to the
// cluster, the time when the status began to progress.
func began(status configv1.ClusterVersionStatus) time.Time {
	at := status.History[0].StartedTime.Time
	if c := api.FindCondition(status.Conditions, configv1.OperatorProgressing); c != nil && c.Status == configv1.ConditionTrue && c.LastTransitionTime.After(at) {
		at = c.LastTransitionTime.Time
	}
	return at
}

// repaired reports a repair of drift. When another client starts to undo repairs, it reports that too.
func (w *rolling) repaired(r report.Repaired) {
	w.log.Info("drift repaired", "object", r.ID.String(), "reason", r.Reason, "manager", r.Manager)
	list := []event.Event{driftRepaired(r)}
	if r.Fight {
		list = append(list, repairsHeldBack(r))
	}
	w.emitter.Emit(w.r.original, list...)
}

// progressed stores the progress of a rollout, emits events for the changes and triggers a reconcile.
func (c *Reconciler) progressed(cv *configv1.ClusterVersion, key string, progress report.Progress) {
	tracked, ok := c.control.Track(key, cv, &progress)
	if !ok {
		return
	}
	news, changed, ok := c.underway.advance(key, progress)
	c.emitter.Emit(cv, append(news, tracked...)...) // also for a rollout superseded since: control counts these events as reported
	if !ok {
		return
	}
	c.runner.Wake(background.SlotControl)
	if changed {
		c.changed()
	}
}

// Snapshot returns, for views, the progress of the rollout under way with the last result of every manifest. It returns false if there is
// no rollout.
func (c *Reconciler) Snapshot() (report.Snapshot, bool) {
	known := c.underway.snapshot()
	if known.progress == nil || known.executor == nil {
		return report.Snapshot{}, false
	}
	snapshot := report.Snapshot{
		At: c.clock.Now(), Progress: *c.control.Estimated(known.progress), InventoryError: c.ledger.Failure(),
		UnmatchedOverrides: c.record.UnmatchedOverrides(), NothingIncluded: known.payload.Nothing(), Objects: known.executor.Objects(),
	}
	if latest := c.acceptance.snapshot().Latest; latest.Err != nil {
		snapshot.Rejected = latest.Message
	}
	assess.Patiently(&snapshot)
	planned := make(map[manifest.ID]bool, len(snapshot.Objects))
	for _, o := range snapshot.Objects {
		planned[o.ID] = true
	}
	for _, m := range known.payload.Manifests {
		if !planned[m.ID()] {
			snapshot.Objects = append(snapshot.Objects, skipped(m, report.Overridden))
		}
	}
	for _, e := range known.payload.Excluded {
		snapshot.Objects = append(snapshot.Objects, skipped(e.Manifest, e.Reason))
	}
	return snapshot, true
}

// skipped returns the entry of a manifest that this cluster does not get. why is the reason.
func skipped(m *manifest.Manifest, why string) report.Object {
	return report.Object{
		ID: m.ID(), File: m.File, Runlevel: m.Runlevel, Component: m.Component,
		State: report.StateSkipped, Reason: "Excluded", Message: why,
	}
}
