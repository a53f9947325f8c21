package integration_test

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// moment is when the operator is killed: a random while after the cluster has come to a phase.
type moment struct {
	phase string
	// within bounds the random while.
	within time.Duration
	// log is what this operator must have logged, so that the phase is its own and not what a killed one left behind.
	log  string
	when func(*configv1.ClusterVersion) bool
}

// What operators log when they begin with something.
const (
	logWorking = "Starting workers"
	logRollout = "rollout started"
)

func downloading(cv *configv1.ClusterVersion) bool {
	return strings.HasPrefix(condition(cv, api.ReleaseAccepted), "Unknown|"+api.ReasonRetrievePayload)
}

func applying(cv *configv1.ClusterVersion) bool {
	return strings.HasPrefix(condition(cv, configv1.OperatorProgressing), "True|") && len(cv.Status.History) > 0 &&
		cv.Status.History[0].State == configv1.PartialUpdate
}

func gating(cv *configv1.ClusterVersion) bool {
	return applying(cv) && strings.Contains(condition(cv, configv1.OperatorProgressing), "waiting on ")
}

// TestKill kills the operator without warning at ten moments, spread over download, apply and gates of an install and
// an update. It must always complete, and an object that has been brought to a release is not changed for it again.
func TestKill(t *testing.T) {
	p, r := newRealPlatform(t)
	p.start("operators", "--delay", "2s", "--jitter", "0.2")
	seed := uint64(20261121)
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)

	begin := time.Now()
	operator := p.killAt(random, r.from.ByDigest(), []moment{
		{"downloading", 600 * time.Millisecond, logWorking, func(cv *configv1.ClusterVersion) bool { return len(cv.Status.History) == 0 }},
		{"applying", time.Second, logRollout, applying},
		{"applying", 3 * time.Second, logRollout, applying},
		{"gating", 300 * time.Millisecond, logRollout, gating},
	})
	p.await("4.22.9 to complete", 3*time.Minute, completed("4.22.9"))
	p.assertChangedOnce(r.fromDir, release.Initializing, begin)
	operator.end(t)

	// Nothing of the target is in the cache yet; a slow registry gives time to kill the download.
	begin = time.Now()
	slow := p.registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/blobs/"), Delay: 400 * time.Millisecond})
	p.update(configv1.Update{Image: r.to.ByDigest()})
	p.killAt(random, r.from.ByDigest(), []moment{
		{"downloading", 500 * time.Millisecond, logWorking, downloading},
		{"downloading", 900 * time.Millisecond, logWorking, downloading},
	}).kill()
	slow()
	p.killAt(random, r.from.ByDigest(), []moment{
		{"applying", 500 * time.Millisecond, logRollout, applying},
		{"gating", time.Second, logRollout, gating},
		{"gating", 6 * time.Second, logRollout, gating},
		{"gating", 12 * time.Second, logRollout, gating},
	})
	p.await("4.23.0 to complete", 3*time.Minute, completed("4.23.0"))
	p.assertChangedOnce(r.toDir, release.Updating, begin)
}

// killAt runs the operator once for each moment, kills it there, and returns a last one that runs on.
func (p *platform) killAt(random *rand.Rand, image string, moments []moment) *process {
	p.t.Helper()
	for _, m := range moments {
		operator := p.operator(image)
		operator.logged(p.t, m.log)
		p.await(m.phase, time.Minute, m.when)
		after := time.Duration(random.Int64N(int64(m.within)))
		select {
		case <-time.After(after): // the moment itself is what this test varies
		case <-operator.exited:
			require.FailNow(p.t, "the operator ended by itself", tail(operator.log))
		}
		operator.kill()
		p.releaseLease()
		cv := p.await("anything", time.Minute, func(*configv1.ClusterVersion) bool { return true })
		p.t.Logf("killed %s after %s: %s", m.phase, after.Round(time.Millisecond), condition(cv, configv1.OperatorProgressing))
	}
	return p.operator(image)
}

// releaseLease takes the lease from an operator that is dead for sure: that another waits for it to run out is seen
// elsewhere, and ten times would be most of this test's time.
func (p *platform) releaseLease() {
	p.t.Helper()
	leases := kubernetes.NewForConfigOrDie(p.env.Config("integration")).CoordinationV1().Leases(api.OperatorNamespace)
	_, err := leases.Patch(p.t.Context(), "version", types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`), metav1.PatchOptions{})
	require.NoError(p.t, err)
}

// assertChangedOnce checks that the operator changed each object of a release at most once since begin. Secrets are
// left out because the audit log has no resource version for them, and so is what the cluster's configuration is put
// into: the release itself brings that, and whether it is there at the first or the second look is a matter of luck.
func (p *platform) assertChangedOnce(dir string, mode release.Mode, begin time.Time) {
	p.t.Helper()
	g := p.graphOf(dir, mode)
	all, err := env.Audit(p.env.AuditLog)
	require.NoError(p.t, err)
	counts := map[object]int{}
	for _, e := range g.writesOf(operatorAgent, env.Changes(all)) {
		o := objectOf(e)
		if e.Received.After(begin) && o.resource != "secrets" && e.Verb != "delete" && !apply.Injected(g.objects[o].Manifest) {
			counts[o]++
		}
	}
	require.NotEmpty(p.t, counts)
	requireNoDuplicates(p.t, counts, filepath.Base(dir))
	assert.Greater(p.t, len(counts), 100)
}
