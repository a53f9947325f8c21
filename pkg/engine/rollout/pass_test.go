package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/engine/drift"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestRunAppliesInOrder(t *testing.T) {
	c := newCluster()
	c.report("a", "True", "False", "1.0.0")
	plan := newPlan(t, release.Updating,
		configMap(t, "10_a_01", "a1"), configMap(t, "10_a_02", "a2"), clusterOperator(t, "10_a_03", "a", "1.1.0"),
		configMap(t, "10_b_01", "b1"), configMap(t, "10_b_02", "b2"),
		configMap(t, "20_c_01", "c1"))

	progress, settled := c.roll(t, plan, rollout.Settled{})
	log := c.takeLog()
	assert.ElementsMatch(t, []string{"apply a1", "apply a2", "apply a", "apply b1", "apply b2"}, log)
	assert.Less(t, position(log, "apply a1"), position(log, "apply a2"))
	assert.Less(t, position(log, "apply a2"), position(log, "apply a"))
	assert.Less(t, position(log, "apply b1"), position(log, "apply b2"))
	assert.Equal(t, "a=ClusterOperatorUpdating", waitsFor(progress))
	assert.Equal(t, []int{4, 6}, []int{progress.Done, progress.Total})
	assert.False(t, progress.Complete)
	assert.Zero(t, progress.RetryAt, "the pass waits for an event")

	c.report("a", "True", "False", "1.1.0")
	progress, _ = c.roll(t, plan, settled)
	assert.Equal(t, []string{"apply c1"}, c.takeLog(), "settled objects are not applied again")
	assert.True(t, progress.Complete)
	assert.Equal(t, 6, progress.Done)
	assert.Empty(t, progress.Problems)
}

func TestRunAppliesChangedContent(t *testing.T) {
	c := newCluster()
	_, settled := c.roll(t, newPlan(t, release.Reconciling, configMap(t, "10_a_01", "same"), configMap(t, "10_a_02", "changes")), rollout.Settled{})
	c.takeLog()
	changed := parse(t, "10_a_02", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: changes}, data: {k: v}}")
	_, settled = c.roll(t, newPlan(t, release.Reconciling, configMap(t, "10_a_01", "same"), changed), settled.Restart(true))
	assert.Equal(t, []string{"apply changes"}, c.takeLog())

	_, settled = c.roll(t, newPlan(t, release.Reconciling, changed), settled)
	assert.Empty(t, c.takeLog())
	_, _ = c.roll(t, newPlan(t, release.Reconciling, configMap(t, "10_a_01", "same"), changed), settled)
	assert.Equal(t, []string{"apply same"}, c.takeLog(), "objects without a manifest are dropped")
}

func TestRunBacksOffAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		broken := true
		cause := &failure.Error{Manifest: configMap(t, "10_a_01", "a"), Reason: api.ReasonResourceForbidden, Err: errors.New("no")}
		c.onApply = func(context.Context, string) error {
			if broken {
				return cause
			}
			return nil
		}
		plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "a"))
		var settled rollout.Settled
		var progress report.Progress
		start := time.Now()
		for attempt := range 12 {
			progress, settled = c.roll(t, plan, settled)
			assert.Equal(t, []string{"fail a"}, c.takeLog())
			assert.Equal(t, "a="+api.ReasonResourceForbidden, waitsFor(progress))
			require.ErrorIs(t, progress.Problems[0].Err, cause)
			assert.Equal(t, start, progress.Problems[0].Since, "the time of the first attempt")
			wait := time.Until(progress.RetryAt)
			want := min(200*time.Millisecond<<attempt, 25*time.Second)
			assert.InDelta(t, want, wait, 0.2*float64(want), "attempt %d", attempt)

			time.Sleep(wait - 1)
			progress, settled = c.roll(t, plan, settled)
			assert.Empty(t, c.takeLog(), "an event does not shorten the wait")
			assert.Equal(t, "a="+api.ReasonResourceForbidden, waitsFor(progress), "the failure is still reported")
			time.Sleep(time.Nanosecond)
		}
		broken = false
		progress, _ = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.takeLog())
		assert.True(t, progress.Complete)
		assert.Zero(t, progress.RetryAt)
	})
}

