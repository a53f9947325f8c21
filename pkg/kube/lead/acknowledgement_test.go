package lead

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/test/env"
)

// ackLease is long enough for tests of delayed writes on a slow machine.
const ackLease = 2 * DefaultLeaseDuration

// controlPlane is the control plane of all tests in this package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// testLeader is a candidate that leads, with a Lease in the control plane.
type testLeader struct {
	*Candidate
	clock *testingclock.FakePassiveClock
	// client writes through the fence, and admin without it.
	client, admin kubernetes.Interface
}

// newLeader returns a candidate that leads. Its writes pass through between on their way to the server.
func newLeader(t *testing.T, between func(http.RoundTripper) http.RoundTripper) *testLeader {
	t.Helper()
	const identity = "me"
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	admin := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test"))
	lease, err := NewLease(controlPlane.For(t).Config("test"), "default", name, leader.Identity{Host: identity}, DefaultRenewDeadline)
	require.NoError(t, err)
	clk := testingclock.NewFakePassiveClock(time.Now())
	c := New(clk, lease, Options{LeaseDuration: ackLease, RetryPeriod: DefaultRetryPeriod})
	cfg := controlPlane.For(t).Config("operator-test")
	if between != nil {
		cfg.Wrap(between)
	}
	cfg.Wrap(c.Fence().Wrap)
	l := &testLeader{Candidate: c, clock: clk, admin: admin, client: kubernetes.NewForConfigOrDie(cfg)}
	l.Candidate.lease = nil // the tests read the Lease themselves
	require.NoError(t, l.Create(t.Context(), recordOf(identity)))
	return l
}

// lease reads the current Lease.
func (l *testLeader) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := l.ack.leases.Get(t.Context(), l.ack.name, metav1.GetOptions{})
	require.NoError(t, err)
	return lease
}

// taken takes the Lease from the given holder, like an uninstall.
func (l *testLeader) taken(t *testing.T, from string) {
	t.Helper()
	require.Eventually(t, func() bool { // the leader may renew the Lease in between
		lease, err := l.ack.leases.Get(t.Context(), l.ack.name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		lease.Spec.HolderIdentity = new(api.UninstallHolder)
		lease.Annotations = map[string]string{
			"example.com/else":        "stays",
			api.FencedFromAnnotation:  from,
			api.FencedUntilAnnotation: time.Now().Add(ackLease).UTC().Format(time.RFC3339Nano),
		}
		_, err = l.ack.leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

// looks reads the Lease for the leader, like an elector, and reports whether the Lease has its acknowledgement.
func (l *testLeader) looks(t *testing.T) bool {
	t.Helper()
	_, _, err := l.Get(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, write(l.Candidate), fence.ErrClosed, "the fence closes with or without the acknowledgement")
	return said(t, l.lease(t))
}

// said reports whether a Lease that an uninstall holds has the acknowledgement.
func said(t *testing.T, lease *coordinationv1.Lease) bool {
	t.Helper()
	assert.Equal(t, api.UninstallHolder, *lease.Spec.HolderIdentity)
	assert.Equal(t, "stays", lease.Annotations["example.com/else"])
	_, from := lease.Annotations[api.FencedFromAnnotation]
	_, until := lease.Annotations[api.FencedUntilAnnotation]
	assert.Equal(t, from, until)
	return !from
}

// writes creates an object as the leader.
func (l *testLeader) writes(ctx context.Context) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "ack-"}}
	_, err := l.client.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{})
	return err
}

func TestAckFollowsTheLastWrite(t *testing.T) {
	t.Parallel()
	l := newLeader(t, nil)
	require.NoError(t, l.writes(t.Context()))
	l.taken(t, "me")
	assert.True(t, l.looks(t))
	require.ErrorIs(t, l.writes(t.Context()), fence.ErrClosed)
}

// TestAckIsSentOnlyByTheRequestedProcess covers an uninstall that waits for another process, which led before.
func TestAckIsSentOnlyByTheRequestedProcess(t *testing.T) {
	t.Parallel()
	l := newLeader(t, nil)
	l.taken(t, "other")
	assert.False(t, l.looks(t))
}

// TestAckWaitsForTheResponseToAWrite takes the Lease like an uninstall while the server's response to a write is delayed.
func TestAckWaitsForTheResponseToAWrite(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}), make(chan struct{})
	l := newLeader(t, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			close(arrived)
			<-answer
			return resp, err
		})
	})
	ended := make(chan error, 1)
	go func() { ended <- l.writes(t.Context()) }()
	<-arrived
	l.taken(t, "me")
	assert.False(t, l.looks(t), "the response is pending")
	close(answer)
	require.NoError(t, <-ended)
	assert.True(t, l.looks(t))
}

