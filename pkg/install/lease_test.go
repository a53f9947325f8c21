package install_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install"
)

func leaseOf(holder string, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: "version"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: new(metav1.NowMicro())},
	}
}

// TestReclaim has an install meet the Lease of an uninstall.
func TestReclaim(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed(t)
	lease := leaseOf("cvo-uninstall", 60)
	require.NoError(t, c.Create(t.Context(), lease))
	reclaim := func(meanwhile func()) error {
		clk := clocktesting.NewFakeClock(time.Now())
		return install.Reclaim(t.Context(), clk, cfg, api.OperatorNamespace, "version", func(string) {
			meanwhile()
			clk.Step(time.Minute)
		})
	}
	err := reclaim(func() {
		lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(time.Second)}
		require.NoError(t, c.Update(t.Context(), lease))
	})
	var refusal *install.Refusal
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "'cvo uninstall' is at work in this cluster")

	require.NoError(t, reclaim(func() {}))
	require.True(t, there(t, c, lease))
	assert.Empty(t, *lease.Spec.HolderIdentity)
	require.NoError(t, reclaim(func() { assert.Fail(t, "it waits for nobody") }))
}