// TestRunRetriesSoonWhileAWebhookIsAway checks the longest wait while a webhook does not respond.
func TestRunRetriesSoonWhileAWebhookIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(), configMap(t, "10_a_01", "a")
		c.onApply = func(context.Context, string) error {
			return &failure.Error{Manifest: m, Err: errors.New(`failed calling webhook "guardian.example.com": connection refused`)}
		}
		plan := newPlan(t, release.Updating, m)
		var settled rollout.Settled
		for attempt := range 10 {
			var progress report.Progress
			progress, settled = c.roll(t, plan, settled)
			want := min(200*time.Millisecond<<attempt, 5*time.Second)
			assert.InDelta(t, want, time.Until(progress.RetryAt), 0.2*float64(want), "attempt %d", attempt)
			time.Sleep(time.Until(progress.RetryAt))
		}
	})
}

func TestRunResetsTheBackOffAfterSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		broken := true
		c.onApply = func(context.Context, string) error {
			if broken {
				return errors.New("no")
			}
			return nil
		}
		c.report("a", "True", "False", "1.1.0")
		plan := newPlan(t, release.Reconciling, clusterOperator(t, "10_a_01", "a", "1.1.0"))
		var settled rollout.Settled
		for range 5 {
			var progress report.Progress
			progress, settled = c.roll(t, plan, settled)
			time.Sleep(time.Until(progress.RetryAt))
		}
		broken = false
		_, settled = c.roll(t, plan, settled)
		broken = true
		c.vanish("a")
		progress, _ := c.roll(t, plan, settled)
		assert.InDelta(t, 200*time.Millisecond, time.Until(progress.RetryAt), float64(40*time.Millisecond))
	})
}

func TestRunRetriesChangedContentImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.onApply = func(context.Context, string) error { return errors.New("no") }
		var settled rollout.Settled
		plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "a"))
		for range 5 {
			var progress report.Progress
			progress, settled = c.roll(t, plan, settled)
			time.Sleep(time.Until(progress.RetryAt))
		}
		c.takeLog()
		fixed := parse(t, "10_a_01", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}, data: {k: v}}")
		progress, _ := c.roll(t, newPlan(t, release.Updating, fixed), settled)
		assert.Equal(t, []string{"fail a"}, c.takeLog())
		assert.Less(t, time.Until(progress.RetryAt), 250*time.Millisecond)
	})
}

func TestRunContinuesDespiteFailures(t *testing.T) {
	c := newCluster()
	c.onApply = func(_ context.Context, name string) error {
		if name == "a1" {
			return errors.New("boom")
		}
		return nil
	}
	progress, _ := c.roll(t, newPlan(t, release.Updating,
		configMap(t, "10_a_01", "a1"), configMap(t, "10_a_02", "a2"),
		configMap(t, "10_b_01", "b1"), configMap(t, "10_b_02", "b2"),
		configMap(t, "20_c_01", "c1")), rollout.Settled{})
	assert.ElementsMatch(t, []string{"fail a1", "apply b1", "apply b2"}, c.takeLog())
	assert.Equal(t, "a1="+api.ReasonPayloadFailed, waitsFor(progress))
	assert.Equal(t, gate.Failed, progress.Problems[0].State)
	assert.Equal(t, "boom", progress.Problems[0].Message)
}

func TestRunDelaysOnlyNodesThatHaveNotStarted(t *testing.T) {
	c := newCluster()
	c.report("a", "True", "False", "1.1.0")
	c.report("b", "True", "False", "1.0.0")
	plan := newPlan(t, release.Updating,
		clusterOperator(t, "10_a_01", "a", "1.1.0"),
		clusterOperator(t, "20_b_01", "b", "1.1.0"),
		configMap(t, "30_c_01", "c1"))
	before, settled := c.roll(t, plan, rollout.Settled{})
	assert.Equal(t, "b=ClusterOperatorUpdating", waitsFor(before))
	c.takeLog()

	c.report("a", "False", "False", "1.1.0")
	c.report("b", "True", "False", "1.1.0")
	progress, settled := c.roll(t, plan, settled)
	assert.Empty(t, c.takeLog(), "c1 has not started, so it waits for a")
	assert.Equal(t, "a=ClusterOperatorNotAvailable", waitsFor(progress))
	assert.Equal(t, before.Done, progress.Done, "the count does not decrease")
	assert.False(t, progress.Complete)

	c.report("a", "True", "False", "1.1.0")
	progress, _ = c.roll(t, plan, settled)
	assert.Equal(t, []string{"apply c1"}, c.takeLog())
	assert.True(t, progress.Complete)
	assert.Equal(t, 3, progress.Done)
}

