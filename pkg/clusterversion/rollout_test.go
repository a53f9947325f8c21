package clusterversion

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// halted applies every object except the one with the given name. There it blocks until it is canceled.
type halted struct {
	at      string
	reached func()
}

func (h halted) Apply(ctx context.Context, m *manifest.Manifest, _ release.Mode, _ apply.Options) (apply.Change, error) {
	if h.reached != nil && m.Object.GetName() == h.at {
		h.reached()
		<-ctx.Done()
		return apply.Change{}, ctx.Err()
	}
	return apply.Change{Action: apply.Created, UID: "u", ResourceVersion: "1"}, nil
}

func (halted) Precreate(context.Context, *manifest.Manifest) (apply.Change, error) {
	return apply.Change{}, nil
}

func (halted) Content(m *manifest.Manifest) ([sha256.Size]byte, error) {
	text, err := json.Marshal(m.Object.Object)
	return sha256.Sum256(text), err
}

func (halted) Live(context.Context, *manifest.Manifest) (*unstructured.Unstructured, error) {
	return nil, nil // no object exists
}

// unseen is an Observer whose watches have delivered nothing.
type unseen struct{}

func (unseen) Object(manifest.ID) gate.Object { return nil }

func (unseen) Look(context.Context, *manifest.Manifest, bool) observe.Look { return observe.Look{} }

// cutShort runs a pass over a release of two objects and cancels it after the first.
func cutShort(t *testing.T) (*rollout.Plan, *rollout.Executor, rollout.Settled) {
	t.Helper()
	p, err := payload.Load(files("1.1.0", "release-manifests/0000_20_b_01.yaml", `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: ns, name: b, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
`), imageOf("1.1.0"), payload.Options{})
	require.NoError(t, err)
	plan, err := rollout.NewPlan(p.Release, p.Manifests, release.Updating)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	executor := &rollout.Executor{Clock: clock.RealClock{}, Applier: halted{"b", cancel}, Observer: unseen{}}
	_, settled, err := executor.Run(ctx, plan, rollout.Settled{})
	require.ErrorIs(t, err, context.Canceled)
	return plan, executor, settled
}

// TestCanceledPassKeepsItsResults starts another rollout after a canceled pass. It knows the objects that the pass has applied.
func TestCanceledPassKeepsItsResults(t *testing.T) {
	plan, executor, canceled := cutShort(t)
	p := &payload.Payload{Release: plan.Release}
	// rolled returns the state after a rollout of an image with that executor, and then one of the image next.
	rolled := func(t *testing.T, next string) rollout.Settled {
		t.Helper()
		u := &underway{clock: clock.RealClock{}}
		u.plan("first", imageOf("1.1.0"), false)
		require.True(t, u.begin("first", beginning{plan: plan, executor: executor, payload: p}))
		u.plan("second", next, false)
		u.settle(executor, canceled)
		require.True(t, u.begin("second", beginning{plan: plan, executor: &rollout.Executor{}, payload: p}))
		settled := u.snapshot().settled
		u.plan("third", next, false)
		require.True(t, u.begin("third", beginning{plan: plan, executor: &rollout.Executor{}, payload: p}))
		assert.Equal(t, settled.Progress(plan).Done, u.snapshot().settled.Progress(plan).Done, "a rollout without a pass changes nothing")
		return settled
	}
	t.Run("continues where the same release stopped", func(t *testing.T) {
		assert.Equal(t, 1, rolled(t, imageOf("1.1.0")).Progress(plan).Done, "progress does not decrease when the selection of manifests changes")
	})
	t.Run("knows after a rollback which objects the other release has applied", func(t *testing.T) {
		settled := rolled(t, imageOf("1.0.0"))
		assert.Zero(t, settled.Progress(plan).Done)
		require.Len(t, settled.Records(plan), 1)
		assert.Equal(t, "a", settled.Records(plan)[0].ID.Name)
	})
}

// blank is an empty inventory.
type blank struct{}

func (blank) Load(context.Context) (inventory.Inventory, error) { return inventory.Inventory{}, nil }

func (blank) Save(context.Context, inventory.Inventory) error { return nil }

// counted counts the applied objects and the reads of the inventory.
type counted struct {
	halted
	savedInventory

	applied, loads int
}

func (c *counted) Apply(ctx context.Context, m *manifest.Manifest, mode release.Mode, options apply.Options) (apply.Change, error) {
	c.applied++
	return c.halted.Apply(ctx, m, mode, options)
}

