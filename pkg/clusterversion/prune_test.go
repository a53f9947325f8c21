package clusterversion

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// pruned is a Pruner with an answer for each object name.
type pruned map[string]struct {
	action    apply.Action
	uid       types.UID
	temporary bool
	err       error
}

func (p pruned) Prune(_ context.Context, _ schema.GroupVersionKind, _, name string, uid types.UID) (apply.Change, error) {
	if string(uid) != name {
		return apply.Change{}, fmt.Errorf("the caller must name the recorded object, not %q", uid)
	}
	return apply.Change{Action: p[name].action, UID: p[name].uid, Temporary: p[name].temporary}, p[name].err
}

// TestPruneIsRetriedByTime retries on a timer, because no event announces that an orphan can now be deleted.
func TestPruneIsRetriedByTime(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer pruned
		again  time.Duration
	}{
		{"retries a failed deletion", pruned{"left": {err: errors.New("no")}}, pruneInterval},
		{"soon checks an object that is being deleted again", pruned{"left": {action: apply.Deleting}}, time.Second},
		{"retries an object that another object controls", pruned{"left": {action: apply.Skipped, temporary: true}}, pruneInterval},
		{"does not retry an object that is kept on purpose", pruned{"left": {action: apply.Skipped}}, 0},
		{"does not retry a deleted object", pruned{"left": {action: apply.Deleted}}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(now)
			w := pruningRollout(t, clk, record.NewFakeRecorder(10))
			w.engine.Pruner = tt.answer
			assert.Equal(t, tt.again, w.prune(t.Context()))
			clk.SetTime(now.Add(500 * time.Millisecond))
			assert.Equal(t, max(tt.again-500*time.Millisecond, 0), w.prune(t.Context()), "other passes do not change the time")
			clk.SetTime(now.Add(pruneInterval))
			w.engine.Pruner = pruned{"left": {action: apply.Deleted}}
			if tt.again > 0 {
				assert.Zero(t, w.prune(t.Context()))
				assert.Empty(t, w.ledger.Orphans())
			}
		})
	}
}

// TestChecksOfADeletionBecomeRarer covers an object whose finalizers stay.
func TestChecksOfADeletionBecomeRarer(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(now)
	w := pruningRollout(t, clk, record.NewFakeRecorder(10))
	w.engine.Pruner = pruned{"left": {action: apply.Deleting}}
	var waits []time.Duration
	for range 14 {
		wait := w.prune(t.Context())
		waits = append(waits, wait)
		clk.SetTime(clk.Now().Add(wait))
	}
	assert.Equal(t, []time.Duration{time.Second, time.Second, 2 * time.Second, 4 * time.Second}, waits[:4])
	assert.Equal(t, pruneInterval, waits[13])
}

func TestPruneReportsItsOwnDeletions(t *testing.T) {
	failed, deleting, gone := pruned{"left": {err: errors.New("no")}}, pruned{"left": {action: apply.Deleting, uid: "u"}}, pruned{"left": {action: apply.Deleted}}
	for _, tt := range []struct {
		name    string
		answers []pruned
		reports bool
	}{
		{"it deletes the object", []pruned{{"left": {action: apply.Deleted, uid: "u"}}}, true},
		{"it starts the deletion", []pruned{deleting, gone}, true},
		{"it starts the deletion and cannot read the object once", []pruned{deleting, failed, gone}, true},
		{"it cannot delete the object", []pruned{failed, gone}, false},
		{"the object is gone", []pruned{gone}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clk, events := clocktesting.NewFakePassiveClock(now), record.NewFakeRecorder(10)
			w := pruningRollout(t, clk, events)
			for _, answer := range tt.answers {
				w.engine.Pruner = answer
				w.prune(t.Context())
				clk.SetTime(clk.Now().Add(pruneInterval))
			}
			assert.Empty(t, w.ledger.Orphans())
			assert.Equal(t, tt.reports, len(events.Events) > 0)
		})
	}
}

