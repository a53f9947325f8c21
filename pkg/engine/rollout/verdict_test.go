package rollout_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestRunReportsWhyANamespaceIsNotDeleted(t *testing.T) {
	condition := func(status, message string) any {
		return map[string]any{"type": "any", "status": status, "message": message}
	}
	for _, tt := range []struct {
		name   string
		status any
		want   string
	}{
		{name: "reports the conditions", status: map[string]any{"conditions": []any{
			condition("True", "Some resources are remaining: configmaps. has 1 resource instances"),
			condition("False", "All legacy kube types successfully parsed"),
			condition("True", "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"),
		}}, want: " (Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances; " +
			"Some resources are remaining: configmaps. has 1 resource instances)"},
		{name: "truncates a long message", status: map[string]any{"conditions": []any{condition("True", strings.Repeat("x", 501))}}, want: " (" + strings.Repeat("x", 497) + "…)"},
		{name: "refers to the conditions if they are unknown", status: map[string]any{"conditions": "none"}, want: " (its conditions list the remaining content)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			namespace := parse(t, "10_a_01", `{apiVersion: v1, kind: Namespace, metadata: {name: a}}`)
			plan := newPlan(t, release.Updating, namespace)
			_, settled := c.roll(t, plan, rollout.Settled{})
			c.touch("a", func(s *observe.State) { s.Deleting = true })
			c.live["a"] = map[string]any{"status": tt.status}
			progress, _ := c.roll(t, plan, settled)
			require.Len(t, progress.Problems, 1)
			assert.Equal(t, api.ReasonDeleting, progress.Problems[0].Reason)
			assert.Contains(t, progress.Problems[0].Message, "Namespace a is being deleted by another client"+tt.want+"; it will be recreated once it is gone")
		})
	}
}

// TestFightDelaysOnlyItsDependents checks that another client that keeps changing an object delays only the object's dependents, and only
// during an update. It does not fail the release, unless the object gives power over the cluster.
//
//threat:two-writers-fight
func TestFightDelaysOnlyItsDependents(t *testing.T) {
	role := "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}"
	webhook := "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: a}}"
	crd := "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}, spec: {group: example.com}}"
	plain := "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}}"
	for _, tt := range []struct {
		name, place, object string
		mode                release.Mode
		state               gate.State
		patience            gate.Patience
	}{
		{"an ordinary object while reconciling", "10_x_01", plain, release.Reconciling, gate.Settled, gate.Notice},
		{"an ordinary object while updating", "10_x_01", plain, release.Updating, gate.Waiting, gate.UntilSlow},
		{"a role while reconciling", "10_x_01", role, release.Reconciling, gate.Settled, gate.Report},
		{"a role while updating", "10_x_01", role, release.Updating, gate.Failed, gate.None},
		{"a webhook configuration while updating", "10_x_01", webhook, release.Updating, gate.Failed, gate.None},
		{"a CRD while updating", "10_x_01", crd, release.Updating, gate.Failed, gate.None},
		{"the operator's own object while updating", "10_cluster-version-operator_01", plain, release.Updating, gate.Failed, gate.None},
	} {
		t.Run("it reports a fight over "+tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				plan := newPlan(t, tt.mode, parse(t, tt.place, tt.object), configMap(t, "20_b_01", "later"))
				var progress report.Progress
				var settled rollout.Settled
				executor := c.executor()
				for range 12 {
					var err error
					progress, settled, err = executor.Run(t.Context(), plan, settled)
					require.NoError(t, err)
					c.touch("a", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "other" })
					time.Sleep(time.Second)
				}
				i := slices.IndexFunc(progress.Problems, func(p report.Problem) bool { return p.Reason == api.ReasonFight })
				require.GreaterOrEqual(t, i, 0, waitsFor(progress))
				assert.Equal(t, tt.state, progress.Problems[i].State)
				assert.Equal(t, tt.patience, progress.Problems[i].Patience)
				assert.Equal(t, tt.mode == release.Reconciling, progress.Complete)
			})
		})
	}
}

// TestDegradedLowerOperatorDoesNotHideOtherWaits checks that the waits of the current runlevel stay in the progress while an operator in a
// lower runlevel is degraded again.
func TestDegradedLowerOperatorDoesNotHideOtherWaits(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Updating, clusterOperator(t, "10_a_09", "a", "1.1.0"),
		clusterOperator(t, "20_b_09", "b", "1.1.0"), configMap(t, "30_c_01", "c"))
	c.report("a", "True", "False", "1.1.0")
	c.report("b", "True", "False", "1.0.0")
	progress, settled := c.roll(t, plan, rollout.Settled{})
	require.Equal(t, "b="+api.ReasonClusterOperatorUpdating, waitsFor(progress))

	c.report("a", "True", "True", "1.1.0")
	both := "a=" + api.ReasonClusterOperatorDegraded + " b=" + api.ReasonClusterOperatorUpdating
	progress, settled = c.roll(t, plan, settled)
	assert.Equal(t, both, waitsFor(progress))
	progress, settled = c.roll(t, plan, settled)
	assert.Equal(t, both, waitsFor(progress), "the next pass reports both, too")

	c.report("b", "True", "False", "1.1.0")
	progress, _ = c.roll(t, plan, settled)
	assert.Equal(t, "a="+api.ReasonClusterOperatorDegraded, waitsFor(progress), "b has settled")
}

