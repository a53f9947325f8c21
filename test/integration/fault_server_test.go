package integration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"
)

// TestUpdateSurvivesFaultsOfTheServer stops the API server and etcd during updates. The operator may end because of that; it is then
// restarted as by a kubelet.
func TestUpdateSurvivesFaultsOfTheServer(t *testing.T) {
	t.Parallel()
	f := newFaultPlatform(t, func(f *faultPlatform) { f.cvo = f.operator(f.own.ByDigest(), shortLease...) }, "--delay", "3s")
	f.chapter("API server restarted", func() { serverRestarted(f) })
	f.chapter("etcd paused for 30 s", func() { storePaused(f) })
}

// awaitHalfWay waits until the update is in its first runlevel with gates.
func (f *faultPlatform) awaitHalfWay(version string) {
	f.t.Helper()
	f.await("the middle of the update", time.Minute, func(cv *configv1.ClusterVersion) bool {
		text := condition(cv, configv1.OperatorProgressing)
		return strings.Contains(text, "Working towards "+version) && strings.Contains(text, "waiting on tiny-a")
	})
}

func serverRestarted(f *faultPlatform) {
	version, img := f.next()
	o := f.begin("API server restarted", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.awaitHalfWay(version)
	require.NoError(f.t, f.env.KillAPIServer())
	// The server is down for longer than the operator tries to renew its Lease.
	select {
	case <-time.After(12 * time.Second):
	case <-f.t.Context().Done():
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(f.t, f.env.StartAPIServer(ctx))
	o.over(time.Now())
	f.t.Logf("the operator was started %d times", f.cvo.started())
}

func storePaused(f *faultPlatform) {
	version, img := f.next()
	o := f.begin("etcd paused for 30 s", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.awaitHalfWay(version)
	resume, err := f.env.PauseEtcd()
	require.NoError(f.t, err)
	select {
	case <-time.After(30 * time.Second):
	case <-f.t.Context().Done():
	}
	require.NoError(f.t, resume())
	o.over(time.Now())
	f.t.Logf("the operator was started %d times", f.cvo.started())
}