func (c *counted) Load(ctx context.Context) (inventory.Inventory, error) {
	c.loads++
	return c.savedInventory.Load(ctx)
}

// rollingOut returns a reconciler that has accepted the first release. The test runs the steps in the slots.
func rollingOut(t *testing.T) (*scribe, slots, *counted) {
	t.Helper()
	registry, work, cluster := newShelf("1.0.0"), slots{}, &counted{}
	engine := func(*configv1.ClusterVersion, *payload.Payload) Engine {
		return Engine{
			Executor:  &rollout.Executor{Clock: clock.RealClock{}, Applier: cluster, Observer: unseen{}, Rand: rand.New(rand.NewPCG(1, 1))},
			Prepare:   func(context.Context) error { return nil },
			Completed: func(context.Context) {},
		}
	}
	s := newScribe(t, func(p *parts) { p.stages, p.runner, p.store, p.engine = registry.stages(), work, cluster, engine })
	s.reconcile(t)
	work[background.SlotAccept].step(t.Context())
	s.at(time.Minute)
	s.reconcile(t)
	require.Contains(t, work, background.SlotRollout)
	return s, work, cluster
}

// overrides replaces the overrides, which makes another rollout the wanted one.
func (s *scribe) overrides(t *testing.T, after time.Duration, list ...configv1.ComponentOverride) {
	t.Helper()
	s.edit(t, func(cv *configv1.ClusterVersion) { cv.Spec.Overrides = list })
	s.at(after)
	s.reconcile(t)
}

// TestSupersededRolloutIsDiscarded supersedes a rollout before it has started.
func TestSupersededRolloutIsDiscarded(t *testing.T) {
	s, work, cluster := rollingOut(t)
	superseded := work[background.SlotRollout].step
	s.overrides(t, 2*time.Minute, configv1.ComponentOverride{Kind: "ConfigMap", Namespace: "ns", Name: "other", Unmanaged: true})
	next := superseded(t.Context())
	assert.Positive(t, next.After)
	assert.Zero(t, cluster.applied)
	_, reported := s.Snapshot()
	assert.False(t, reported)

	work[background.SlotRollout].step(t.Context())
	assert.Positive(t, cluster.applied)
	assert.Equal(t, 1, cluster.loads, "the inventory is read once and kept for the rollout that begins")
	_, reported = s.Snapshot()
	assert.True(t, reported)
}

// TestRolloutSupersededWhileItBeginsIsDiscarded plans another rollout for the control only, as between the two beginnings of a rollout.
func TestRolloutSupersededWhileItBeginsIsDiscarded(t *testing.T) {
	s, work, cluster := rollingOut(t)
	s.control.Plan("another", imageOf("1.0.0"), false)
	assert.Positive(t, work[background.SlotRollout].step(t.Context()).After)
	assert.Zero(t, cluster.applied, "a rollout that control cannot pause applies nothing")

	s.overrides(t, 2*time.Minute, configv1.ComponentOverride{Kind: "ConfigMap", Namespace: "ns", Name: "other", Unmanaged: true})
	work[background.SlotRollout].step(t.Context())
	assert.Positive(t, cluster.applied)
	assert.Equal(t, 1, cluster.loads, "the inventory is read once and kept for the rollout that begins")
}

// TestRestartedRolloutIsRecorded reverts an edit before its rollout begins, so the earlier rollout restarts under the same key.
func TestRestartedRolloutIsRecorded(t *testing.T) {
	s, work, cluster := rollingOut(t)
	first := work[background.SlotRollout].key
	work[background.SlotRollout].step(t.Context())
	s.overrides(t, 2*time.Minute, configv1.ComponentOverride{Kind: "ConfigMap", Namespace: "ns", Name: "other", Unmanaged: true})
	require.NotEqual(t, first, work[background.SlotRollout].key)
	s.overrides(t, 3*time.Minute)
	require.Equal(t, first, work[background.SlotRollout].key)
	work[background.SlotRollout].step(t.Context())
	work[background.SlotInventory].step(t.Context())
	assert.Equal(t, 1, cluster.saves, "the inventory of the current rollout is saved")
}

