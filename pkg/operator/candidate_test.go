package operator

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	k8sfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// memoryLock is a Lease in memory.
type memoryLock struct {
	mu     sync.Mutex
	record resourcelock.LeaderElectionRecord
	gets   int
}

func (l *memoryLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gets++
	raw, err := json.Marshal(l.record)
	record := l.record
	return &record, raw, err
}

func (l *memoryLock) Create(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.set(r)
	return nil
}

// set has somebody write the Lease.
func (l *memoryLock) set(r resourcelock.LeaderElectionRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record = r
}

func (l *memoryLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Create(ctx, r)
}

func (l *memoryLock) RecordEvent(string) {}
func (l *memoryLock) Identity() string   { return "me" }
func (l *memoryLock) Describe() string   { return "lease" }

const (
	releaseA = "registry.example/release@sha256:aaaa"
	releaseB = "registry.example/release@sha256:bbbb"
)

// standing is a candidate of release A in a cluster whose Deployment and ClusterVersion name these, by watches and live.
func standing(template, desired, templateNow, desiredNow string) (*candidate, *memoryLock) {
	deployment := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "x", "name": "operator"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "sidecar", "image": "other"}, map[string]any{"name": "operator", "image": templateNow},
		}}}},
	}}
	cv := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": configv1.GroupVersion.String(), "kind": "ClusterVersion", "metadata": map[string]any{"name": "version"},
		"status": map[string]any{"desired": map[string]any{"image": desiredNow}},
	}}
	kinds := map[schema.GroupVersionResource]string{
		deployments(): "DeploymentList", configv1.GroupVersion.WithResource("clusterversions"): "ClusterVersionList",
	}
	p := &post{
		clock: clock.RealClock{}, dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, deployment, cv),
		namespace: "x", deployment: "operator", clusterVersion: "version", own: releaseA, changed: func() {},
		asked: make(chan struct{}), news: make(chan struct{}),
	}
	p.update(func() { p.deploymentSeen, p.versionSeen, p.template, p.desired = true, true, template, desired })
	lock := &memoryLock{}
	return &candidate{
		Interface: lock, clock: clock.RealClock{}, log: logr.Discard(), fence: newFence(clock.RealClock{}, 12*time.Second), post: p,
		word: &word{leases: k8sfake.NewClientset().CoordinationV1().Leases("x"), name: "version", identity: "me"},
	}, lock
}

// begin has a candidate's process begin a write.
func begin(c *candidate) error {
	_, err := c.fence.begin()
	return err
}

func recordOf(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 12}
}

func TestCandidateLeads(t *testing.T) {
	t.Parallel()
	c, lock := standing(releaseA, releaseA, releaseA, releaseA)
	_, _, err := c.Get(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, begin(c), errFenced)
	require.NoError(t, c.Update(t.Context(), recordOf("me")))
	require.NoError(t, begin(c))
	c.fence.over()
	assert.Equal(t, "me", lock.record.HolderIdentity)

	// What the Deployment says does not matter any more to one that leads: it does until it is stopped.
	c.post.update(func() { c.post.template, c.post.desired = releaseB, releaseB })
	_, _, err = c.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Update(t.Context(), recordOf("me")))
	require.NoError(t, begin(c))
	c.fence.over()

	require.NoError(t, c.Update(t.Context(), recordOf("")))
	require.ErrorIs(t, begin(c), errFenced)
}

// TestCandidateGivesBack has a replica win the Lease that is being replaced, and whose watches have not told it yet.
func TestCandidateGivesBack(t *testing.T) {
	t.Parallel()
	c, lock := standing(releaseA, releaseA, releaseB, releaseB)
	_, _, err := c.Get(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, c.Update(t.Context(), recordOf("me")), errReplaced)
	assert.Empty(t, lock.record.HolderIdentity)
	require.ErrorIs(t, begin(c), errFenced)
}

func TestCandidateStandsAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, lock := standing(releaseB, releaseB, releaseB, releaseB)
		got := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, _, err := c.Get(ctx)
			got <- err
		}()
		// Another leads, and renews.
		for range 10 {
			renewed := recordOf("other")
			renewed.RenewTime.Time = time.Now()
			lock.set(renewed)
			time.Sleep(standInLook)
			synctest.Wait()
			require.Empty(t, got)
		}
		// An update that is taken back makes it this replica's turn at once.
		asked := lock.gets
		c.post.update(func() { c.post.template, c.post.desired = releaseA, releaseA })
		synctest.Wait()
		require.NoError(t, <-got)
		assert.Equal(t, asked+1, lock.gets)
		cancel()
	})
}

// TestCandidateStandsIn has whoever is to replace a replica not start: nobody leads.
func TestCandidateStandsIn(t *testing.T) {
	t.Parallel()
	for _, holder := range []string{"", "dead"} {
		synctest.Test(t, func(t *testing.T) {
			c, lock := standing(releaseB, releaseB, releaseB, releaseB)
			lock.record.HolderIdentity = holder
			began := time.Now()
			_, _, err := c.Get(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 2*standInLook, time.Since(began))
			require.NoError(t, c.Update(t.Context(), recordOf("me")), "it does not give the Lease back for what it knows")
			require.NoError(t, begin(c))
			c.fence.over()
		})
	}
}

