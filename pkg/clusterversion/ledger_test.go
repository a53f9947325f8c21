package clusterversion

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/clusterversion/ledger"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// takesAll is a cluster that accepts every apply, and has all create-only objects already. An object's UID is its name without the suffix
// that begins with "-".
type takesAll struct{ rollout.Applier }

func (takesAll) Apply(_ context.Context, m *manifest.Manifest, _ release.Mode, _ apply.Options) (apply.Change, error) {
	if m.CreateOnly() {
		return apply.Change{Action: apply.Kept}, nil
	}
	uid, _, _ := strings.Cut(m.Object.GetName(), "-")
	return apply.Change{Action: apply.Created, UID: types.UID(uid), ResourceVersion: "1"}, nil
}

func (takesAll) Content(m *manifest.Manifest) ([sha256.Size]byte, error) {
	return sha256.Sum256(m.Raw), nil
}

// seesNothing is an Observer whose watches have delivered nothing.
type seesNothing struct{ rollout.Observer }

func (seesNothing) Look(context.Context, *manifest.Manifest, bool) observe.Look {
	return observe.Look{}
}

// callsBack is an Observer that calls back when a visit evaluates a gate, so between the apply and the end of the visit.
type callsBack struct {
	seesNothing

	checked func()
}

func (o callsBack) Object(manifest.ID) gate.Object {
	o.checked()
	return nil
}

// savedInventory is an in-memory store.
type savedInventory struct {
	inventory.Inventory

	saves   int
	failure error
}

func (s *savedInventory) Load(context.Context) (inventory.Inventory, error) { return s.Inventory, nil }

func (s *savedInventory) Save(_ context.Context, inv inventory.Inventory) error {
	if s.failure != nil {
		return s.failure
	}
	s.Inventory, s.saves = inv, s.saves+1
	return nil
}

// rolledOut begins a rollout of these ConfigMaps in the ledger and runs it. A ConfigMap is create-only if its name ends with " once". It
// returns the plan and the executor.
func rolledOut(t *testing.T, l *ledger.Ledger, version string, names ...string) (*rollout.Plan, *rollout.Executor) {
	t.Helper()
	p := &payload.Payload{Release: release.Release{Version: version, Image: "registry.example/release@sha256:" + version}}
	for _, name := range names {
		name, once := strings.CutSuffix(name, " once")
		list, err := manifest.Parse("0000_10_x_"+name+".yaml", fmt.Appendf(nil,
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default, annotations: {%s: %q}}", name, api.CreateOnlyAnnotation, strconv.FormatBool(once),
		), manifest.Limits{})
		require.NoError(t, err)
		p.Manifests = append(p.Manifests, list...)
	}
	plan, err := rollout.NewPlan(p.Release, p.Manifests, release.Updating)
	require.NoError(t, err)
	executor := &rollout.Executor{Clock: clock.RealClock{}, Applier: takesAll{}, Observer: seesNothing{}, Rand: rand.New(rand.NewPCG(1, 1))}
	l.Begin(p, plan, executor)
	_, _, err = executor.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	return plan, executor
}

// TestReplacedRolloutSavesNoInventory replaces a rollout. The writer of its inventory is canceled only after the new rollout has started.
func TestReplacedRolloutSavesNoInventory(t *testing.T) {
	store := &savedInventory{}
	l := ledger.New(clock.RealClock{}, store)
	_, err := l.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	orphans := func() []string {
		var names []string
		for _, r := range l.Orphans() {
			names = append(names, r.ID.Name)
		}
		return names
	}

	oldPlan, oldExecutor := rolledOut(t, l, "1.0.0", "kept", "left")
	assert.Empty(t, orphans())
	newPlan, newExecutor := rolledOut(t, l, "1.1.0", "kept", "made")
	assert.Equal(t, []string{"left"}, orphans(), "the object was applied, although that was not saved yet")

	require.NoError(t, l.Flush(t.Context(), oldPlan, oldExecutor))
	assert.Zero(t, store.saves)
	assert.Equal(t, []string{"left"}, orphans(), "late results of the previous rollout are dropped")
	require.NoError(t, l.Flush(t.Context(), newPlan, newExecutor))
	assert.Equal(t, 1, store.saves)
	var names []string
	for id := range maps.Keys(store.Records) {
		names = append(names, id.Name)
	}
	slices.Sort(names)
	assert.Equal(t, []string{"kept", "left", "made"}, names)
}

// TestFinishSavesWhatTheStoreLacks ends a process before the first save of its rollout.
func TestFinishSavesWhatTheStoreLacks(t *testing.T) {
	store := &savedInventory{}
	l := ledger.New(clock.RealClock{}, store)
	l.Finish(t.Context(), logr.Discard())
	_, err := l.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	l.Finish(t.Context(), logr.Discard())
	assert.Zero(t, store.saves, "there is no rollout")

	rolledOut(t, l, "1.0.0", "a", "b")
	l.Finish(t.Context(), logr.Discard())
	assert.Equal(t, 1, store.saves)
	assert.Len(t, store.Records, 2)
	l.Finish(t.Context(), logr.Discard())
	assert.Equal(t, 1, store.saves, "everything is saved")

	rolledOut(t, l, "1.1.0", "c")
	l.Close()
	l.Finish(t.Context(), logr.Discard())
	assert.Equal(t, 1, store.saves, "the inventory may belong to another ClusterVersion now")
}

