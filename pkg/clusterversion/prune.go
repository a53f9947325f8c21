package clusterversion

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/release"
)

// Pruner deletes objects of earlier releases, and refuses where data or other people's objects would go with them;
// *apply.Applier is one.
type Pruner interface {
	Prune(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, uid types.UID) (apply.Change, error)
}

// pruneInterval is how long an orphan that could not be deleted is left alone.
const pruneInterval = 10 * time.Minute

// prune deletes what no manifest names any more, if the release or the administrator asks for it. It does so only once
// the release is complete: until then the way back is open, and its objects with it. It returns when it has to be called
// again though nothing may happen, 0 for never.
func (w *rolling) prune(ctx context.Context) time.Duration {
	if !asksToPrune(w.r) || w.mode != release.Reconciling {
		return 0
	}
	due := slices.DeleteFunc(w.ledger.orphans(), func(o inventory.Record) bool {
		return w.clock.Since(w.pruned[o.ID]) < pruneInterval
	})
	if len(due) == 0 {
		return w.pruneAgain()
	}
	if w.engine.Permit != nil {
		if err := w.engine.Permit(ctx, due); err != nil {
			w.log.Info("orphans may not be deleted", "error", err.Error()) // each request tells so itself
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

// pruneAgain is how long it takes until the first orphan is due that is left for the moment.
func (w *rolling) pruneAgain() (next time.Duration) {
	for _, o := range w.ledger.orphans() {
		left := max(pruneInterval-w.clock.Since(w.pruned[o.ID]), time.Millisecond)
		if w.unpruned[o.ID] && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

// asksToPrune reports whether the release's metadata or the ClusterVersion asks to delete orphans.
func asksToPrune(r *round) bool {
	return r.accepted.Payload.Release.Prune || r.original.Annotations[api.PruneAnnotation] == "true"
}

func (w *rolling) pruneOne(ctx context.Context, orphan inventory.Record) {
	id := orphan.ID
	w.pruned[id] = w.clock.Now()
	delete(w.unpruned, id)
	gvk := schema.GroupVersionKind{Group: id.Group, Version: orphan.Version, Kind: id.Kind}
	change, err := w.engine.Pruner.Prune(ctx, gvk, id.Namespace, id.Name, "")
	switch {
	case err != nil && !apply.IsNoMatch(err):
		w.unpruned[id] = true
		w.log.Info("orphan not deleted", "object", id.String(), "error", err.Error())
	case err != nil, change.Action == apply.Deleted:
		w.ledger.forget(id)
		w.runner.Wake(SlotInventory)
		w.emit(w.r.original, []event{orphanPruned(orphan)})
	default:
		if change.Action == apply.Deleting {
			w.unpruned[id] = true
		}
		w.log.Info("orphan not deleted yet", "object", id.String(), "state", change.Action, "reason", change.Message)
	}
}