func TestRunPrecreatesClusterOperators(t *testing.T) {
	manifests := []*manifest.Manifest{
		configMap(t, "10_a_01", "a1"), clusterOperator(t, "10_a_09", "a", "1.1.0"),
		configMap(t, "20_b_01", "b1"), configMap(t, "20_b_02", "b2"), clusterOperator(t, "20_b_09", "b", "1.1.0"),
		clusterOperator(t, "20_c_09", "c", "1.1.0"),
		parse(t, "20_d_01", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: d1}}"),
		parse(t, "20_d_02", `{apiVersion: config.openshift.io/v1, kind: ClusterOperator, metadata: {name: d, annotations: {release.openshift.io/delete: "true"}}, status: {versions: [{name: operator, version: "1"}]}}`),
	}
	c := newCluster()
	plan := newPlan(t, release.Updating, manifests...)
	_, settled := c.roll(t, plan, rollout.Settled{})
	assert.Equal(t, []string{"precreate a", "apply a1", "apply a"}, c.takeLog(), "b starts later")

	c.report("a", "True", "False", "1.1.0")
	_, settled = c.roll(t, plan, settled)
	log := c.takeLog()
	assert.ElementsMatch(t, []string{"precreate b", "apply b1", "apply b2", "apply b", "apply c", "apply d1"}, log,
		"c is the first of its component, and d's tombstone has no object")
	assert.Less(t, position(log, "precreate b"), position(log, "apply b1"))
	_, _ = c.roll(t, plan, settled)
	assert.Empty(t, c.takeLog())

	c = newCluster()
	c.report("a", "True", "False", "1.0.0")
	_, _ = c.roll(t, plan, rollout.Settled{})
	assert.Equal(t, []string{"apply a1", "apply a"}, c.takeLog(), "a exists")

	c = newCluster()
	_, _ = c.roll(t, newPlan(t, release.Initializing, manifests...), rollout.Settled{})
	for _, what := range c.takeLog() {
		assert.NotContains(t, what, "precreate", "an install needs no early creation")
	}
}

func TestCanceledRunReportsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		ctx, cancel := context.WithCancel(t.Context())
		c.onApply = func(ctx context.Context, _ string) error {
			cancel()
			return ctx.Err()
		}
		plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
		progress, settled, err := c.executor().Run(ctx, plan, rollout.Settled{})
		require.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, progress.Problems)
		assert.Zero(t, progress.RetryAt)
		assert.False(t, progress.Complete)
		assert.Equal(t, []string{"fail a"}, c.takeLog())

		c.onApply = nil
		progress, settled, err = c.executor().Run(t.Context(), plan, settled)
		require.NoError(t, err)
		assert.Equal(t, []string{"apply a", "apply b"}, c.takeLog(), "immediately, without a back-off")
		assert.True(t, progress.Complete)

		// A canceled write may still have arrived.
		ctx, cancel = context.WithCancel(t.Context())
		c.onApply = func(ctx context.Context, _ string) error { cancel(); return ctx.Err() }
		changed := parse(t, "10_a_01", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}, data: {k: v}}")
		_, settled, err = c.executor().Run(ctx, newPlan(t, release.Updating, changed, configMap(t, "10_a_02", "b")), settled)
		require.ErrorIs(t, err, context.Canceled)
		c.onApply, c.log = nil, nil
		_, _ = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.takeLog(), "the earlier content is applied again")
	})
}

func TestRunHandsOverToTheNodeStage(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Updating,
		clusterOperator(t, "80_machine-config_09", "machine-config", "1.1.0"), clusterOperator(t, "90_x_09", "x", "1.1.0"))
	c.report("machine-config", "True", "False", "1.0.0")
	progress, settled := c.roll(t, plan, rollout.Settled{})
	assert.False(t, progress.HandedOver)
	c.report("machine-config", "True", "False", "1.1.0")
	progress, settled = c.roll(t, plan, settled)
	assert.True(t, progress.HandedOver)
	assert.False(t, progress.Complete)
	c.report("machine-config", "False", "False", "1.1.0")
	progress, _ = c.roll(t, plan, settled)
	assert.True(t, progress.HandedOver, "the handover to the nodes is permanent")
}

func TestInstallDoesNotWaitForDegradedOperators(t *testing.T) {
	c := newCluster()
	c.report("a", "True", "True", "")
	plan := newPlan(t, release.Initializing, clusterOperator(t, "10_a_09", "a", "1.1.0"), configMap(t, "20_b_01", "b"))
	progress, _ := c.roll(t, plan, rollout.Settled{})
	assert.ElementsMatch(t, []string{"apply a", "apply b"}, c.takeLog())
	assert.True(t, progress.Complete, "a degraded operator is only reported")
	assert.Equal(t, "a=ClusterOperatorDegraded", waitsFor(progress))
	assert.Equal(t, gate.Report, progress.Problems[0].Patience)
}

func TestProblemKeepsItsStartTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := newPlan(t, release.Updating, clusterOperator(t, "10_a_09", "a", "1.1.0"))
		degraded := func(c *cluster, since time.Time) {
			c.report("a", "True", "True", "1.0.0")
			co, ok := c.objects["a"].(*configv1.ClusterOperator)
			require.True(t, ok)
			co.Status.Conditions[1].LastTransitionTime = metav1.NewTime(since)
		}
		start := time.Now()
		c := newCluster()
		degraded(c, start.Add(-72*time.Hour))
		progress, settled := c.roll(t, plan, rollout.Settled{})
		assert.Equal(t, start, progress.Problems[0].Since, "the update has only just reached the operator")

		time.Sleep(time.Minute)
		progress, settled = c.roll(t, plan, settled)
		assert.Equal(t, start, progress.Problems[0].Since)
		degraded(c, time.Now())
		progress, settled = c.roll(t, plan, settled)
		assert.Equal(t, time.Now(), progress.Problems[0].Since, "this problem is new")

		c.report("a", "True", "False", "1.1.0")
		_, settled = c.roll(t, plan, settled)
		time.Sleep(time.Minute)
		c.report("a", "False", "False", "1.1.0")
		progress, _ = c.roll(t, plan, settled)
		assert.Equal(t, time.Now(), progress.Problems[0].Since, "the operator was healthy in between")
	})
}

func TestProgressCountsSettledManifests(t *testing.T) {
	c := newCluster()
	for name := range map[string]bool{"a": true, "b": true} {
		c.report(name, "True", "False", "1.0.0")
	}
	// An install does not sort runlevels, so the graph has another order.
	for _, mode := range release.Modes() {
		plan := newPlan(t, mode,
			configMap(t, "90_z_01", "z"), clusterOperator(t, "50_b_09", "b", "1.1.0"), configMap(t, "50_b_01", "b1"),
			configMap(t, "50_a_01", "a1"), configMap(t, "05_q_01", "q"), configMap(t, "10_q_01", "q2"))
		progress, _ := c.roll(t, plan, rollout.Settled{})
		var levels []string
		total := 0
		for _, level := range progress.Runlevels {
			text := fmt.Sprintf("%d:", level.Runlevel)
			sum := 0
			for _, component := range level.Components {
				text += fmt.Sprintf(" %s/%d", component.Name, component.Total)
				sum += component.Total
			}
			assert.Equal(t, level.Total, sum)
			levels = append(levels, text)
			total += sum
		}
		assert.Equal(t, []string{"5: q/1", "10: q/1", "50: a/1 b/2", "90: z/1"}, levels, mode)
		assert.Equal(t, progress.Total, total)
	}
}

func TestDoneNeverDecreases(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Updating,
		clusterOperator(t, "10_a_09", "a", "1.1.0"), clusterOperator(t, "10_b_09", "b", "1.1.0"), clusterOperator(t, "20_c_09", "c", "1.1.0"))
	var settled rollout.Settled
	last := 0
	for i := range 64 { // every combination of three healthy operators, four times
		for bit, name := range []string{"a", "b", "c"} {
			c.report(name, map[bool]string{true: "True", false: "False"}[i*7>>bit&1 == 1], "False", "1.1.0")
		}
		var progress report.Progress
		progress, settled = c.roll(t, plan, settled)
		assert.GreaterOrEqual(t, progress.Done, last)
		last = progress.Done
	}
	assert.Equal(t, 3, last)
	progress, _ := c.roll(t, plan, settled.Restart(true))
	assert.LessOrEqual(t, progress.Done, 3, "another rollout starts at zero")
}

func TestReportIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.onApply = func(context.Context, string) error { time.Sleep(100 * time.Millisecond); return nil }
		var list []*manifest.Manifest
		for i := range 21 {
			list = append(list, configMap(t, "10_a_01", fmt.Sprint("m", i)))
		}
		executor := c.executor()
		var done []int
		executor.Report = func(p report.Progress) { done = append(done, p.Done) }
		_, settled, err := executor.Run(t.Context(), newPlan(t, release.Updating, list...), rollout.Settled{})
		require.NoError(t, err)
		assert.Equal(t, []int{5, 10, 15, 20}, done, "one report per 500 ms")
		done = nil
		_, _, err = executor.Run(t.Context(), newPlan(t, release.Updating, list...), settled)
		require.NoError(t, err)
		assert.Empty(t, done, "a short pass reports nothing while it runs")
	})
}

