package rollout_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// replacing returns an update to a release whose operator has the image "new".
func replacing(t *testing.T) *rollout.Plan {
	t.Helper()
	return newPlan(t, release.Updating, operatorDeployment(t), configMap(t, "00_a_40", "before"), configMap(t, "10_b_01", "beyond"))
}

func operatorDeployment(t *testing.T) *manifest.Manifest {
	t.Helper()
	return parse(t, "00_a_30", `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: openshift-cluster-version, name: cluster-version-operator},
		spec: {template: {spec: {containers: [{name: cluster-version-operator, image: new}]}}}}`)
}

// handover returns the Handover of a process with the given image.
func handover(own string) *rollout.Handover {
	return &rollout.Handover{
		Deployment: manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "openshift-cluster-version", Name: "cluster-version-operator"},
		Own:        func(image string) bool { return image == own },
		Flush:      func(context.Context) error { return nil },
		Successor:  func(string) rollout.Successor { return rollout.Successor{} },
	}
}

func TestHandoverStopsAtTheOperator(t *testing.T) {
	c := newCluster()
	plan, executor := replacing(t), c.executor()
	executor.Handover = handover("old")
	flushed := []string{}
	executor.Handover.Flush = func(context.Context) error {
		flushed = c.takeLog()
		assert.Equal(t, 1, executor.Settled().Progress(plan).Done, "earlier objects have settled and can be recorded")
		return nil
	}

	progress, settled, err := executor.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	assert.Equal(t, []string{"apply before"}, flushed, "the inventory is saved before the process may be stopped")
	assert.Equal(t, []string{"apply cluster-version-operator"}, c.takeLog(), "no object after the operator is applied")
	assert.True(t, executor.Handing())
	require.Len(t, progress.Problems, 1)
	assert.Equal(t, gate.Waiting, progress.Problems[0].State)
	assert.Equal(t, api.ReasonOperatorHandover, progress.Problems[0].Reason)
	assert.Equal(t, "waiting for the operator of release 1.1.0 to take over", progress.Problems[0].Message)
	assert.Equal(t, 1, progress.Done)

	executor.Handover.Flush = func(context.Context) error { return errors.New("flushed twice") }
	executor.Handover.Successor = func(image string) rollout.Successor {
		assert.Equal(t, "new", image)
		return rollout.Successor{Trouble: "pod x is ill", Lasting: true}
	}
	progress, _, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Empty(t, c.takeLog())
	require.Len(t, progress.Problems, 1)
	assert.Equal(t, gate.Failed, progress.Problems[0].State)
	assert.Equal(t, api.ReasonOperatorNotStarting, progress.Problems[0].Reason)
	assert.Equal(t, "the operator of release 1.1.0 cannot take over: pod x is ill", progress.Problems[0].Message)
}

//threat:inventory-record-makes
func TestHandoverRetriesAFailedSave(t *testing.T) {
	for name, tt := range map[string]struct {
		second  error
		message string
	}{
		"continues without the inventory after two failures": {
			errors.New("no room"),
			"waiting for the operator of release 1.1.0 to take over (it will apply all objects again, because saving the inventory failed: no room)",
		},
		"continues with the inventory after a successful retry": {nil, "waiting for the operator of release 1.1.0 to take over"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				plan, executor := replacing(t), c.executor()
				executor.Handover = handover("old")
				executor.Handover.Flush = func(context.Context) error { return errors.New("no room") }
				progress, settled, err := executor.Run(t.Context(), plan, rollout.Settled{})
				require.NoError(t, err)
				assert.Equal(t, []string{"apply before"}, c.takeLog())
				require.Len(t, progress.Problems, 1)
				assert.Contains(t, progress.Problems[0].Message, "no room")

				time.Sleep(time.Second)
				executor.Handover.Flush = func(context.Context) error { return tt.second }
				progress, settled, err = executor.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				assert.Equal(t, []string{"apply cluster-version-operator"}, c.takeLog())
				require.Len(t, progress.Problems, 1)
				assert.Equal(t, tt.message, progress.Problems[0].Message)
				assert.True(t, executor.Handing())

				progress, _, err = executor.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				assert.Equal(t, tt.message, progress.Problems[0].Message, "while the rollout waits for the successor")
			})
		})
	}
}

func TestHandoverToItselfContinues(t *testing.T) {
	for name, h := range map[string]*rollout.Handover{"with the process's own image": handover("new"), "outside the cluster": nil} {
		t.Run("it continues "+name, func(t *testing.T) {
			c := newCluster()
			plan, executor := replacing(t), c.executor()
			executor.Handover = h
			_, _, err := executor.Run(t.Context(), plan, rollout.Settled{})
			require.NoError(t, err)
			assert.False(t, executor.Handing())
			assert.Contains(t, c.takeLog(), "apply cluster-version-operator")
		})
	}
}