func TestOnlyRecordsOfTheSameReleaseAreTrusted(t *testing.T) {
	id := manifest.ID{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	kept := func(version string) inventory.Inventory {
		return inventory.Inventory{Digest: string(digestOf(version)), Records: map[manifest.ID]inventory.Record{
			id: {ID: id, Content: inventory.Content{1}},
		}}
	}
	next := release.Release{Version: "1.0.0", Image: imageOf("1.0.0")}
	assert.Equal(t, inventory.Content{1}, reliable(kept("1.0.0"), next).Records[id].Content)
	other := kept("1.1.0")
	assert.Zero(t, reliable(other, next).Records[id].Content, "the object may have values of the other release")
	assert.Equal(t, inventory.Content{1}, other.Records[id].Content, "the inventory itself is unchanged")
	other.Records[id] = inventory.Record{ID: id, Content: inventory.Content{1}, Finished: true}
	assert.Equal(t, inventory.Content{1}, reliable(other, next).Records[id].Content, "a finished Job does not run again")
	next.Image = "example.com/r:tag"
	assert.Equal(t, inventory.Content{1}, reliable(kept("1.1.0"), next).Records[id].Content, "for a tag, the release may be the same")
}

// unreadableStore is an inventory that the operator may not read.
type unreadableStore struct{ blank }

func (unreadableStore) Load(context.Context) (inventory.Inventory, error) {
	return inventory.Inventory{}, errors.New("configmaps is forbidden")
}

// TestRolloutThatCannotBeginIsReported has a cluster in which no pass is possible, so no manifest is in trouble.
func TestRolloutThatCannotBeginIsReported(t *testing.T) {
	failure := errors.New("proxies is forbidden")
	for name, tt := range map[string]struct {
		with func(*parts)
		want string
	}{
		"inventory": {func(p *parts) { p.store = unreadableStore{} }, "configmaps is forbidden"},
		"configuration": {func(p *parts) {
			p.engine = func(*configv1.ClusterVersion, *payload.Payload) Engine {
				return Engine{
					Executor: &rollout.Executor{Clock: clock.RealClock{}, Applier: halted{}, Observer: unseen{}},
					Prepare:  func(context.Context) error { return failure },
				}
			}
		}, "proxies is forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			registry, work, news := newShelf("1.0.0", "1.1.0"), slots{}, 0
			s := newScribe(t, func(p *parts) { p.stages, p.runner = registry.stages(), work }, tt.with)
			s.changed = func() { news++ }
			cv := s.get(t)
			cv.Status = clusterAt(completed("1.0.0")).Status
			require.NoError(t, s.client.Status().Update(t.Context(), cv))
			s.edit(t, func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Image: imageOf("1.1.0")}) })
			s.reconcile(t)
			work[background.SlotAccept].step(t.Context())
			s.at(time.Minute)
			s.reconcile(t)
			news = 0
			require.Contains(t, work, background.SlotRollout)
			for range 3 {
				require.False(t, work[background.SlotRollout].step(t.Context()).Done)
			}
			assert.Equal(t, 1, news, "the status is written once")
			s.at(2 * time.Minute)
			s.reconcile(t)
			failing := api.FindCondition(s.get(t).Status.Conditions, api.Failing)
			assert.Equal(t, configv1.ConditionTrue, failing.Status)
			assert.Equal(t, "The operator applies and repairs nothing, because it cannot prepare the rollout, and retries: "+tt.want, failing.Message)
			progressing := api.FindCondition(s.get(t).Status.Conditions, configv1.OperatorProgressing)
			assert.Contains(t, progressing.Message, "Unable to apply 1.1.0: ")
		})
	}
}

func TestObstacleEndsWithTheFirstPass(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	u := &underway{clock: clk}
	u.plan("k", "image", false)
	first := clk.Now()
	assert.False(t, u.obstruct("superseded", errors.New("a")))
	assert.True(t, u.obstruct("k", errors.New("a")))
	assert.False(t, u.obstruct("k", errors.New("a")))
	clk.SetTime(first.Add(time.Minute))
	assert.True(t, u.obstruct("k", errors.New("b")))
	assert.Equal(t, first, u.report("k", configv1.ClusterVersionStatus{}).obstacle.Since, "another cause does not end the wait for a pass")
	assert.True(t, u.obstruct("k", nil))
	assert.Nil(t, u.report("k", configv1.ClusterVersionStatus{}).obstacle)
	assert.False(t, u.obstruct("k", nil))

	assert.True(t, u.obstruct("k", errors.New("a")))
	u.plan("next", "image", false)
	assert.Nil(t, u.report("next", configv1.ClusterVersionStatus{}).obstacle)
}