// elect runs an elector over a candidate until ctx ends, and tells when it has ended.
func elect(ctx context.Context, t *testing.T, c *candidate) <-chan struct{} {
	t.Helper()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: c, LeaseDuration: DefaultLeaseDuration, RenewDeadline: DefaultRenewDeadline, RetryPeriod: DefaultRetryPeriod,
		ReleaseOnCancel: true,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(ctx)
	}()
	return ended
}

// TestCandidateEnds has processes end at once, whatever they wait for.
func TestCandidateEnds(t *testing.T) {
	t.Parallel()
	for name, template := range map[string]string{"it waits for its turn": releaseB, "it waits for the Lease": releaseA} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, lock := standing(template, releaseB, template, releaseB)
				lock.set(recordOf("other"))
				ctx, cancel := context.WithCancel(t.Context())
				ended := elect(ctx, t, c)
				time.Sleep(DefaultLeaseDuration / 2)
				synctest.Wait()
				stopped := time.Now()
				cancel()
				<-ended
				assert.Zero(t, time.Since(stopped))
				assert.Equal(t, "other", lock.record.HolderIdentity)
			})
		})
	}
}

// TestCandidateLeavesOthersLease has somebody else take the Lease from a leader, which ends before it has noticed.
func TestCandidateLeavesOthersLease(t *testing.T) {
	t.Parallel()
	for _, taker := range []string{"other", "cvo-uninstall"} {
		synctest.Test(t, func(t *testing.T) {
			c, lock := standing(releaseA, releaseA, releaseA, releaseA)
			ctx, cancel := context.WithCancel(t.Context())
			ended := elect(ctx, t, c)
			time.Sleep(DefaultRetryPeriod / 2)
			synctest.Wait()
			require.Equal(t, "me", lock.record.HolderIdentity)
			lock.set(recordOf(taker))
			cancel()
			<-ended
			assert.Equal(t, taker, lock.record.HolderIdentity, "it gave back what another has")
			require.ErrorIs(t, begin(c), errFenced)
		})
	}
}

// TestCandidateLetsTheLeaseRunOut has a leader end that does not know what came of a write: nobody may lead while it may
// still take effect.
func TestCandidateLetsTheLeaseRunOut(t *testing.T) {
	t.Parallel()
	for known, want := range map[bool]string{true: "", false: "me"} {
		synctest.Test(t, func(t *testing.T) {
			c, lock := standing(releaseA, releaseA, releaseA, releaseA)
			ctx, cancel := context.WithCancel(t.Context())
			ended := elect(ctx, t, c)
			time.Sleep(DefaultRetryPeriod / 2)
			synctest.Wait()
			require.NoError(t, begin(c))
			if !known {
				c.fence.unanswered()
			}
			c.fence.over()
			cancel()
			<-ended
			assert.Equal(t, want, lock.record.HolderIdentity, "it is known what came of the write: %t", known)
			require.ErrorIs(t, begin(c), errFenced)
		})
	}

	// The same for one that finds out that it is not its turn when it has won the Lease again.
	c, lock := standing(releaseA, releaseA, releaseB, releaseB)
	c.fence.unanswered()
	require.ErrorIs(t, c.Update(t.Context(), recordOf("me")), errReplaced)
	assert.Equal(t, "me", lock.record.HolderIdentity)
}

// TestCandidateLooksAnew has a leader find out that others have led meanwhile: before it writes again it makes sure that
// it is still its turn.
func TestCandidateLooksAnew(t *testing.T) {
	t.Parallel()
	for _, between := range []string{"other", ""} { // who has given it back, and who has not
		c, lock := standing(releaseA, releaseA, releaseB, releaseB)
		c.leading.Store(true)
		c.fence.renew(time.Now())
		lock.set(recordOf(between))
		_, _, err := c.Get(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, begin(c), errFenced)
		require.ErrorIs(t, c.Update(t.Context(), recordOf("me")), errReplaced)
		assert.Empty(t, lock.record.HolderIdentity)
		require.ErrorIs(t, begin(c), errFenced)
	}
}

// TestCandidateLeaseDeleted has somebody delete the Lease. Whoever leads makes it again; others wait until that one, if it
// has not noticed, writes no more.
func TestCandidateLeaseDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		follower, lock := standing(releaseA, releaseA, releaseA, releaseA)
		lock.set(recordOf("other"))
		_, _, err := follower.Get(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.ErrorIs(t, follower.Create(t.Context(), recordOf("me")), errOthers)
		assert.Equal(t, "other", lock.record.HolderIdentity)
		time.Sleep(follower.fence.lease)
		require.NoError(t, follower.Create(t.Context(), recordOf("me")))
		require.NoError(t, begin(follower))
		follower.fence.over()
		require.NoError(t, follower.Create(t.Context(), recordOf("me")), "it leads, and makes it again at once")

		fresh, _ := standing(releaseA, releaseA, releaseA, releaseA)
		require.NoError(t, fresh.Create(t.Context(), recordOf("me")), "nobody has had it")
	})
}
