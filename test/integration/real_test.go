package integration_test

import (
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
)

// TestRealReleases installs 4.22.9 and updates to 4.23.0 by an edit of the ClusterVersion, both from signed images.
func TestRealReleases(t *testing.T) {
	p, r := newRealPlatform(t)
	p.start("operators")
	start := time.Now()
	p.operator(r.from.ByDigest())
	cv := p.await("4.22.9 to complete", 3*time.Minute, completed("4.22.9"))
	t.Logf("installed in %s", time.Since(start).Round(100*time.Millisecond))
	assert.True(t, cv.Status.History[0].Verified)
	p.await("the cluster to be at 4.22.9", 10*time.Second, func(cv *configv1.ClusterVersion) bool {
		return condition(cv, configv1.OperatorProgressing) == "False||Cluster version is 4.22.9"
	})

	start = time.Now()
	p.update(configv1.Update{Image: r.to.ByDigest()})
	cv = p.await("4.23.0 to complete", 3*time.Minute, completed("4.23.0"))
	t.Logf("updated in %s", time.Since(start).Round(100*time.Millisecond))
	assert.True(t, cv.Status.History[0].Verified)
	assert.Equal(t, "4.23.0", cv.Status.Desired.Version)
}
