package clusterversion

import (
	"context"
	"crypto/sha256"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// takesAll is a cluster that takes whatever is applied.
type takesAll struct{ rollout.Applier }

func (takesAll) Apply(context.Context, *manifest.Manifest, release.Mode) (apply.Change, error) {
	return apply.Change{Action: apply.Created, UID: "u", ResourceVersion: "1"}, nil
}

func (takesAll) Content(m *manifest.Manifest) ([sha256.Size]byte, error) {
	return sha256.Sum256(m.Raw), nil
}

// seesNothing has no watch that has told anything.
type seesNothing struct{ rollout.Observer }

func (seesNothing) Look(context.Context, *manifest.Manifest, bool) observe.Look {
	return observe.Look{}
}

// savedInventory is the store's.
type savedInventory struct {
	inventory.Inventory

	saves int
}

func (s *savedInventory) Load(context.Context) (inventory.Inventory, error) { return s.Inventory, nil }

func (s *savedInventory) Save(_ context.Context, inv inventory.Inventory) error {
	s.Inventory, s.saves = inv, s.saves+1
	return nil
}

// rolledOut is a release of these ConfigMaps that was rolled out, and what did that; the ledger began with it before.
func rolledOut(t *testing.T, l *ledger, version string, names ...string) (*rollout.Plan, *rollout.Passer) {
	t.Helper()
	p := &payload.Payload{Release: release.Release{Version: version, Image: "registry.example/release@sha256:" + version}}
	for _, name := range names {
		list, err := manifest.Parse("0000_10_x_"+name+".yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+", namespace: default}"), manifest.Limits{})
		require.NoError(t, err)
		p.Manifests = append(p.Manifests, list...)
	}
	plan, err := rollout.NewPlan(p.Release, p.Manifests, release.Updating)
	require.NoError(t, err)
	passer := &rollout.Passer{Clock: clock.RealClock{}, Applier: takesAll{}, Observer: seesNothing{}, Rand: rand.New(rand.NewPCG(1, 1))}
	l.begin(p, plan, passer)
	_, _, err = passer.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	return plan, passer
}

// TestLedgerOfARolloutThatIsReplaced: the writer of the inventory is told to end only after another rollout has begun.
func TestLedgerOfARolloutThatIsReplaced(t *testing.T) {
	store := &savedInventory{}
	l := &ledger{clock: clock.RealClock{}, store: store}
	_, err := l.open(t.Context(), logr.Discard())
	require.NoError(t, err)
	orphans := func() []string {
		var names []string
		for _, r := range l.orphans() {
			names = append(names, r.ID.Name)
		}
		return names
	}

	oldPlan, oldPasser := rolledOut(t, l, "1.0.0", "kept", "left")
	assert.Empty(t, orphans())
	newPlan, newPasser := rolledOut(t, l, "1.1.0", "kept", "made")
	assert.Equal(t, []string{"left"}, orphans(), "it was applied, though that was not written yet")

	require.NoError(t, l.flush(t.Context(), oldPlan, oldPasser))
	assert.Zero(t, store.saves)
	assert.Equal(t, []string{"left"}, orphans(), "what comes late from the one before names it no more")
	require.NoError(t, l.flush(t.Context(), newPlan, newPasser))
	assert.Equal(t, 1, store.saves)
	var names []string
	for id := range maps.Keys(store.Records) {
		names = append(names, id.Name)
	}
	slices.Sort(names)
	assert.Equal(t, []string{"kept", "left", "made"}, names)
}
