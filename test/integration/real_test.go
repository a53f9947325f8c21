package integration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestRealReleasesInstallAndUpdate installs 4.22.9 and updates to 4.23.0 by editing the ClusterVersion, both from signed images. It counts
// the requests of the install, the update and an idle restart, which do not depend on the speed of the machine. It checks the order of the
// update and runs a diff before and after it.
func TestRealReleasesInstallAndUpdate(t *testing.T) {
	t.Parallel()
	p, r := newRealPlatform(t)
	p.start("operators", "--delay", "300ms", "--jitter", "0.5", "--workload-delay", "50ms")
	begin := time.Now()
	operator := p.operator(r.from.ByDigest())
	cv := p.await("4.22.9 to complete", patience, completed("4.22.9"))
	t.Logf("installed in %s", time.Since(begin).Round(100*time.Millisecond))
	assert.True(t, cv.Status.History[0].Verified)
	p.rest()
	p.assertBudget("install", begin, len(p.graphOf(r.fromDir, release.Initializing).objects), installRequests)

	// The operator is stopped, so that only the diff sends requests to the API server.
	g := p.graphOf(r.toDir, release.Updating)
	operator.end(t)
	p.assertDiff(r.to, len(g.objects))

	operator = p.operator(r.from.ByDigest())
	operator.logged(t, logRollout)
	p.rest()
	begin = time.Now()
	p.update(configv1.Update{Image: r.to.ByDigest()})
	cv = p.await("4.23.0 to complete", patience, completed("4.23.0"))
	t.Logf("updated in %s", time.Since(begin).Round(100*time.Millisecond))
	assert.True(t, cv.Status.History[0].Verified)
	assert.Equal(t, "4.23.0", cv.Status.Desired.Version)
	p.assertBudget("update", begin, len(g.objects), updateRequests)
	p.assertOrder(g, p.changesSince(begin))
	p.await("the cluster to be at 4.23.0", patience, func(cv *configv1.ClusterVersion) bool {
		return condition(cv, configv1.OperatorProgressing) == "False||Cluster version is 4.23.0"
	})
	p.assertNoDiff(r.to)
	operator.end(t)

	begin = time.Now()
	address := freeAddress(t)
	p.operator(r.from.ByDigest(), "--listen", address)
	require.Eventually(t, func() bool { return p.passComplete(address) }, patience, 100*time.Millisecond)
	changed := p.changedSince(begin)
	accepted := api.FindCondition(p.await("4.23.0 to be completed", patience, completed("4.23.0")).Status.Conditions, api.ReleaseAccepted)
	if accepted.LastTransitionTime.After(begin) { // on a busy machine, the acceptance may take more than ten seconds, and the status says so
		changed = slices.DeleteFunc(changed, func(object string) bool { return strings.HasSuffix(object, " version/status") })
	}
	assert.Empty(t, changed, "a restart without pending work writes nothing")
}
