package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install/lease"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/test/installed"
)

func TestInstallReclaimsTheLeaseOfAnUninstall(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed.Cluster(t)
	held := installed.Lease("cvo-uninstall", 60)
	require.NoError(t, c.Create(t.Context(), held))
	reclaim := func(meanwhile func()) error {
		clk := clocktesting.NewFakeClock(time.Now())
		return lease.Reclaim(t.Context(), clk, cfg, api.OperatorNamespace, "version", func(string) {
			meanwhile()
			clk.Step(time.Minute)
		})
	}
	err := reclaim(func() {
		held.Spec.RenewTime = &metav1.MicroTime{Time: held.Spec.RenewTime.Add(time.Second)}
		require.NoError(t, c.Update(t.Context(), held))
	})
	var refusal *target.Refusal
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "'cvo uninstall' is running in this cluster")

	require.NoError(t, reclaim(func() {}))
	require.True(t, installed.Exists(t, c, held))
	assert.Empty(t, *held.Spec.HolderIdentity)
	require.NoError(t, reclaim(func() { assert.Fail(t, "an expired Lease needs no wait") }))
}

// TestHoldWithoutLease starts an uninstall in a cluster without the Lease. An operator outside the cluster then creates it.
func TestHoldWithoutLease(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed.Cluster(t)
	cluster, err := target.Connect(t.Context(), cfg, nil)
	require.NoError(t, err)
	clk := clocktesting.NewFakeClock(time.Now())
	hold := lease.New(clk, cluster, api.OperatorNamespace, "version")
	require.NoError(t, hold.Renew(t.Context()))
	require.NoError(t, hold.Acquire(t.Context()))
	renew := func() error {
		clk.Step(time.Minute)
		return hold.Renew(t.Context())
	}
	require.NoError(t, renew())

	created := installed.Lease("outside", 60)
	require.NoError(t, c.Create(t.Context(), created))
	require.ErrorContains(t, renew(), `"outside" now holds it and may recreate deleted objects: stop that process and run the command again`)

	created.Spec.HolderIdentity = new("")
	require.NoError(t, c.Update(t.Context(), created))
	require.NoError(t, renew(), "the other process has released it")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(created), created))
	assert.Equal(t, api.UninstallHolder, *created.Spec.HolderIdentity)
}
