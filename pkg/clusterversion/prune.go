package clusterversion

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/release"
)

// Pruner deletes objects of earlier releases. It refuses if that would also delete data or objects of other owners. *apply.Applier
// implements it.
type Pruner interface {
	Prune(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, uid types.UID) (apply.Change, error)
}

// pruneInterval is the time between two attempts to delete an orphan, and the longest time between two checks of a started deletion.
const pruneInterval = 10 * time.Minute

// pruning is an attempt to delete an orphan.
type pruning struct {
	at time.Time
	// started is the time when the server started the deletion; zero before.
	started time.Time
	// again is true if the next attempt may succeed without an event that reports a change.
	again bool
}

// interval returns the time until the next attempt. The checks of a started deletion become rarer, because finalizers may delay it for long.
func (p pruning) interval() time.Duration {
	if p.started.IsZero() {
		return pruneInterval
	}
	return min(max(p.at.Sub(p.started), time.Second), pruneInterval)
}

// prune deletes objects that the release does not contain, if the release or an administrator requests it. It waits until the release is
// complete: before that, the cluster may return to the earlier release, which needs its objects. prune returns the time until its next call
// without an event, 0 for never.
func (w *rolling) prune(ctx context.Context) time.Duration {
	if !requestsPruning(w.r) || w.mode != release.Reconciling {
		return 0
	}
	policy := inventory.PruningOf(w.r.original)
	due := slices.DeleteFunc(w.ledger.Orphans(), func(o inventory.Record) bool {
		last := w.prunings[o.ID]
		return w.clock.Since(last.at) < last.interval() || policy.Stays(o) != ""
	})
	if len(due) == 0 {
		return w.pruneAgain()
	}
	if w.engine.Permit != nil {
		if err := w.engine.Permit(ctx, due); err != nil {
			w.log.Info("cannot get the permission to delete orphans", "error", err.Error()) // the failed deletions report it again
		}
	}
	for _, orphan := range due {
		if ctx.Err() != nil {
			return 0
		}
		w.pruneOne(ctx, orphan)
	}
	w.engine.Completed(ctx)
	return w.pruneAgain()
}

// pruneAgain returns the time until the next attempt to delete an orphan, 0 for none.
func (w *rolling) pruneAgain() (next time.Duration) {
	for _, o := range w.ledger.Orphans() {
		last := w.prunings[o.ID]
		left := max(last.interval()-w.clock.Since(last.at), time.Millisecond)
		if last.again && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

// requestsPruning reports whether the release's metadata or the ClusterVersion requests that orphans are deleted.
func requestsPruning(r *round) bool {
	return r.accepted.Payload.Release.Prune || inventory.PruningOf(r.original).Requested
}

func (w *rolling) pruneOne(ctx context.Context, orphan inventory.Record) {
	id := orphan.ID
	started := w.prunings[id].started
	attempt := pruning{at: w.clock.Now()}
	gvk := schema.GroupVersionKind{Group: id.Group, Version: orphan.Version, Kind: id.Kind}
	change, err := w.engine.Pruner.Prune(ctx, gvk, id.Namespace, id.Name, orphan.UID)
	switch {
	case err != nil && !kinds.IsNoMatch(err):
		attempt.started, attempt.again = started, true
		w.log.Info("cannot delete the orphan", "object", id.String(), "error", err.Error())
	case err != nil, change.Action == apply.Deleted:
		w.ledger.Forget(id)
		w.runner.Wake(background.SlotInventory)
		if change.UID != "" || !started.IsZero() { // otherwise another client or a tombstone has deleted it
			w.emitter.Emit(w.r.original, orphanPruned(orphan))
		}
	default:
		if change.Action == apply.Deleting {
			attempt.started = started
			if started.IsZero() {
				attempt.started = attempt.at
			}
		}
		attempt.again = !attempt.started.IsZero() || change.Temporary
		w.log.Info("orphan is not deleted yet", "object", id.String(), "state", change.Action, "reason", change.Message)
	}
	w.prunings[id] = attempt
}
