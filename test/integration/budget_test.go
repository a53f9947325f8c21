package integration_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/operator/rolloutpage"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/endpoint"
)

// writesPerManifest is the limit of write requests for an install or an update, per manifest of the release. It includes rejected requests,
// requests without effect, and the status of ClusterVersion and ClusterOperators. It excludes events and the Lease, which is renewed
// regularly.
const writesPerManifest = 1.3

// These are the limits of all requests, per manifest of the release. The margins are less than one more request for each object that
// changes. Watches do not count, because the API server ends them after some minutes.
const (
	installRequests = 1.5
	updateRequests  = 0.33
)

// assertBudget counts the operator's requests since begin.
func (p *platform) assertBudget(what string, begin time.Time, manifests int, limit float64) {
	p.t.Helper()
	requests, writes := 0, 0
	for _, e := range p.audit(begin) {
		if !strings.HasPrefix(e.UserAgent, operatorAgent) || isIndependent(e.Object.Resource) || e.Verb == "watch" {
			continue
		}
		requests++
		if slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb) {
			writes++
		}
	}
	perManifest := float64(writes) / float64(manifests)
	p.t.Logf("%s: %d requests, of which %d are writes, for %d manifests: %.3f writes per manifest", what, requests, writes, manifests, perManifest)
	assert.LessOrEqual(p.t, perManifest, writesPerManifest, what)
	assert.LessOrEqual(p.t, float64(requests), limit*float64(manifests), what)
}

// isIndependent reports whether requests for a resource are not part of a rollout: the Lease, events, and the reviews with which the
// operator authenticates and authorizes its callers.
func isIndependent(resource string) bool {
	return slices.Contains([]string{"leases", "events", "tokenreviews", "subjectaccessreviews"}, resource)
}

// changedSince lists the objects of a rollout whose resource version a request of the operator changed. The audit log has no resource
// version of Secrets, so requests for them count as changes unless they were rejected.
func (p *platform) changedSince(begin time.Time) []string {
	p.t.Helper()
	var names []string
	for _, e := range p.changesSince(begin) {
		if strings.HasPrefix(e.UserAgent, operatorAgent) && !isIndependent(e.Object.Resource) {
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

// passComplete reports whether a pass over a complete release has found everything in place.
func (p *platform) passComplete(address string) bool {
	p.t.Helper()
	served, err := endpoint.Connect(p.t.Context(), p.env.Config("integration"), api.OperatorNamespace, api.ClusterVersionName, "https://"+address)
	if err != nil {
		return false // no operator leads yet
	}
	defer served.Close()
	account, _, err := rolloutpage.Read(p.t.Context(), served, false, "")
	return err == nil && account.Progress.Complete && account.Progress.Mode == release.Reconciling
}
