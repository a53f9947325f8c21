package operator

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
)

// wordLease is long enough for a write to be held back on a slow machine.
const wordLease = 2 * DefaultLeaseDuration

// leader is a candidate that leads, by a Lease of the control plane.
type leader struct {
	*candidate
	clock *testingclock.FakePassiveClock
	// client writes through the fence, admin past it.
	client, admin kubernetes.Interface
}

// newLeader has a candidate lead. What it writes goes through between on its way to the server.
func newLeader(t *testing.T, between func(http.RoundTripper) http.RoundTripper) *leader {
	t.Helper()
	const identity = "me"
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	admin := kubernetes.NewForConfigOrDie(controlPlane.Config("test"))
	lock := &resourcelock.LeaseLock{Client: admin.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: identity}}
	lock.LeaseMeta.Namespace, lock.LeaseMeta.Name = "default", name
	clk := testingclock.NewFakePassiveClock(time.Now())
	f := newFence(clk, wordLease)
	cfg := controlPlane.Config("operator-test")
	if between != nil {
		cfg.Wrap(between)
	}
	cfg.Wrap(f.wrap)
	l := &leader{clock: clk, admin: admin, client: kubernetes.NewForConfigOrDie(cfg)}
	l.candidate = &candidate{
		Interface: lock, clock: clk, log: logr.Discard(), fence: f,
		word: &word{leases: admin.CoordinationV1().Leases("default"), name: name, identity: identity},
	}
	require.NoError(t, l.Create(t.Context(), recordOf(identity)))
	return l
}

// lease is the Lease as it is now.
func (l *leader) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := l.word.leases.Get(t.Context(), l.word.name, metav1.GetOptions{})
	require.NoError(t, err)
	return lease
}

// taken has an uninstall take the Lease that somebody had.
func (l *leader) taken(t *testing.T, from string) {
	t.Helper()
	require.Eventually(t, func() bool { // whoever leads renews it
		lease, err := l.word.leases.Get(t.Context(), l.word.name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		lease.Spec.HolderIdentity = new(api.UninstallHolder)
		lease.Annotations = map[string]string{
			"example.com/else":        "stays",
			api.FencedFromAnnotation:  from,
			api.FencedUntilAnnotation: time.Now().Add(wordLease).UTC().Format(time.RFC3339Nano),
		}
		_, err = l.word.leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

// looks has the leader look at the Lease as an elector does, and reports whether its word is on it.
func (l *leader) looks(t *testing.T) bool {
	t.Helper()
	_, _, err := l.Get(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, begin(l.candidate), errFenced, "whether or not it says so")
	return said(t, l.lease(t))
}

// said reports whether the word is on a Lease that an uninstall has.
func said(t *testing.T, lease *coordinationv1.Lease) bool {
	t.Helper()
	assert.Equal(t, api.UninstallHolder, *lease.Spec.HolderIdentity)
	assert.Equal(t, "stays", lease.Annotations["example.com/else"])
	_, from := lease.Annotations[api.FencedFromAnnotation]
	_, until := lease.Annotations[api.FencedUntilAnnotation]
	assert.Equal(t, from, until)
	return !from
}

// writes has the leader write something, of which the server keeps nothing that others see.
func (l *leader) writes(ctx context.Context) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "word-"}}
	_, err := l.client.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{})
	return err
}

func TestWord(t *testing.T) {
	t.Parallel()
	l := newLeader(t, nil)
	require.NoError(t, l.writes(t.Context()))
	l.taken(t, "me")
	assert.True(t, l.looks(t))
	require.ErrorIs(t, l.writes(t.Context()), errFenced)

	// The uninstall gives up, the operator leads again, and another one takes the Lease.
	_, _, err := l.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Update(t.Context(), recordOf("me")))
	require.NoError(t, l.writes(t.Context()))
	l.taken(t, "me")
	assert.True(t, l.looks(t), "again")
}

