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
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/ownership"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// replacing is an update to a release whose operator has the image "new".
func replacing(t *testing.T) *rollout.Plan {
	t.Helper()
	return newPlan(t, release.Updating,
		parse(t, "00_a_30", `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: openshift-cluster-version, name: cluster-version-operator},
			spec: {template: {spec: {containers: [{name: cluster-version-operator, image: new}]}}}}`),
		configMap(t, "00_a_40", "before"), configMap(t, "10_b_01", "beyond"),
	)
}

// handover is that of a process with an image.
func handover(own string) *rollout.Handover {
	return &rollout.Handover{
		Deployment: manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "openshift-cluster-version", Name: "cluster-version-operator"},
		Own:        func(image string) bool { return image == own },
		Flush:      func(context.Context) error { return nil },
		Stands:     func() (string, int64) { return "", 0 },
		Successor:  func(string) rollout.Successor { return rollout.Successor{} },
	}
}

func TestHandover(t *testing.T) {
	c := newCluster()
	plan, passer := replacing(t), c.passer()
	passer.Handover = handover("old")
	flushed := []string{}
	passer.Handover.Flush = func(context.Context) error {
		flushed = c.took()
		assert.Equal(t, 1, passer.Settled().Progress(plan).Done, "what comes before has settled, and is there to be recorded")
		return nil
	}

	progress, settled, err := passer.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	assert.Equal(t, []string{"apply before"}, flushed, "before the process may be stopped")
	assert.Equal(t, []string{"apply cluster-version-operator"}, c.took(), "and nothing beyond it")
	assert.True(t, passer.Handing())
	require.Len(t, progress.Problems, 1)
	assert.Equal(t, gate.Waiting, progress.Problems[0].State)
	assert.Equal(t, api.ReasonOperatorHandover, progress.Problems[0].Reason)
	assert.Equal(t, "waiting for the operator of release 1.1.0 to take over", progress.Problems[0].Message)
	assert.Equal(t, 1, progress.Done)

	passer.Handover.Flush = func(context.Context) error { return errors.New("flushed twice") }
	passer.Handover.Successor = func(image string) rollout.Successor {
		assert.Equal(t, "new", image)
		return rollout.Successor{Trouble: "pod x is ill", Lasting: true}
	}
	progress, _, err = passer.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Empty(t, c.took())
	require.Len(t, progress.Problems, 1)
	assert.Equal(t, gate.Failed, progress.Problems[0].State)
	assert.Equal(t, api.ReasonOperatorNotStarting, progress.Problems[0].Reason)
	assert.Equal(t, "the operator of release 1.1.0 cannot take over: pod x is ill", progress.Problems[0].Message)
}

func TestHandoverNeedsARecord(t *testing.T) {
	c := newCluster()
	plan, passer := replacing(t), c.passer()
	passer.Handover = handover("old")
	passer.Handover.Flush = func(context.Context) error { return errors.New("no room") }
	progress, _, err := passer.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	assert.Equal(t, []string{"apply before"}, c.took())
	require.Len(t, progress.Problems, 1)
	assert.Contains(t, progress.Problems[0].Message, "no room")
}

func TestHandoverToItself(t *testing.T) {
	for name, h := range map[string]*rollout.Handover{"of the process's own image": handover("new"), "outside of the cluster": nil} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			plan, passer := replacing(t), c.passer()
			passer.Handover = h
			_, _, err := passer.Run(t.Context(), plan, rollout.Settled{})
			require.NoError(t, err)
			assert.False(t, passer.Handing())
			assert.Contains(t, c.took(), "apply cluster-version-operator")
		})
	}
}