func TestPruneKeepsOverriddenObjects(t *testing.T) {
	events := record.NewFakeRecorder(10)
	w := pruningRollout(t, clocktesting.NewFakePassiveClock(now), events)
	w.engine.Pruner = pruned{"left": {action: apply.Deleted, uid: "u"}}
	id := w.ledger.Orphans()[0].ID
	w.r.original.Spec.Overrides = []configv1.ComponentOverride{{Group: id.Group, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name, Unmanaged: true}}
	w.prune(t.Context())
	assert.Len(t, w.ledger.Orphans(), 1)
	assert.Empty(t, events.Events)
}

// TestPruneKeepsObjectsThatBecameCreateOnly applies an object of the first release. A later release makes it create-only, and the last one
// drops it.
func TestPruneKeepsObjectsThatBecameCreateOnly(t *testing.T) {
	for _, tt := range []struct {
		name     string
		releases []string // the object in each release
		kept     bool
	}{
		{"keeps an object that a release made create-only", []string{"left", "left once"}, true},
		{"prunes an object that a later release applied again", []string{"left", "left once", "left"}, false},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("it %s, restarts: %v", tt.name, restarts), func(t *testing.T) {
				store, order := &savedInventory{}, &pruneOrder{}
				c := openReconciler(t, clocktesting.NewFakePassiveClock(now), record.NewFakeRecorder(10), store)
				for i, object := range append(tt.releases, "kept") {
					plan, executor := rolledOut(t, c.ledger, fmt.Sprintf("1.%d.0", i), object)
					if restarts {
						require.NoError(t, c.ledger.Flush(t.Context(), plan, executor))
						c = openReconciler(t, clocktesting.NewFakePassiveClock(now), record.NewFakeRecorder(10), store)
					}
				}
				w := prunes(c)
				w.engine.Pruner = order
				assert.Zero(t, w.prune(t.Context()))
				assert.Equal(t, tt.kept, len(order.names) == 0)
				assert.Equal(t, tt.kept, len(w.ledger.Orphans()) > 0)
			})
		}
	}
}

// TestPruneDeletesDefinitionsLast covers a CRD, which comes before the objects of its kind in the alphabet but stays while they exist.
func TestPruneDeletesDefinitionsLast(t *testing.T) {
	definition := inventory.Record{ID: manifest.ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com"}}
	object := inventory.Record{ID: manifest.ID{Group: "example.com", Kind: "Widget", Name: "w"}}
	plan := inventory.Plan(inventory.Inventory{Release: "1.0.0"}.With(definition, object), nil, nil, "1.1.0")
	order := &pruneOrder{}
	w := prunes(openReconciler(t, clocktesting.NewFakePassiveClock(now), record.NewFakeRecorder(10), &savedInventory{Inventory: plan}))
	w.engine.Pruner = order
	w.prune(t.Context())
	assert.Equal(t, []string{"w", "widgets.example.com"}, order.names)
}

type pruneOrder struct{ names []string }

func (p *pruneOrder) Prune(_ context.Context, _ schema.GroupVersionKind, _, name string, _ types.UID) (apply.Change, error) {
	p.names = append(p.names, name)
	return apply.Change{Action: apply.Deleted}, nil
}

// pruningRollout returns a rollout of release 1.1.0, which prunes object left of release 1.0.0.
func pruningRollout(t *testing.T, clk clock.PassiveClock, events record.EventRecorder) *rolling {
	t.Helper()
	c := openReconciler(t, clk, events, &savedInventory{})
	rolledOut(t, c.ledger, "1.0.0", "kept", "left")
	rolledOut(t, c.ledger, "1.1.0", "kept")
	return prunes(c)
}

// openReconciler returns a reconciler that has read the inventory.
func openReconciler(t *testing.T, clk clock.PassiveClock, events record.EventRecorder, store *savedInventory) *Reconciler {
	t.Helper()
	c := New(clk, nil, events, idle{}, accept.Stages{}, store, nil, func() {}, Options{})
	_, err := c.ledger.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	return c
}

// prunes returns the rollout of a complete release that requests pruning.
func prunes(c *Reconciler) *rolling {
	a := acceptedRelease("1.1.0")
	a.Payload.Release.Prune = true
	return &rolling{
		Reconciler: c, mode: release.Reconciling, prunings: map[manifest.ID]pruning{},
		r: &round{original: clusterAt(), accepted: &a}, engine: Engine{Completed: func(context.Context) {}},
	}
}
