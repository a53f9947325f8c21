package rollout_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
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