// TestHandoverSetBack has the Deployment be set back to the image of the release before. managedFields does not tell it if
// that was done by our own field manager.
func TestHandoverSetBack(t *testing.T) {
	const operator = "cluster-version-operator"
	byNamesake := func(s *observe.State) { s.Generation++ }
	byOther := func(s *observe.State) { s.Generation++; s.Fields, s.Writer = ownership.Hash{1}, "kubectl-set" }
	// begin makes a passer whose cluster is being handed over.
	begin := func(t *testing.T) (*cluster, *rollout.Plan, *rollout.Passer, rollout.Settled) {
		t.Helper()
		c := newCluster()
		plan, passer := replacing(t), c.passer()
		passer.Handover = handover("old")
		passer.Handover.Stands = func() (string, int64) { return "new", c.states[operator].Generation }
		_, settled, err := passer.Run(t.Context(), plan, rollout.Settled{})
		require.NoError(t, err)
		c.took()
		return c, plan, passer, settled
	}
	for name, tt := range map[string]struct {
		edit    func(s *observe.State)
		restart func(rollout.Settled, *rollout.Plan) rollout.Settled
		manager string
	}{
		"by a namesake":                       {byNamesake, nil, api.FieldManager},
		"by another":                          {byOther, nil, "kubectl-set"},
		"by a namesake, with another leader":  {byNamesake, restored, api.FieldManager},
		"by another, with another leader":     {byOther, restored, "kubectl-set"},
		"by a namesake, with another rollout": {byNamesake, func(s rollout.Settled, _ *rollout.Plan) rollout.Settled { return s.Restart(false) }, api.FieldManager},
	} {
		t.Run(name, func(t *testing.T) {
			c, plan, passer, settled := begin(t)
			c.touch(operator, tt.edit)
			live := "old"
			passer.Handover.Stands = func() (string, int64) { return live, c.states[operator].Generation }
			c.onApply = func(context.Context, string) error {
				live = "new"
				c.touch(operator, func(s *observe.State) { s.Generation++ })
				return nil
			}
			var told []rollout.Repaired
			passer.Repaired = func(r rollout.Repaired) { told = append(told, r) }
			if tt.restart != nil {
				settled = tt.restart(settled, plan)
			}
			_, settled, err := passer.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			assert.Equal(t, []string{"apply " + operator}, c.took())
			require.Len(t, told, 1)
			assert.Equal(t, rollout.DriftChanged, told[0].Reason)
			assert.Equal(t, tt.manager, told[0].Manager)
			assert.True(t, passer.Handing())
			_, _, err = passer.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			assert.Empty(t, c.took(), "once")
		})
	}

	t.Run("in a fight", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, plan, passer, settled := begin(t)
			passer.Handover.Stands = func() (string, int64) { return "old", c.states[operator].Generation }
			c.onApply = func(context.Context, string) error { c.touch(operator, byNamesake); return nil }
			var progress rollout.Progress
			for range 30 {
				c.touch(operator, byNamesake)
				var err error
				progress, settled, err = passer.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				time.Sleep(time.Second)
			}
			assert.Len(t, c.took(), 10, "then the other one has its way for a while")
			require.Len(t, progress.Problems, 1)
			assert.Equal(t, api.ReasonOperatorHandover, progress.Problems[0].Reason, "nothing beyond it is applied")
			assert.Contains(t, progress.Problems[0].Message, `was changed by field manager "cluster-version-operator" again and again`)
			assert.NotZero(t, progress.RetryAt)
		})
	})

	t.Run("an image that admission rewrites", func(t *testing.T) {
		c, plan, passer, settled := begin(t)
		passer.Handover.Stands = func() (string, int64) { return "mirror", c.states[operator].Generation }
		settled = restored(settled, plan)
		for range 3 {
			var err error
			_, settled, err = passer.Run(t.Context(), plan, settled)
			require.NoError(t, err)
		}
		assert.Equal(t, []string{"apply " + operator}, c.took(), "once in the life of a process")
	})
}

// restored is what another process knows by the inventory.
func restored(s rollout.Settled, plan *rollout.Plan) rollout.Settled {
	records := map[manifest.ID]inventory.Record{}
	for _, r := range s.Records(plan) {
		records[r.ID] = r
	}
	return rollout.Restore(inventory.Inventory{Records: records}, plan.Release.Version)
}