// TestReportsKeepTheirOrder checks the order if a report takes so long that the next one is due before it is received.
func TestReportsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.onApply = func(_ context.Context, name string) error {
			time.Sleep(map[string]time.Duration{"a": 1, "b": 2, "c": 5}[name] * time.Second)
			return nil
		}
		executor := c.executor()
		var mu sync.Mutex
		var done []int
		executor.Report = func(p report.Progress) {
			if p.Done == 1 {
				time.Sleep(2 * time.Second)
			}
			mu.Lock()
			defer mu.Unlock()
			done = append(done, p.Done)
		}
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"), configMap(t, "10_a_03", "c"))
		_, _, err := executor.Run(t.Context(), plan, rollout.Settled{})
		require.NoError(t, err)
		assert.Equal(t, []int{1, 3}, done)
	})
}

func TestDroppedFieldsAreReported(t *testing.T) {
	c := newCluster()
	c.dropped["a"] = []string{".userNames"}
	plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
	progress, settled := c.roll(t, plan, rollout.Settled{})
	want := []report.Dropped{{ID: manifest.ID{Kind: "ConfigMap", Namespace: "ns", Name: "a"}, File: "0000_10_a_01.yaml", Fields: []string{".userNames"}}}
	assert.Equal(t, want, progress.Dropped)
	progress, _ = c.roll(t, plan, settled)
	assert.Equal(t, want, progress.Dropped, "a later pass still reports the fields")
	c.takeLog()
	for _, next := range []rollout.Settled{
		settled.Restart(true), rollout.Restore(inventory.Inventory{}.With(settled.Records(plan)...), "1.1.0"),
	} {
		c.roll(t, plan, next)
		assert.Equal(t, []string{"apply a"}, c.takeLog(), "the server may know the fields now")
	}
}