// TestAckIsDelayedByAWriteWithoutResponse covers writes that end without a response that shows the outcome.
func TestAckIsDelayedByAWriteWithoutResponse(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(next http.RoundTripper, r *http.Request) (*http.Response, error){
		"a broken connection": func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			if resp, err := next.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
			return nil, errors.New("connection reset")
		},
		"a timeout": func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil {
				resp.StatusCode = http.StatusGatewayTimeout
			}
			return resp, err
		},
	} {
		t.Run("it waits after "+name, func(t *testing.T) {
			t.Parallel()
			l := newLeader(t, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) { return between(next, r) })
			})
			require.Error(t, l.writes(t.Context()))
			l.taken(t, "me")
			// The process does not wait for its turn while an uninstall waits for its acknowledgement.
			l.turn = newTestCandidate(standAside(), standAside()).turn
			assert.False(t, l.looks(t))
			limit, _ := l.fence.Effective()
			require.Positive(t, limit)
			l.clock.SetTime(l.clock.Now().Add(limit - time.Millisecond))
			assert.False(t, l.looks(t), "the write may still take effect")
			l.clock.SetTime(l.clock.Now().Add(time.Millisecond))
			assert.True(t, l.looks(t))
			assert.False(t, l.current().owesAck())
		})
	}
}

// TestAckKeepsAConcurrentRenewal renews the Lease, like the uninstall, between the operator's read and its acknowledgement.
func TestAckKeepsAConcurrentRenewal(t *testing.T) {
	t.Parallel()
	l := newLeader(t, nil)
	l.taken(t, "me")
	renewed := metav1.NewMicroTime(time.Now().Add(time.Second).Truncate(time.Microsecond))
	renew := sync.OnceFunc(func() {
		leases := l.admin.CoordinationV1().Leases("default")
		lease, err := leases.Get(t.Context(), l.ack.name, metav1.GetOptions{})
		require.NoError(t, err)
		lease.Spec.RenewTime = &renewed
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(t, err)
	})
	cfg := controlPlane.For(t).Config("operator-test")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut {
				renew()
			}
			return next.RoundTrip(r)
		})
	})
	l.ack.leases = kubernetes.NewForConfigOrDie(cfg).CoordinationV1().Leases("default")
	assert.True(t, l.looks(t))
	assert.True(t, renewed.Equal(l.lease(t).Spec.RenewTime), "the uninstall's renewal is kept")
}

// TestElectorAcknowledgesTheUninstall covers an elector that notices the uninstall, and one that ends before it notices.
func TestElectorAcknowledgesTheUninstall(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		l := newLeader(t, nil)
		require.NoError(t, l.ack.leases.Delete(t.Context(), l.ack.name, metav1.DeleteOptions{})) // the elector recreates it
		ctx, cancel := context.WithCancel(t.Context())
		ended := elect(ctx, t, l.Candidate)
		require.Eventually(t, func() bool {
			lease, err := l.ack.leases.Get(t.Context(), l.ack.name, metav1.GetOptions{})
			return err == nil && *lease.Spec.HolderIdentity == "me"
		}, time.Minute, 10*time.Millisecond)
		l.taken(t, "me")
		if ends {
			cancel()
			<-ended
			assert.True(t, said(t, l.lease(t)), "the acknowledgement precedes the end of the process")
		} else {
			assert.Eventually(t, func() bool {
				lease, err := l.ack.leases.Get(t.Context(), l.ack.name, metav1.GetOptions{})
				return err == nil && said(t, lease)
			}, time.Minute, 10*time.Millisecond)
			cancel()
			<-ended
		}
		require.NoError(t, l.ack.leases.Delete(t.Context(), l.ack.name, metav1.DeleteOptions{}))
	}
}

// TestWatchTriggersTheAck takes the Lease, like an uninstall, between two renewals. The watch reports it. The leader then stops writing,
// and confirms that without another read of the Lease.
func TestWatchTriggersTheAck(t *testing.T) {
	t.Parallel()
	l := newLeader(t, nil)
	l.Candidate.lease = newLeaseView(clock.RealClock{}, l.ack.leases, l.ack.name)
	ended := make(chan error, 1)
	go func() { ended <- l.Follow(t.Context()) }()
	require.NoError(t, l.writes(t.Context()))
	l.taken(t, "me")
	require.Eventually(t, func() bool {
		lease, err := l.ack.leases.Get(t.Context(), l.ack.name, metav1.GetOptions{})
		return err == nil && said(t, lease)
	}, time.Minute, 10*time.Millisecond)
	require.ErrorIs(t, l.writes(t.Context()), fence.ErrClosed)
	require.ErrorIs(t, <-ended, errDeposed, "the process ends")
}