// TestHandoverSurvivesARevertedDeployment lets another writer, sometimes with our manager's name, set the Deployment back to the image of
// the earlier release.
func TestHandoverSurvivesARevertedDeployment(t *testing.T) {
	const operator = "cluster-version-operator"
	byNamesake := func(s *observe.State) { s.Generation++; forge(s) }
	byOther := func(s *observe.State) { s.Generation++; s.Fields, s.Writer = ownership.Hash{1}, "kubectl-set" }
	// begin returns an executor during a handover.
	begin := func(t *testing.T) (*cluster, *rollout.Plan, *rollout.Executor, rollout.Settled) {
		t.Helper()
		c := newCluster()
		plan, executor := replacing(t), c.executor()
		executor.Handover = handover("old")
		_, settled, err := executor.Run(t.Context(), plan, rollout.Settled{})
		require.NoError(t, err)
		c.takeLog()
		return c, plan, executor, settled
	}
	for name, tt := range map[string]struct {
		edit    func(s *observe.State)
		restart func(rollout.Settled, *rollout.Plan) rollout.Settled
		manager string
	}{
		"another writer with our name":                    {byNamesake, nil, api.FieldManager},
		"another writer":                                  {byOther, nil, "kubectl-set"},
		"another writer with our name, and a new leader":  {byNamesake, restored, api.FieldManager},
		"another writer, and a new leader":                {byOther, restored, "kubectl-set"},
		"another writer with our name, and a new rollout": {byNamesake, func(s rollout.Settled, _ *rollout.Plan) rollout.Settled { return s.Restart(false) }, api.FieldManager},
	} {
		t.Run("it survives "+name, func(t *testing.T) {
			c, plan, executor, settled := begin(t)
			c.touch(operator, tt.edit)
			var reported []report.Repaired
			executor.Repaired = func(r report.Repaired) { reported = append(reported, r) }
			if tt.restart != nil {
				settled = tt.restart(settled, plan)
			}
			_, settled, err := executor.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			assert.Equal(t, []string{"apply " + operator}, c.takeLog())
			require.Len(t, reported, 1)
			assert.Equal(t, report.DriftChanged, reported[0].Reason)
			assert.Equal(t, tt.manager, reported[0].Manager)
			assert.True(t, executor.Handing())
			_, _, err = executor.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			assert.Empty(t, c.takeLog(), "once")
		})
	}

	t.Run("it stops repairs in a fight", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, plan, executor, settled := begin(t)
			var progress report.Progress
			for range 30 {
				c.touch(operator, byNamesake)
				var err error
				progress, settled, err = executor.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				time.Sleep(time.Second)
			}
			assert.Len(t, c.takeLog(), 10, "then the repairs pause")
			require.Len(t, progress.Problems, 1)
			assert.Equal(t, api.ReasonOperatorHandover, progress.Problems[0].Reason, "no object after the operator is applied")
			assert.Contains(t, progress.Problems[0].Message, `was repeatedly changed by field manager "cluster-version-operator"`)
			assert.NotZero(t, progress.RetryAt)
		})
	})

	t.Run("a fight fails the update no earlier if a lower operator is degraded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster()
			executor := c.executor()
			executor.Handover = handover("old")
			plan := newPlan(t, release.Updating, clusterOperator(t, "00_a_10", "lower", "1.1.0"), operatorDeployment(t))
			var settled rollout.Settled
			pass := func(degraded string) report.Progress {
				t.Helper()
				c.report("lower", "True", degraded, "1.1.0")
				progress, next, err := executor.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				settled = next
				return progress
			}
			for range 30 {
				pass("False")
				c.touch(operator, byNamesake)
				time.Sleep(time.Second)
			}
			progress := pass("False")
			require.Len(t, progress.Problems, 1)
			require.Contains(t, progress.Problems[0].Message, "was repeatedly changed")
			for _, problem := range pass("True").Problems {
				assert.NotEqual(t, api.ReasonFight, problem.Reason)
			}
		})
	})
}

// restored returns the settled state as another process reads it from the inventory.
func restored(s rollout.Settled, plan *rollout.Plan) rollout.Settled {
	records := map[manifest.ID]inventory.Record{}
	for _, r := range s.Records(plan) {
		records[r.ID] = r
	}
	return rollout.Restore(inventory.Inventory{Records: records}, plan.Release.Version)
}