// TestResultOfAVisitIsSavedAfterIt saves the inventory after the apply of a Deployment and before the end of the visit.
func TestResultOfAVisitIsSavedAfterIt(t *testing.T) {
	store := &savedInventory{}
	l := ledger.New(clock.RealClock{}, store)
	_, err := l.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	list, err := manifest.Parse("0000_10_x_a.yaml", []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: default}"), manifest.Limits{})
	require.NoError(t, err)
	p := &payload.Payload{Release: release.Release{Version: "1.0.0"}, Manifests: list}
	plan, err := rollout.NewPlan(p.Release, p.Manifests, release.Updating)
	require.NoError(t, err)
	executor := &rollout.Executor{Clock: clock.RealClock{}, Applier: takesAll{}, Rand: rand.New(rand.NewPCG(1, 1))}
	save := func() { require.NoError(t, l.Flush(t.Context(), plan, executor)) }
	executor.Observer = callsBack{checked: save}
	_, ok := l.Begin(p, plan, executor)
	require.True(t, ok)
	_, _, err = executor.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	require.Equal(t, 1, store.saves)
	assert.Empty(t, store.Records)
	save()
	assert.Contains(t, store.Records, list[0].ID())
}

// TestNextRolloutSavesTheEndOfTheLast ends a rollout shortly after a save. The next rollout does not wait with its first save.
func TestNextRolloutSavesTheEndOfTheLast(t *testing.T) {
	store := &savedInventory{}
	l := ledger.New(clocktesting.NewFakePassiveClock(time.Now()), store)
	_, err := l.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	plan, executor := rolledOut(t, l, "1.0.0", "a")
	require.NoError(t, l.Flush(t.Context(), plan, executor))
	rolledOut(t, l, "1.0.0", "a", "b")
	next := &rollout.Executor{}
	p := &payload.Payload{Release: release.Release{Version: "1.0.0"}}
	plan, err = rollout.NewPlan(p.Release, nil, release.Reconciling)
	require.NoError(t, err)
	_, ok := l.Begin(p, plan, next)
	require.True(t, ok)
	l.Step(logr.Discard(), plan, next)(t.Context())
	assert.Len(t, store.Records, 2)
}

// TestObjectsOfSkippedFilesAreNoOrphans begins a release with a file that the operator cannot read.
//
//threat:template-skipped
func TestObjectsOfSkippedFilesAreNoOrphans(t *testing.T) {
	l := ledger.New(clock.RealClock{}, &savedInventory{})
	_, err := l.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	rolledOut(t, l, "1.0.0", "skipped", "dropped")
	p := &payload.Payload{Release: release.Release{Version: "1.1.0"}, Skipped: []payload.Skip{{File: "0000_10_x_skipped.yaml"}}}
	plan, err := rollout.NewPlan(p.Release, nil, release.Updating)
	require.NoError(t, err)
	l.Begin(p, plan, &rollout.Executor{})
	require.Len(t, l.Orphans(), 1)
	assert.Equal(t, "dropped", l.Orphans()[0].ID.Name)
}

// TestClosedLedgerReadsAgain reads a closed inventory from the store again. A rollout that is still ending saves nothing.
func TestClosedLedgerReadsAgain(t *testing.T) {
	store := &savedInventory{}
	l := ledger.New(clock.RealClock{}, store)
	open := func() *inventory.Inventory {
		inv, err := l.Open(t.Context(), logr.Discard())
		require.NoError(t, err)
		return inv
	}
	require.NotNil(t, open())
	plan, executor := rolledOut(t, l, "1.0.0", "a")
	require.Nil(t, open())
	l.Close()
	require.NoError(t, l.Flush(t.Context(), plan, executor))
	assert.Zero(t, store.saves)
	assert.NotNil(t, open())
}

// TestRolloutThatBeginsAfterCloseSavesNothing has a ClusterVersion that is deleted while its rollout begins.
func TestRolloutThatBeginsAfterCloseSavesNothing(t *testing.T) {
	store := &savedInventory{}
	l := ledger.New(clock.RealClock{}, store)
	_, err := l.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	plan, executor := rolledOut(t, l, "1.0.0", "a")
	require.NoError(t, l.Flush(t.Context(), plan, executor))
	require.Len(t, store.Records, 1)
	l.Close()
	next := &rollout.Executor{}
	_, ok := l.Begin(&payload.Payload{}, plan, next)
	assert.False(t, ok)
	require.NoError(t, l.Flush(t.Context(), plan, next))
	assert.Len(t, store.Records, 1)
}

// TestNoOrphansCostNothing checks the search of a reconcile of a complete release.
func TestNoOrphansCostNothing(t *testing.T) {
	l := ledger.New(clock.RealClock{}, &savedInventory{})
	_, err := l.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	rolledOut(t, l, "1.0.0", "a", "b")
	assert.Zero(t, testing.AllocsPerRun(10, func() { l.Orphans() }))
}

// TestOrphansReflectUnsavedResults applies an object of the earlier release under another identity, as if its kind had moved to another API
// group.
func TestOrphansReflectUnsavedResults(t *testing.T) {
	l := ledger.New(clock.RealClock{}, &savedInventory{})
	_, err := l.Open(t.Context(), logr.Discard())
	require.NoError(t, err)
	rolledOut(t, l, "1.0.0", "kept", "left", "moved")
	rolledOut(t, l, "1.1.0", "kept", "moved-elsewhere")
	require.Len(t, l.Orphans(), 1)
	assert.Equal(t, "left", l.Orphans()[0].ID.Name)
}