// TestDegradedLowerOperatorDoesNotHideWhyPodsDoNotRun checks the same for a workload that waits for its pods.
func TestDegradedLowerOperatorDoesNotHideWhyPodsDoNotRun(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Updating, clusterOperator(t, "10_a_09", "a", "1.1.0"), deployment(t, "20_b_01", "web"))
	c.runs("web", 0)
	watched := &podsOf{findings: map[string]report.PodFinding{"web": {Summary: "pod web-1: ImagePullBackOff", Text: "pod web-1 cannot pull its image"}}}
	executor := c.executor()
	executor.Pods = watched
	var settled rollout.Settled
	for _, degraded := range []string{"False", "True", "True"} {
		c.report("a", "True", degraded, "1.1.0")
		progress, next, err := executor.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		settled = next
		require.NotEmpty(t, progress.Problems)
		web := progress.Problems[len(progress.Problems)-1]
		assert.Equal(t, "pod web-1: ImagePullBackOff", web.Pod)
		assert.Contains(t, web.Message, "cannot pull its image")
		assert.Equal(t, []string{"web"}, watched.followed)
	}
	c.runs("web", 1)
	progress, _, err := executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Equal(t, "a="+api.ReasonClusterOperatorDegraded, waitsFor(progress))
	assert.Empty(t, watched.followed)
}

// TestDegradedLowerOperatorDoesNotHideFailures checks the same for an object that the server rejects.
func TestDegradedLowerOperatorDoesNotHideFailures(t *testing.T) {
	c := newCluster()
	c.onApply = func(_ context.Context, name string) error {
		if name == "rejected" {
			return errors.New("no")
		}
		return nil
	}
	plan := newPlan(t, release.Updating, clusterOperator(t, "10_a_09", "a", "1.1.0"), configMap(t, "20_b_01", "rejected"))
	c.report("a", "True", "False", "1.1.0")
	progress, settled := c.roll(t, plan, rollout.Settled{})
	require.Len(t, progress.Problems, 1)
	rejected := waitsFor(progress)

	c.report("a", "True", "True", "1.1.0")
	for range 2 {
		progress, settled = c.roll(t, plan, settled)
		assert.Equal(t, "a="+api.ReasonClusterOperatorDegraded+" "+rejected, waitsFor(progress))
		require.EqualError(t, progress.Problems[1].Err, "no")
	}
	c.report("a", "True", "False", "1.1.0")
	progress, _ = c.roll(t, plan, settled)
	assert.Equal(t, rejected, waitsFor(progress))
}

// TestDegradedLowerOperatorDoesNotHideFightsAndDeletions checks the same for problems that are found before the gate is evaluated.
func TestDegradedLowerOperatorDoesNotHideFightsAndDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Updating, clusterOperator(t, "10_a_09", "a", "1.1.0"),
			configMap(t, "20_b_01", "fought"), configMap(t, "20_c_01", "deleted"), configMap(t, "30_d_01", "later"))
		executor := c.executor()
		var progress report.Progress
		var settled rollout.Settled
		pass := func(degraded string) string {
			t.Helper()
			c.report("a", "True", degraded, "1.1.0")
			var err error
			progress, settled, err = executor.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			return waitsFor(progress)
		}
		c.onApply = func(_ context.Context, name string) error {
			if name == "deleted" {
				return errors.New("no")
			}
			return nil
		}
		for i := range 12 {
			pass("False")
			c.touch("fought", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "other" })
			if i == 3 {
				c.touch("deleted", func(s *observe.State) { s.UID, s.Deleting, s.Finalizers = "1", true, []string{"x"} })
			}
			time.Sleep(time.Second)
		}
		const a = "a=" + api.ReasonClusterOperatorDegraded
		both := "fought=" + api.ReasonFight + " deleted=" + api.ReasonDeleting
		require.Equal(t, both, pass("False"))
		for range 2 {
			require.Equal(t, a+" "+both, pass("True"))
			for _, o := range executor.Objects() {
				if o.Name == "fought" || o.Name == "deleted" {
					assert.Equal(t, report.StateWaiting, o.State, o.Name)
					assert.NotEmpty(t, o.Message, o.Name)
				}
			}
		}

		c.onApply = nil
		c.vanish("deleted")
		require.Equal(t, "fought="+api.ReasonFight, pass("False"))
		require.Equal(t, a+" fought="+api.ReasonFight, pass("True"), "the deletion is over")
		require.NotZero(t, progress.RetryAt)
		time.Sleep(time.Until(progress.RetryAt))
		assert.Equal(t, a, pass("True"), "the truce is over")
	})
}
