// Package ledger keeps a process's copy of the inventory of applied objects. It adds the results of the current rollout, saves them at
// intervals, and finds the objects that the release no longer contains.
package ledger

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Store stores the inventory of applied objects. *inventory.Store implements it.
type Store interface {
	Load(ctx context.Context) (inventory.Inventory, error)
	Save(ctx context.Context, inv inventory.Inventory) error
}

// Ledger is this process's copy of the inventory. It is written in its own slot, so that no pass waits for the write.
type Ledger struct {
	clock clock.PassiveClock
	store Store
	// Report is called with the error of each save; nil for no call.
	Report func(err error)

	// loading is locked while the store is read, and saving while it is written. mu is not, so that views do not wait for a slow API server.
	loading, saving sync.Mutex

	mu     sync.Mutex
	opened bool
	// ahead is the inventory that was read before Open; nil if there was no such read. closes counts the calls of Close.
	ahead  *inventory.Inventory
	closes int
	inv    inventory.Inventory
	// plan and executor belong to the rollout of inv. begun counts the rollouts that have started.
	plan     *rollout.Plan
	executor *rollout.Executor
	begun    int
	// saved is the number of changes in the store. savedAt is the time of the last write for this rollout; zero if there was none.
	saved   uint64
	savedAt time.Time
	// failure is the reason why the last save failed; empty if it succeeded.
	failure string
}

// New returns a ledger that uses a store.
func New(clk clock.PassiveClock, store Store) *Ledger { return &Ledger{clock: clk, store: store} }

// unsaved is a count of changes that no rollout reaches, so the inventory has to be written.
const unsaved = math.MaxUint64

const (
	// inventoryInterval is the least time between two writes of the inventory during a rollout.
	inventoryInterval = 5 * time.Second
	inventoryRetry    = 10 * time.Second
)

// Open reads the inventory and returns it. Until Close, further calls return nil. Open logs and drops unreadable records; they only save
// applies that change nothing.
func (l *Ledger) Open(ctx context.Context, log logr.Logger) (*inventory.Inventory, error) {
	l.loading.Lock()
	defer l.loading.Unlock()
	if _, opened := l.current(); opened {
		return nil, nil
	}
	inv, err := l.read(ctx, log)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ahead != nil { // Close has not dropped it
		l.opened, l.inv, l.ahead = true, inv, nil
	}
	return &inv, nil
}

// current returns the inventory, and whether it is open.
func (l *Ledger) current() (inv inventory.Inventory, opened bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inv, l.opened
}

// Look returns the open inventory, or else that of an earlier process. Open reuses what Look has read.
func (l *Ledger) Look(ctx context.Context, log logr.Logger) (inventory.Inventory, error) {
	l.loading.Lock()
	defer l.loading.Unlock()
	if inv, opened := l.current(); opened {
		return inv, nil
	}
	return l.read(ctx, log)
}