// TestFieldsOfChangedDefinitions applies a custom resource after its definition, as an update does. The server does not know a field of it.
func TestFieldsOfChangedDefinitions(t *testing.T) {
	const kind = "group: example.com, names: {kind: Network, plural: networks}, scope: Cluster, versions: [{name: v1, served: true, storage: true}]"
	definition := func(t *testing.T) *manifest.Manifest {
		t.Helper()
		return parse(t, "10_a_01", "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: networks.example.com}, spec: {"+kind+"}}")
	}
	resource := func(t *testing.T) *manifest.Manifest {
		t.Helper()
		return parse(t, "10_a_02", "{apiVersion: example.com/v1, kind: Network, metadata: {name: a}, spec: {mtu: 1400}}")
	}
	// roll makes passes until nothing is planned. It returns the attempts for the custom resource, and the time of the last one.
	roll := func(t *testing.T, c *cluster, plan *rollout.Plan) (attempts []string, took time.Duration, last report.Progress) {
		t.Helper()
		started := time.Now()
		progress, settled := c.roll(t, plan, rollout.Settled{})
		for {
			for _, line := range c.takeLog() {
				if strings.HasSuffix(line, " a") {
					attempts, took = append(attempts, line), time.Since(started)
				}
			}
			if progress.RetryAt.IsZero() {
				return attempts, took, progress
			}
			time.Sleep(time.Until(progress.RetryAt))
			progress, settled = c.roll(t, plan, settled)
		}
	}
	changed := apply.Change{Action: apply.Applied, UID: "d", ResourceVersion: "9", Generation: 2}
	established := &gate.CRD{}
	established.UID, established.ResourceVersion, established.Generation = changed.UID, changed.ResourceVersion, changed.Generation
	established.Status.Conditions = []metav1.Condition{{Type: "Established", Status: metav1.ConditionTrue}}
	serving := func(c *cluster) *cluster {
		c.objects["networks.example.com"], c.dropped["a"] = established, []string{".spec.mtu"}
		c.onApply = func(_ context.Context, name string) error {
			if name == "networks.example.com" { // the watch reports the change
				c.mu.Lock()
				defer c.mu.Unlock()
				c.states[name] = observe.State{UID: changed.UID, ResourceVersion: changed.ResourceVersion, Generation: changed.Generation}
			}
			return nil
		}
		return c
	}
	t.Run("wait until the server knows them", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := serving(newCluster())
			c.answers["networks.example.com"] = changed
			time.AfterFunc(300*time.Millisecond, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				clear(c.dropped)
			})
			attempts, took, progress := roll(t, c, newPlan(t, release.Updating, definition(t), resource(t)))
			assert.Equal(t, []string{"reject a", "reject a", "apply a"}, attempts)
			assert.Less(t, took, time.Second)
			assert.Empty(t, progress.Dropped)
		})
	})
	t.Run("get their new defaults a second later if the definition has several versions", func(t *testing.T) {
		for versions, want := range map[string]int{"": 1, ", {name: v2, served: true, storage: false}": 2} {
			synctest.Test(t, func(t *testing.T) {
				c := serving(newCluster())
				c.answers["networks.example.com"] = changed
				clear(c.dropped)
				several := strings.Replace(kind, "}]", "}"+versions+"]", 1)
				d := parse(t, "10_a_01", "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: networks.example.com}, spec: {"+several+"}}")
				attempts, took, _ := roll(t, c, newPlan(t, release.Updating, d, resource(t)))
				assert.Equal(t, slices.Repeat([]string{"apply a"}, want), attempts)
				assert.Equal(t, time.Duration(want-1)*time.Second, took)
			})
		}
	})
	t.Run("are omitted in the end, and applied again for a minute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := serving(newCluster())
			c.answers["networks.example.com"] = changed
			c.states["a"] = observe.State{UID: "uid", ResourceVersion: "1", Generation: 1, Time: 7}
			c.answers["a"] = apply.Change{Action: apply.Applied, UID: "uid", ResourceVersion: "1", Generation: 1, Time: 7, Dropped: []string{".spec.mtu"}}
			attempts, took, progress := roll(t, c, newPlan(t, release.Updating, definition(t), resource(t)))
			assert.Len(t, progress.Dropped, 1, "the field is still reported")
			assert.Equal(t, append(slices.Repeat([]string{"reject a"}, 3), slices.Repeat([]string{"apply a"}, 7)...), attempts)
			assert.Less(t, took, 2*time.Minute)
		})
	})
	t.Run("are omitted at once if the definition did not change", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := serving(newCluster())
			c.states["networks.example.com"] = observe.State{UID: "d", ResourceVersion: "9", Generation: 2}
			c.answers["networks.example.com"] = changed
			attempts, took, progress := roll(t, c, newPlan(t, release.Updating, definition(t), resource(t)))
			assert.Equal(t, []string{"apply a"}, attempts)
			assert.Zero(t, took)
			assert.Len(t, progress.Dropped, 1)
		})
	})
	t.Run("are omitted at once if the release does not contain the definition", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := serving(newCluster())
			attempts, took, progress := roll(t, c, newPlan(t, release.Updating, resource(t)))
			assert.Equal(t, []string{"apply a"}, attempts)
			assert.Zero(t, took)
			assert.Len(t, progress.Dropped, 1)
		})
	})
}

func TestProgressListsAwaitedOperators(t *testing.T) {
	c := newCluster()
	c.report("a", "True", "False", "1.0.0")
	c.report("b", "True", "True", "1.0.0")
	plan := newPlan(t, release.Updating, clusterOperator(t, "10_b_09", "b", "1.1.0"), clusterOperator(t, "10_a_09", "a", "1.1.0"))
	progress, settled := c.roll(t, plan, rollout.Settled{})
	patience := map[string]gate.Patience{}
	for _, problem := range progress.Problems {
		assert.True(t, problem.IsClusterOperator())
		patience[problem.ID.Name] = problem.Patience
	}
	assert.Equal(t, map[string]gate.Patience{"a": gate.UntilSlow, "b": gate.UntilFailed}, patience)
	again, _ := c.roll(t, plan, settled)
	assert.True(t, progress.Same(again))
	c.report("a", "True", "False", "1.1.0")
	again, _ = c.roll(t, plan, settled)
	assert.False(t, progress.Same(again))
}

func TestNewPlanRejectsAnUnknownMode(t *testing.T) {
	_, err := rollout.NewPlan(release.Release{Version: "1.1.0"}, nil, "sideways")
	require.ErrorContains(t, err, `ordering the manifests of release 1.1.0`)
}

