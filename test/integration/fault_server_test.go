package integration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"
)

// TestFaultServer has the API server, and what it stores things in, go away in the middle of updates. The operator may
// end for that; it is started again as the kubelet does it.
func TestFaultServer(t *testing.T) {
	t.Parallel()
	var k *kept
	f := newTroubled(t, func(f *troubled) {
		lasting := f.lasting()
		k = f.keep(func() *process { return lasting.operator(f.own.ByDigest()) })
	}, "--delay", "3s")
	f.chapter("API server restarted", func() { serverRestarted(f, k) })
	f.chapter("etcd paused for 30 s", func() { storePaused(f, k) })
}

// halfWay waits until the update is in the middle of its first runlevel with gates.
func (f *troubled) halfWay(version string) {
	f.t.Helper()
	f.await("the middle of the update", time.Minute, func(cv *configv1.ClusterVersion) bool {
		text := condition(cv, configv1.OperatorProgressing)
		return strings.Contains(text, "Working towards "+version) && strings.Contains(text, "waiting on tiny-a")
	})
}

func serverRestarted(f *troubled, k *kept) {
	version, img := f.next()
	o := f.begin("API server restarted", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.halfWay(version)
	require.NoError(f.t, f.env.KillAPIServer())
	// Down for longer than the operator tries to keep its lease.
	select {
	case <-time.After(12 * time.Second):
	case <-f.t.Context().Done():
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(f.t, f.env.StartAPIServer(ctx))
	o.over(time.Now())
	f.t.Logf("the operator was started %d times", k.times())
}

func storePaused(f *troubled, k *kept) {
	version, img := f.next()
	o := f.begin("etcd paused for 30 s", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.halfWay(version)
	resume, err := f.env.PauseEtcd()
	require.NoError(f.t, err)
	select {
	case <-time.After(30 * time.Second):
	case <-f.t.Context().Done():
	}
	require.NoError(f.t, resume())
	o.over(time.Now())
	f.t.Logf("the operator was started %d times", k.times())
}