// read loads the inventory into ahead unless it is there. It does not keep an inventory if Close ran during the read.
func (l *Ledger) read(ctx context.Context, log logr.Logger) (inventory.Inventory, error) {
	l.mu.Lock()
	ahead, closes := l.ahead, l.closes
	l.mu.Unlock()
	if ahead != nil {
		return *ahead, nil
	}
	inv, err := l.store.Load(ctx)
	if _, damaged := errors.AsType[*inventory.DamagedError](err); damaged {
		log.Info("inventory incomplete", "error", err.Error())
		err = nil
	}
	if err != nil {
		return inv, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closes == closes {
		l.ahead = &inv
	}
	return inv, nil
}

// Close drops the inventory, so that the next rollout reads it again. Unsaved changes of the last rollout are lost as in a crash. The next
// rollout then applies some objects again without changing them.
func (l *Ledger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened, l.ahead, l.inv, l.plan, l.executor = false, nil, inventory.Inventory{}, nil, nil
	l.closes++
}

// Begin records which objects the release contains; all other objects in the inventory become orphans, except those whose file was skipped.
// Begin first adds the unsaved changes of the previous rollout, which has ended. It returns a unique key, so that a rollout that is requested
// twice gets its own writer. After Close it does nothing, and ok is false: an empty inventory must not replace the recorded one.
func (l *Ledger) Begin(p *payload.Payload, plan *rollout.Plan, executor *rollout.Executor) (key string, ok bool) {
	named, skipped := p.Named()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.opened {
		return "", false
	}
	if l.executor != nil {
		l.inv = l.inv.With(l.executor.Settled().Records(l.plan)...)
	}
	l.plan, l.executor = plan, executor
	l.inv = inventory.Plan(l.inv, named, skipped, p.Release.Version)
	l.inv.Digest = string(release.Pullspec(p.Release.Image).Digest())
	l.saved, l.savedAt = unsaved, time.Time{} // the first write contains the last changes of the previous rollout
	l.begun++
	return strconv.Itoa(l.begun), true
}

// Step writes the changes of a rollout since the last write. It writes at once when everything has settled or the operator hands over,
// otherwise soon after a runlevel is complete and at most once per inventoryInterval.
func (l *Ledger) Step(log logr.Logger, plan *rollout.Plan, executor *rollout.Executor) func(context.Context) background.Next {
	return func(ctx context.Context) background.Next {
		changes := executor.Changes()
		l.mu.Lock()
		if l.saved == changes {
			l.mu.Unlock()
			return background.Next{}
		}
		if wait := inventoryInterval - l.clock.Since(l.savedAt); wait > 0 && !executor.Resting() && !executor.Handing() {
			l.mu.Unlock()
			return background.Next{After: wait}
		}
		l.mu.Unlock()
		if err := l.Flush(ctx, plan, executor); err != nil {
			if ctx.Err() == nil {
				log.Info("cannot write the inventory", "error", err.Error())
			}
			return background.Next{After: inventoryRetry}
		}
		return background.Next{After: inventoryInterval}
	}
}

// Flush writes the changes of a rollout since the last write without waiting for the interval. It writes nothing for a rollout that was
// replaced, because that would list objects that are now orphans.
func (l *Ledger) Flush(ctx context.Context, plan *rollout.Plan, executor *rollout.Executor) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	changes := executor.Changes()
	l.mu.Lock()
	if l.executor != executor || l.saved == changes {
		l.mu.Unlock()
		return nil
	}
	l.savedAt = l.clock.Now()
	l.inv = l.inv.With(executor.Settled().Records(plan)...)
	inv := l.inv
	l.saved = changes
	l.mu.Unlock()
	err := l.store.Save(ctx, inv)
	l.mu.Lock()
	l.failure = ""
	if err != nil {
		l.saved, l.failure = unsaved, err.Error()
	}
	l.mu.Unlock()
	if l.Report != nil && ctx.Err() == nil {
		l.Report(err)
	}
	return err
}

// Finish writes the changes that the store lacks before the process ends, so that the next one applies nothing again. It logs why that failed.
func (l *Ledger) Finish(ctx context.Context, log logr.Logger) {
	l.mu.Lock()
	plan, executor := l.plan, l.executor
	l.mu.Unlock()
	if executor == nil {
		return
	}
	if err := l.Flush(ctx, plan, executor); err != nil {
		log.Info("cannot write the inventory before the end", "error", err.Error())
	}
}

// Failure returns the reason why the last save failed; empty if it succeeded.
func (l *Ledger) Failure() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// Orphans returns the objects that the release does not contain. It includes the unsaved changes of the rollout, which may show that the
// release contains an object under another identity.
func (l *Ledger) Orphans() []inventory.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.inv.HasDropped() { // the rollout drops no objects, and its records are a copy of the whole plan
		return nil
	}
	if l.executor == nil {
		return l.inv.Orphans()
	}
	return l.inv.With(l.executor.Settled().Records(l.plan)...).Orphans()
}

// Forget drops the record of a deleted object.
func (l *Ledger) Forget(id manifest.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inv = l.inv.Forget(id)
	l.saved = unsaved
}