// TestRunUsesManyWorkers makes a pass with many goroutines for the race detector.
func TestRunUsesManyWorkers(t *testing.T) {
	c := newCluster()
	var failing atomic.Bool
	failing.Store(true)
	c.onApply = func(_ context.Context, name string) error {
		if failing.Load() && len(name)%3 == 0 {
			return errors.New("not now")
		}
		return nil
	}
	var list []*manifest.Manifest
	for i := range 400 {
		list = append(list, configMap(t, fmt.Sprintf("%02d_c%d_01", i%7, i%31), fmt.Sprint("m", i)))
	}
	plan := newPlan(t, release.Reconciling, list...)
	executor := c.executor()
	executor.Width, executor.ReportInterval = 16, time.Nanosecond
	var reports atomic.Int32
	executor.Report = func(p report.Progress) {
		reports.Add(1)
		assert.LessOrEqual(t, p.Done, p.Total)
	}
	synctest.Test(t, func(t *testing.T) {
		progress, settled, err := executor.Run(t.Context(), plan, rollout.Settled{})
		require.NoError(t, err)
		assert.False(t, progress.Complete)
		failing.Store(false)
		time.Sleep(time.Second)
		progress, _, err = executor.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		assert.True(t, progress.Complete)
		assert.Equal(t, 400, progress.Done)
	})
}

// createOnlyCRD returns a create-only definition with name a.
func createOnlyCRD(t *testing.T) *manifest.Manifest {
	t.Helper()
	return parse(t, "10_a_01", `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a,
		annotations: {release.openshift.io/create-only: "true"}}}`)
}

// withCondition returns a definition of another client with one condition.
func withCondition(condition, status string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "a", "uid": "theirs"},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": condition, "status": status}}},
	}
}

// TestCreateOnlyCRDOfAnotherClientSettles checks a CRD that another client has installed. It lacks our label, so the gate's watch never
// delivers it. The gate reads it instead, once per event.
func TestCreateOnlyCRDOfAnotherClientSettles(t *testing.T) {
	for _, tt := range []struct {
		name   string
		action apply.Action
		live   map[string]any
		object gate.Object
		want   bool
		reads  int
	}{
		{"settles if it is established", apply.Kept, withCondition("Established", "True"), nil, true, 1},
		{"waits until it is established", apply.Kept, withCondition("Established", "False"), nil, false, 1},
		{"waits for its conditions if we have created it", apply.Created, nil, nil, false, 0},
		{"waits for its conditions if it has our label", apply.Kept, nil, &gate.CRD{}, false, 0},
	} {
		for _, mode := range []release.Mode{release.Initializing, release.Updating, release.Reconciling} {
			t.Run(fmt.Sprintf("it %s, %s", tt.name, mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, plan := foreignCRD(t, mode)
					c.answers["a"] = apply.Change{Action: tt.action}
					c.live["a"] = tt.live
					if tt.object != nil {
						c.objects["a"] = tt.object
					}
					progress, settled := c.roll(t, plan, rollout.Settled{})
					assert.Equal(t, tt.want, progress.Complete, waitsFor(progress))
					for range 3 {
						_, settled = c.roll(t, plan, settled)
					}
					time.Sleep(drift.WatchPatience)
					c.roll(t, plan, settled)
					assert.Equal(t, tt.reads, c.reads("a"))
				})
			})
		}
	}
}

// foreignCRD returns a cluster in which another client has installed CRD a, and a plan with that CRD.
func foreignCRD(t *testing.T, mode release.Mode) (*cluster, *rollout.Plan) {
	t.Helper()
	c := newCluster()
	c.answers["a"] = apply.Change{Action: apply.Kept}
	c.states["a"], c.version = observe.State{UID: "theirs", ResourceVersion: "1"}, 1
	return c, newPlan(t, mode, createOnlyCRD(t))
}

// TestEventOfCRDOfAnotherClientCausesARead has the by-name watch report changes, which include those of the status.
func TestEventOfCRDOfAnotherClientCausesARead(t *testing.T) {
	t.Run("it settles with the event", func(t *testing.T) {
		c, plan := foreignCRD(t, release.Updating)
		c.live["a"] = withCondition("Established", "False")
		progress, settled := c.roll(t, plan, rollout.Settled{})
		require.False(t, progress.Complete)
		c.live["a"] = withCondition("Established", "True")
		c.touch("a", func(*observe.State) {})
		progress, _ = c.roll(t, plan, settled)
		assert.True(t, progress.Complete, waitsFor(progress))
	})
	t.Run("it waits again after another client has recreated it", func(t *testing.T) {
		c, plan := foreignCRD(t, release.Updating)
		c.live["a"] = withCondition("Established", "True")
		progress, settled := c.roll(t, plan, rollout.Settled{})
		require.True(t, progress.Complete)
		c.live["a"] = withCondition("Established", "False")
		c.live["a"]["metadata"] = map[string]any{"name": "a", "uid": "another"}
		c.touch("a", func(s *observe.State) { s.UID = "another" })
		progress, settled = c.roll(t, plan, settled)
		assert.False(t, progress.Complete)
		assert.Equal(t, 1, progress.Done, "it never decreases")
		assert.Equal(t, 2, c.reads("a"))
		c.live["a"]["status"] = withCondition("Established", "True")["status"]
		c.touch("a", func(*observe.State) {})
		progress, settled = c.roll(t, plan, settled)
		assert.True(t, progress.Complete, waitsFor(progress))
		c.unsynced = true
		progress, _ = c.roll(t, plan, settled)
		assert.True(t, progress.Complete, "the last reading counts while the watch reports nothing")
	})
}

