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
	applyinject "github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/ring"
)

// moment is a random time within a period after the start of a phase, at which the operator is killed.
type moment struct {
	phase string
	// within is the length of that period.
	within time.Duration
	// log is a text that this operator must have logged, so that an earlier, killed operator's phase does not count.
	log  string
	when func(*configv1.ClusterVersion) bool
}

// Log messages of operators at the start of a phase.
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

// TestKilledOperatorContinues kills the operator at ten moments that are spread over the download, the applies and the gates of an install
// and an update. `make test` runs the four of the install. The rollout must always complete. An object that has reached a release must not be
// changed for it again.
//
//threat:killed-operator-leaves
func TestKilledOperatorContinues(t *testing.T) {
	t.Parallel()
	p, r := newRealPlatform(t)
	p.start("operators", "--delay", "2s", "--jitter", "0.2")
	seed := uint64(20261121)
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)

	begin := time.Now()
	operator := p.killAt(random, r.from.ByDigest(), "4.22.9", []moment{
		{"downloading", 600 * time.Millisecond, logWorking, func(cv *configv1.ClusterVersion) bool { return len(cv.Status.History) == 0 || applying(cv) }},
		{"applying", time.Second, logRollout, applying},
		{"applying", 3 * time.Second, logRollout, applying},
		{"gating", 300 * time.Millisecond, logRollout, gating},
	})
	p.await("4.22.9 to complete", 3*time.Minute, completed("4.22.9"))
	p.assertChangedOnce(r.fromDir, release.Initializing, begin)
	operator.end(t)
	if !ring.Outer() {
		return
	}

	// The target is not in the cache yet. The registry does not send it before the operator is killed.
	begin = time.Now()
	slow := p.registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/blobs/"), Delay: time.Hour})
	p.update(configv1.Update{Image: r.to.ByDigest()})
	p.killAt(random, r.from.ByDigest(), "4.23.0", []moment{
		{"downloading", 500 * time.Millisecond, logWorking, downloading},
		{"downloading", 900 * time.Millisecond, logWorking, downloading},
	}).kill()
	slow()
	p.killAt(random, r.from.ByDigest(), "4.23.0", []moment{
		{"applying", 500 * time.Millisecond, logRollout, applying},
		{"gating", time.Second, logRollout, gating},
		{"gating", 6 * time.Second, logRollout, gating},
		{"gating", 12 * time.Second, logRollout, gating},
	})
	p.await("4.23.0 to complete", 3*time.Minute, completed("4.23.0"))
	p.assertChangedOnce(r.toDir, release.Updating, begin)
}

// killAt runs the operator once for each moment and kills it then, or later if the phase is over before this test sees it. It returns a last
// operator that keeps running. version is the version that the operator installs.
func (p *platform) killAt(random *rand.Rand, image, version string, moments []moment) *process {
	p.t.Helper()
	met := map[string]bool{} // by phase
	for _, m := range moments {
		operator := p.operator(image)
		operator.logged(p.t, m.log)
		p.await(m.phase, time.Minute, func(cv *configv1.ClusterVersion) bool {
			met[m.phase] = met[m.phase] || m.when(cv)
			return m.when(cv) || completed(version)(cv)
		})
		after := time.Duration(random.Int64N(int64(m.within)))
		<-time.After(after) // this test varies the moment
		operator.kill()
		p.releaseLease()
		cv := p.await("anything", time.Minute, func(*configv1.ClusterVersion) bool { return true })
		p.t.Logf("killed %s after %s: %s", m.phase, after.Round(time.Millisecond), condition(cv, configv1.OperatorProgressing))
	}
	for _, m := range moments {
		require.True(p.t, met[m.phase], "no operator was killed while it was %s", m.phase)
	}
	return p.operator(image)
}

// releaseLease releases the Lease of an operator that is certainly dead. Other tests cover the wait for its expiry. Ten such waits would be
// most of this test's time.
func (p *platform) releaseLease() {
	p.t.Helper()
	leases := kubernetes.NewForConfigOrDie(p.env.Config("integration")).CoordinationV1().Leases(api.OperatorNamespace)
	_, err := leases.Patch(p.t.Context(), "version", types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`), metav1.PatchOptions{})
	require.NoError(p.t, err)
}

// assertChangedOnce checks that the operator changed each object of a release at most once since begin. It omits Secrets, because the audit
// log has no resource version for them. It also omits objects that depend on the cluster's configuration: the release itself contains that
// configuration, so they may be applied before or after it exists.
func (p *platform) assertChangedOnce(dir string, mode release.Mode, begin time.Time) {
	p.t.Helper()
	g := p.graphOf(dir, mode)
	all, err := p.env.Audit()
	require.NoError(p.t, err)
	counts := map[object]int{}
	for _, e := range g.writesOf(operatorAgent, env.Changes(all)) {
		o := objectOf(e)
		if e.Received.After(begin) && o.resource != "secrets" && e.Verb != "delete" && !applyinject.Requested(g.objects[o].Manifest) {
			counts[o]++
		}
	}
	require.NotEmpty(p.t, counts)
	requireNoDuplicates(p.t, counts, filepath.Base(dir))
	assert.Greater(p.t, len(counts), 100)
}