// TestWordOfOthers has an uninstall wait for somebody else who led before.
func TestWordOfOthers(t *testing.T) {
	t.Parallel()
	l := newLeader(t, nil)
	l.taken(t, "other")
	assert.False(t, l.looks(t))
}

// TestWordAwaitsAnswer has the Lease taken while the server's answer to a write is held back.
func TestWordAwaitsAnswer(t *testing.T) {
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
	assert.False(t, l.looks(t), "the answer is not there")
	close(answer)
	require.NoError(t, <-ended)
	assert.True(t, l.looks(t))
}

// TestWordAfterNoAnswer has a write end without an answer that says what has become of it.
func TestWordAfterNoAnswer(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(next http.RoundTripper, r *http.Request) (*http.Response, error){
		"the connection breaks": func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			if resp, err := next.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
			return nil, errors.New("connection reset")
		},
		"its time is up": func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil {
				resp.StatusCode = http.StatusGatewayTimeout
			}
			return resp, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLeader(t, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) { return between(next, r) })
			})
			require.Error(t, l.writes(t.Context()))
			l.taken(t, "me")
			// It has no turn to wait for while somebody waits for its word.
			c, _ := standing(releaseB, releaseB, releaseB, releaseB)
			l.post = c.post
			assert.False(t, l.looks(t))
			l.clock.SetTime(l.clock.Now().Add(wordLease - time.Millisecond))
			assert.False(t, l.looks(t), "others would not lead yet either")
			l.clock.SetTime(l.clock.Now().Add(time.Millisecond))
			assert.True(t, l.looks(t))
			assert.False(t, l.owesWord())
		})
	}
}

// TestWordMeetsRenewal has the uninstall renew the Lease between the operator's look and its word.
func TestWordMeetsRenewal(t *testing.T) {
	t.Parallel()
	l := newLeader(t, nil)
	l.taken(t, "me")
	renewed := metav1.NewMicroTime(time.Now().Add(time.Second).Truncate(time.Microsecond))
	renew := sync.OnceFunc(func() {
		leases := l.admin.CoordinationV1().Leases("default")
		lease, err := leases.Get(t.Context(), l.word.name, metav1.GetOptions{})
		require.NoError(t, err)
		lease.Spec.RenewTime = &renewed
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(t, err)
	})
	cfg := controlPlane.Config("operator-test")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut {
				renew()
			}
			return next.RoundTrip(r)
		})
	})
	l.word.leases = kubernetes.NewForConfigOrDie(cfg).CoordinationV1().Leases("default")
	assert.True(t, l.looks(t))
	assert.True(t, renewed.Equal(l.lease(t).Spec.RenewTime), "the uninstall's renewal stays")
}

// TestWordOfElector has an elector find out, and one that is asked to end before it has.
func TestWordOfElector(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		l := newLeader(t, nil)
		require.NoError(t, l.word.leases.Delete(t.Context(), l.word.name, metav1.DeleteOptions{})) // which the elector makes anew
		ctx, cancel := context.WithCancel(t.Context())
		ended := elect(ctx, t, l.candidate)
		require.Eventually(t, func() bool {
			lease, err := l.word.leases.Get(t.Context(), l.word.name, metav1.GetOptions{})
			return err == nil && *lease.Spec.HolderIdentity == "me"
		}, time.Minute, 10*time.Millisecond)
		l.taken(t, "me")
		if ends {
			cancel()
			<-ended
			assert.True(t, said(t, l.lease(t)), "before the process ends")
		} else {
			assert.Eventually(t, func() bool {
				lease, err := l.word.leases.Get(t.Context(), l.word.name, metav1.GetOptions{})
				return err == nil && said(t, lease)
			}, time.Minute, 10*time.Millisecond)
			cancel()
			<-ended
		}
		require.NoError(t, l.word.leases.Delete(t.Context(), l.word.name, metav1.DeleteOptions{}))
	}
}
