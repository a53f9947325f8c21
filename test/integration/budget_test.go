package integration_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/operator"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
)

// writesPerManifest is what an install and an update may cost: requests that ask for a change, refused ones and those
// that turn out to change nothing included, by manifest of the release. It leaves out the Lease, which is renewed by
// the clock, and events; the status of ClusterVersion and of ClusterOperators counts.
const writesPerManifest = 1.3

// TestBudget counts requests, which are the same on a slow machine as on a fast one: those of an install and an update
// of the real releases, and those of a restart where there is nothing to do.
func TestBudget(t *testing.T) {
	p, r := newRealPlatform(t)
	p.start("operators")

	begin := time.Now()
	first := p.operator(r.from.ByDigest())
	p.await("4.22.9 to complete", 3*time.Minute, completed("4.22.9"))
	p.rest()
	p.assertBudget("install", begin, len(p.graphOf(r.fromDir, release.Initializing).objects))

	begin = time.Now()
	p.update(configv1.Update{Image: r.to.ByDigest()})
	p.await("4.23.0 to complete", 3*time.Minute, completed("4.23.0"))
	p.assertBudget("update", begin, len(p.graphOf(r.toDir, release.Updating).objects))
	p.await("the cluster to be at 4.23.0", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return condition(cv, configv1.OperatorProgressing) == "False||Cluster version is 4.23.0"
	})
	first.end(t)

	begin = time.Now()
	address := freeAddress(t)
	p.operator(r.from.ByDigest(), "--listen", address)
	require.Eventually(t, func() bool { return p.passComplete(address) }, time.Minute, 100*time.Millisecond)
	assert.Empty(t, p.changedSince(begin), "written by a restart with nothing to do")
}

// assertBudget counts the operator's requests since begin.
func (p *platform) assertBudget(what string, begin time.Time, manifests int) {
	p.t.Helper()
	requests, writes := 0, 0
	for _, e := range p.audit(begin) {
		if !strings.HasPrefix(e.UserAgent, operatorAgent) || beside(e.Object.Resource) {
			continue
		}
		requests++
		if slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb) {
			writes++
		}
	}
	perManifest := float64(writes) / float64(manifests)
	p.t.Logf("%s: %d requests, of which %d ask for a change, for %d manifests: %.3f each", what, requests, writes, manifests, perManifest)
	assert.LessOrEqual(p.t, perManifest, writesPerManifest, what)
}

// beside are the requests that are no part of a rollout: the Lease, events, and whether a caller may see what he asks
// for, which is put to the API server as an object that is created and not kept.
func beside(resource string) bool {
	return slices.Contains([]string{"leases", "events", "tokenreviews", "subjectaccessreviews"}, resource)
}

// changedSince names the objects, other than those beside the rollout, whose resource version is another after a request of
// the operator than after the request before. Of Secrets the audit log keeps no resource version; requests for those
// that were not refused count as changes.
func (p *platform) changedSince(begin time.Time) []string {
	p.t.Helper()
	all, err := env.Audit(p.env.AuditLog)
	require.NoError(p.t, err)
	var names []string
	for _, e := range env.Changes(all) {
		if strings.HasPrefix(e.UserAgent, operatorAgent) && e.Received.After(begin) && !beside(e.Object.Resource) {
			names = append(names, e.Object.String())
		}
	}
	return names
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// passComplete asks an operator whether a pass over a release that is complete already found everything in place.
func (p *platform) passComplete(address string) bool {
	p.t.Helper()
	served, err := operator.Connect(p.t.Context(), p.env.Config("integration"), api.OperatorNamespace, api.ClusterVersionName, "https://"+address)
	if err != nil {
		return false // nobody leads yet
	}
	defer served.Close()
	account, _, err := served.Rollout(p.t.Context(), false, "")
	return err == nil && account.Progress.Complete && account.Progress.Mode == release.Reconciling
}
