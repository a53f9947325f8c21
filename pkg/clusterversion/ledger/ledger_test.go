package ledger_test

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/clusterversion/ledger"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
)

// countingStore counts the reads of an inventory.
type countingStore struct {
	inv   inventory.Inventory
	loads int
}

func (s *countingStore) Load(context.Context) (inventory.Inventory, error) {
	s.loads++
	return s.inv, nil
}

func (s *countingStore) Save(context.Context, inventory.Inventory) error { return nil }

// TestInventoryIsReadOnce opens the inventory after a look at it, without another request.
func TestInventoryIsReadOnce(t *testing.T) {
	store := &countingStore{inv: inventory.Inventory{Release: "1.1.0"}}
	l := ledger.New(clock.RealClock{}, store)
	looked, err := l.Look(t.Context(), logr.Discard())
	require.NoError(t, err)
	assert.Equal(t, store.inv, looked)
	opened, err := l.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	assert.Equal(t, store.inv, *opened)
	assert.Equal(t, 1, store.loads)
}

// viewedStore calls view during each read.
type viewedStore struct {
	countingStore
	view func()
}

func (s *viewedStore) Load(ctx context.Context) (inventory.Inventory, error) {
	s.view()
	return s.countingStore.Load(ctx)
}

// TestViewsDoNotWaitForARead asks for the last failure and the orphans while the API server answers slowly.
func TestViewsDoNotWaitForARead(t *testing.T) {
	store := &viewedStore{}
	l := ledger.New(clock.RealClock{}, store)
	store.view = func() {
		assert.Empty(t, l.Failure())
		assert.Empty(t, l.Orphans())
	}
	_, err := l.Look(t.Context(), logr.Discard())
	require.NoError(t, err)
	l.Close()
	_, err = l.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	assert.Equal(t, 2, store.loads)
}

// TestInventoryOfADeletedClusterVersionIsDropped closes the ledger during a read. The next rollout reads the inventory again.
func TestInventoryOfADeletedClusterVersionIsDropped(t *testing.T) {
	for name, read := range map[string]func(*ledger.Ledger) error{
		"by a rollout": func(l *ledger.Ledger) error {
			_, err := l.Open(t.Context(), logr.Discard())
			return err
		},
		"before a rollout": func(l *ledger.Ledger) error {
			_, err := l.Look(t.Context(), logr.Discard())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := &viewedStore{view: func() {}}
			l := ledger.New(clock.RealClock{}, store)
			store.view = l.Close
			require.NoError(t, read(l))
			store.view = func() {}
			opened, err := l.Open(t.Context(), logr.Discard())
			require.NoError(t, err)
			assert.NotNil(t, opened)
			assert.Equal(t, 2, store.loads)
		})
	}
}
