package clusterversion

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// Store keeps the inventory of what releases have applied; *inventory.Store is one.
type Store interface {
	Load(ctx context.Context) (inventory.Inventory, error)
	Save(ctx context.Context, inv inventory.Inventory) error
}

// ledger is the inventory as this process knows it. It is written beside the rollout, so that no pass waits for it.
type ledger struct {
	clock clock.PassiveClock
	store Store

	// saving is held while the store is written.
	saving sync.Mutex

	mu     sync.Mutex
	opened bool
	inv    inventory.Inventory
	// plan and passer are those of the rollout that inv is kept for; begun counts those that have begun.
	plan   *rollout.Plan
	passer *rollout.Passer
	begun  int
	// saved is the count of changes that the store has, savedAt when it was last written.
	saved   uint64
	savedAt time.Time
}

// unsaved is a count of changes that no rollout reaches: there is something to write.
const unsaved = math.MaxUint64

const (
	// inventoryInterval is the least time between two writes of the inventory during a rollout.
	inventoryInterval = 5 * time.Second
	inventoryRetry    = 10 * time.Second
)

// open reads the inventory, once in the life of the process, and returns what it read then, nil afterwards. Records that
// cannot be read are told and done without: what they would have spared is applies that change nothing.
func (l *ledger) open(ctx context.Context, log logr.Logger) (*inventory.Inventory, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened {
		return nil, nil
	}
	inv, err := l.store.Load(ctx)
	if _, damaged := errors.AsType[*inventory.DamagedError](err); damaged {
		log.Info("inventory incomplete", "error", err.Error())
	} else if err != nil {
		return nil, err
	}
	l.opened, l.inv = true, inv
	return &inv, nil
}

// begin notes which objects the release names; those that it does not name any more are orphans from now on. The rollout
// before has ended, and what it did since that was written last is taken over first. The key that is returned is no other
// rollout's: one that is wanted again is not written for by the work of the one before.
func (l *ledger) begin(p *payload.Payload, plan *rollout.Plan, passer *rollout.Passer) (key string) {
	named := make(map[manifest.ID]bool, len(p.Manifests)+len(p.Excluded))
	for _, m := range p.Manifests {
		named[m.ID()] = true
	}
	for _, e := range p.Excluded {
		named[e.Manifest.ID()] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.passer != nil {
		l.inv = l.inv.With(l.passer.Settled().Records(l.plan)...)
	}
	l.plan, l.passer = plan, passer
	l.inv = inventory.Plan(l.inv, named, p.Release.Version)
	_, l.inv.Digest, _ = strings.Cut(p.Release.Image, "@")
	l.saved = unsaved
	l.begun++
	return strconv.Itoa(l.begun)
}

// step writes what a rollout has done since the last write: when everything has settled at once, and while a rollout is
// under way at most every inventoryInterval, soon after it has got past a runlevel.
func (l *ledger) step(log logr.Logger, plan *rollout.Plan, passer *rollout.Passer) func(context.Context) Next {
	return func(ctx context.Context) Next {
		changes := passer.Changes()
		l.mu.Lock()
		if l.saved == changes {
			l.mu.Unlock()
			return Next{}
		}
		if wait := inventoryInterval - l.clock.Since(l.savedAt); wait > 0 && !passer.Resting() && !passer.Handing() {
			l.mu.Unlock()
			return Next{After: wait}
		}
		l.mu.Unlock()
		if err := l.flush(ctx, plan, passer); err != nil {
			if ctx.Err() == nil {
				log.Info("inventory not written", "error", err.Error())
			}
			return Next{After: inventoryRetry}
		}
		return Next{After: inventoryInterval}
	}
}

// flush writes what a rollout has done since the last write, however short ago that was. One that another has replaced has
// nothing to say any more: it would name again what the other has found to be orphans.
func (l *ledger) flush(ctx context.Context, plan *rollout.Plan, passer *rollout.Passer) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	changes := passer.Changes()
	l.mu.Lock()
	if l.passer != passer || l.saved == changes {
		l.mu.Unlock()
		return nil
	}
	l.savedAt = l.clock.Now()
	l.inv = l.inv.With(passer.Settled().Records(plan)...)
	inv := l.inv
	l.saved = changes
	l.mu.Unlock()
	if err := l.store.Save(ctx, inv); err != nil {
		l.mu.Lock()
		l.saved = unsaved
		l.mu.Unlock()
		return err
	}
	return nil
}

// orphans returns what no manifest names any more.
func (l *ledger) orphans() []inventory.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inv.Orphans()
}

// forget drops the record of an object that is gone.
func (l *ledger) forget(id manifest.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inv = l.inv.Forget(id)
	l.saved = unsaved
}