// TestCRDOfAnotherClientThatCannotBeReadIsReported covers an error of the server, and an object that no server returns.
func TestCRDOfAnotherClientThatCannotBeReadIsReported(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		live map[string]any
		want string
	}{
		{"it reports an error", errors.New("the server is busy"), nil, "the server is busy"},
		{"it reports an invalid object", nil, map[string]any{"status": "x"}, "conditions of CustomResourceDefinition.apiextensions.k8s.io a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, plan := foreignCRD(t, release.Updating)
				c.liveError, c.live["a"] = tt.err, tt.live
				progress, settled := c.roll(t, plan, rollout.Settled{})
				for range 3 {
					progress, settled = c.roll(t, plan, settled)
				}
				require.Len(t, progress.Problems, 1)
				assert.Contains(t, progress.Problems[0].Message, tt.want)
				assert.Equal(t, 1, c.reads("a"))
				c.liveError, c.live["a"] = nil, withCondition("Established", "True")
				time.Sleep(time.Until(progress.RetryAt))
				progress, _ = c.roll(t, plan, settled)
				assert.True(t, progress.Complete, waitsFor(progress))
			})
		})
	}
	t.Run("it is not read while the watch reports nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, plan := foreignCRD(t, release.Updating)
			c.liveError = errors.New("the server is busy")
			_, settled := c.roll(t, plan, rollout.Settled{})
			c.unsynced = true
			time.Sleep(time.Minute)
			progress, _ := c.roll(t, plan, settled)
			assert.False(t, progress.Complete)
			assert.Equal(t, 1, c.reads("a"))
			assert.False(t, !progress.RetryAt.IsZero() && progress.RetryAt.Before(time.Now()), "the next pass waits for the watch")
		})
	})
	t.Run("it reports nothing if the pass is canceled", func(t *testing.T) {
		c, plan := foreignCRD(t, release.Updating)
		c.liveError, c.live["a"] = context.Canceled, withCondition("Established", "True")
		ctx, cancel := context.WithCancel(t.Context())
		c.onRead = cancel
		progress, settled, err := c.executor().Run(ctx, plan, rollout.Settled{})
		require.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, progress.Problems)
		c.liveError = nil
		progress, _ = c.roll(t, plan, settled)
		assert.True(t, progress.Complete, waitsFor(progress))
	})
}

// TestDeletedCRDOfAnotherClientDoesNotSettle has another client delete its CRD, before or after the rollout has found it. The operator
// creates the CRD afterwards.
func TestDeletedCRDOfAnotherClientDoesNotSettle(t *testing.T) {
	for _, mode := range []release.Mode{release.Initializing, release.Updating, release.Reconciling} {
		for _, settles := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, settled before: %v", mode, settles), func(t *testing.T) {
				c, plan := foreignCRD(t, mode)
				c.states["a"] = observe.State{UID: "theirs", ResourceVersion: "1", Deleting: !settles}
				c.live["a"] = withCondition("Established", "True")
				if !settles {
					c.live["a"]["metadata"] = map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"}
				}
				progress, settled := c.roll(t, plan, rollout.Settled{})
				require.Equal(t, settles, progress.Complete)
				if settles {
					c.touch("a", func(s *observe.State) { s.Deleting = true })
				}
				c.takeLog()
				for range 2 {
					progress, settled = c.roll(t, plan, settled)
					assert.False(t, progress.Complete)
					assert.Equal(t, settles, progress.Done == 1, "the number never decreases")
					require.Len(t, progress.Problems, 1)
					assert.Contains(t, progress.Problems[0].Message, "it will be recreated once it is gone")
				}
				assert.Empty(t, c.takeLog(), "the end of the deletion is awaited without requests")
				c.vanish("a")
				delete(c.answers, "a")
				_, _ = c.roll(t, plan, settled)
				assert.Equal(t, []string{"apply a"}, c.takeLog())
			})
		}
	}
}
