package clusterversion

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// answers is a Pruner with an answer for each name.
type answers map[string]struct {
	action apply.Action
	err    error
}

func (a answers) Prune(_ context.Context, _ schema.GroupVersionKind, _, name string, _ types.UID) (apply.Change, error) {
	return apply.Change{Action: a[name].action}, a[name].err
}

// TestPruneIsTriedAgainByTime: what could not be deleted yet makes no event by which it would be tried again.
func TestPruneIsTriedAgainByTime(t *testing.T) {
	for _, tt := range []struct {
		name   string
		action apply.Action
		err    error
		again  time.Duration
	}{
		{"what failed", "", errors.New("no"), pruneInterval},
		{"what is on its way out", apply.Deleting, nil, pruneInterval},
		{"but not what is left on purpose", apply.Skipped, nil, 0},
		{"nor what is gone", apply.Deleted, nil, 0},
	} {
		t.Run("it tries again "+tt.name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(now)
			c := New(clk, nil, record.NewFakeRecorder(10), idle{}, Stages{}, &savedInventory{}, nil, func() {}, Options{})
			_, err := c.ledger.open(t.Context(), logr.Discard())
			require.NoError(t, err)
			rolledOut(t, c.ledger, "1.0.0", "kept", "left")
			rolledOut(t, c.ledger, "1.1.0", "kept")
			a := acceptedRelease("1.1.0")
			a.Payload.Release.Prune = true
			pruner := answers{"left": {tt.action, tt.err}}
			w := &rolling{
				Reconciler: c, mode: release.Reconciling, pruned: map[manifest.ID]time.Time{}, unpruned: map[manifest.ID]bool{},
				r: &round{original: clusterAt(), accepted: &a}, engine: Engine{Pruner: pruner, Completed: func(context.Context) {}},
			}
			assert.Equal(t, tt.again, w.prune(t.Context()))
			clk.SetTime(now.Add(time.Minute))
			assert.Equal(t, max(tt.again-time.Minute, 0), w.prune(t.Context()), "whatever pass comes by meanwhile")
			clk.SetTime(now.Add(pruneInterval))
			pruner["left"] = answers{"": {apply.Deleted, nil}}[""]
			if tt.again > 0 {
				assert.Zero(t, w.prune(t.Context()))
				assert.Empty(t, c.ledger.orphans())
			}
		})
	}
}