// TestDeposedLeaderEnds gives the Lease to another operator, or to none.
func TestDeposedLeaderEnds(t *testing.T) {
	t.Parallel()
	for _, taker := range []string{"other", ""} {
		l := newLeader(t, nil)
		l.Candidate.lease = newLeaseView(clock.RealClock{}, l.ack.leases, l.ack.name)
		require.NoError(t, l.Interface.Update(t.Context(), recordOf(taker)))
		require.ErrorIs(t, l.Follow(t.Context()), errDeposed, taker)
		require.NoError(t, l.ack.leases.Delete(t.Context(), l.ack.name, metav1.DeleteOptions{}))
	}
}

// TestLaggingWatchKeepsTheClaim has a watch that reports an uninstall, which has released the Lease since. The process has claimed the Lease
// in the meantime, and must still know that when the response arrives.
func TestLaggingWatchKeepsTheClaim(t *testing.T) {
	t.Parallel()
	l := newLeader(t, nil)
	l.state = state{phase: standby, claimed: true}
	l.Candidate.lease = newLeaseView(clock.RealClock{}, l.ack.leases, "missing") // so this watch never reports the present holder
	stale := l.lease(t)
	stale.Spec.HolderIdentity = new(api.UninstallHolder)
	l.Candidate.lease.update(func(s *leaseSeen) { s.synced = true })
	l.Candidate.lease.see(stale)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Follow(ctx) }()
	require.Eventually(t, func() bool { return l.current().holder == "me" }, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	assert.True(t, l.current().claimed)
	assert.Zero(t, l.current().term)
}

// TestLateRenewalDoesNotOpenTheFence delays the response to a renewal. In the meantime an uninstall takes the Lease and receives the
// acknowledgement that this process has stopped writing.
func TestLateRenewalDoesNotOpenTheFence(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{true, false} {
		l := newLeader(t, nil)
		if !leads { // it claims the Lease
			l.state = state{phase: standby, holder: "me"}
		}
		_, _, err := l.Interface.Get(t.Context())
		require.NoError(t, err)
		err = l.write(t.Context(), recordOf("me"), func(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
			require.NoError(t, l.Interface.Update(ctx, r))
			l.taken(t, "me")
			l.checkHolder(ctx)
			require.True(t, l.acknowledge(ctx))
			return nil
		})
		require.ErrorIs(t, err, errHeld, "leading before: %t", leads)
		require.ErrorIs(t, l.writes(t.Context()), fence.ErrClosed)
		assert.True(t, said(t, l.lease(t)))
		require.NoError(t, l.ack.leases.Delete(t.Context(), l.ack.name, metav1.DeleteOptions{}))
	}
}

// TestRejectionsCountAsResponses sends writes that the API server rejects with status 500 before storage, like some objects of real
// releases. Such a write cannot take effect later, so the rejection counts as a response.
func TestRejectionsCountAsResponses(t *testing.T) {
	t.Parallel()
	l := newLeader(t, nil)
	_, err := l.client.RbacV1().ClusterRoleBindings().Patch(t.Context(), "ack-rejected", types.ApplyPatchType, []byte(`{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "ack-rejected"},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, "userNames": ["x"]
	}`), metav1.PatchOptions{FieldManager: "ack"})
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	require.EqualValues(t, http.StatusInternalServerError, status.Status().Code)
	require.Contains(t, err.Error(), ".userNames: field not declared in schema", "the whole response arrives")
	left, _ := l.fence.Effective()
	assert.Zero(t, left)

	_, err = l.client.CoreV1().Secrets("default").Patch(t.Context(), "ack-rejected", types.ApplyPatchType,
		[]byte(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ack-rejected"}, "data": {"a": "%"}}`), metav1.PatchOptions{FieldManager: "ack"})
	require.ErrorAs(t, err, &status)
	require.EqualValues(t, http.StatusInternalServerError, status.Status().Code, "%v", err)
	left, _ = l.fence.Effective()
	assert.Zero(t, left, "%v", err)
}
