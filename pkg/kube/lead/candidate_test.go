package lead

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	k8sfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/pkg/kube/leader"
)

// memoryLock is an in-memory Lease.
type memoryLock struct {
	mu     sync.Mutex
	record resourcelock.LeaderElectionRecord
	gone   bool
	gets   int
}

func (l *memoryLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gets++
	if l.gone {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "version")
	}
	raw, err := json.Marshal(l.record)
	record := l.record
	return &record, raw, err
}

func (l *memoryLock) Create(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.set(r)
	return nil
}

// reads returns the number of reads of the Lease.
func (l *memoryLock) reads() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gets
}

func (l *memoryLock) read() resourcelock.LeaderElectionRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record
}

func (l *memoryLock) holder() string { return l.read().HolderIdentity }

// set writes the Lease as another client.
func (l *memoryLock) set(r resourcelock.LeaderElectionRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record, l.gone = r, false
}

// delete deletes the Lease as another client.
func (l *memoryLock) delete() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
}

func (l *memoryLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Create(ctx, r)
}

func (l *memoryLock) RecordEvent(string) {}
func (l *memoryLock) Identity() string   { return "me" }
func (l *memoryLock) Describe() string   { return "lease" }

// testTurn is a Turn whose decisions the test sets.
type testTurn struct {
	mu      sync.Mutex
	known   Decision
	asked   Decision
	changed chan struct{}
}

// Decisions for a process of release A.
func contend() Decision    { return Decision{Known: true, Contend: true, Own: "A", Deployed: "A"} }
func standAside() Decision { return Decision{Known: true, Own: "A", Deployed: "B"} }

// set changes the decision according to watches, and ask the decision of the API server.
func (d *testTurn) set(known Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = known
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *testTurn) ask(asked Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = asked
}

func (d *testTurn) Look() (Decision, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known, d.changed
}

func (d *testTurn) Ask(context.Context) (Decision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked, nil
}

// testCandidate is a candidate with an in-memory Lease.
type testCandidate struct {
	*Candidate
	lock *memoryLock
	turn *testTurn
}

// newTestCandidate returns a candidate whose watches report known, while the API server has asked.
func newTestCandidate(known, asked Decision) testCandidate {
	return newTestCandidateAt(clock.RealClock{}, DefaultLeaseDuration, known, asked)
}

func newTestCandidateAt(clk clock.PassiveClock, lease time.Duration, known, asked Decision) testCandidate {
	c := testCandidate{lock: &memoryLock{}, turn: &testTurn{known: known, asked: asked, changed: make(chan struct{})}}
	leases := &Lease{lock: &resourcelock.LeaseLock{LockConfig: resourcelock.ResourceLockConfig{Identity: "me"}}, leases: k8sfake.NewClientset().CoordinationV1().Leases("x")}
	leases.watched, leases.lock.LeaseMeta.Name = leases.leases, "version"
	c.Candidate = New(clk, leases, Options{Turn: c.turn, LeaseDuration: lease, RetryPeriod: DefaultRetryPeriod, Log: logr.Discard()})
	c.Interface, c.lease = c.lock, nil
	return c
}

func (c testCandidate) leads() bool { return c.current().phase == leading }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// write sends a write of the candidate's process, which gets a response.
func write(c *Candidate) error {
	return send(c, func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	})
}

// writeWithoutAnswer sends a write of the candidate's process whose connection breaks.
func writeWithoutAnswer(c *Candidate) error {
	return send(c, func(*http.Request) (*http.Response, error) { return nil, errBroken })
}

var errBroken = errors.New("connection reset")

func send(c *Candidate, answer roundTripper) error {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPatch, "https://server/x", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.Fence().Wrap(answer).RoundTrip(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func recordOf(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 12}
}

func TestCandidateWritesWhileItLeads(t *testing.T) {
	t.Parallel()
	c := newTestCandidate(contend(), contend())
	_, _, err := c.Get(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, write(c.Candidate), fence.ErrClosed)
	require.NoError(t, c.Update(t.Context(), recordOf("me")))
	require.NoError(t, write(c.Candidate))
	assert.Equal(t, "me", c.lock.record.HolderIdentity)

	// The Deployment does not affect a leader, which leads until it is stopped.
	c.turn.set(standAside())
	c.turn.ask(standAside())
	_, _, err = c.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Update(t.Context(), recordOf("me")))
	require.NoError(t, write(c.Candidate))

	require.NoError(t, c.Update(t.Context(), recordOf("")))
	require.ErrorIs(t, write(c.Candidate), fence.ErrClosed)
}

// TestReplacedCandidateReleasesTheLease covers a replica that is being replaced but whose watches have not reported this yet. It acquires
// the Lease and then releases it.
func TestReplacedCandidateReleasesTheLease(t *testing.T) {
	t.Parallel()
	c := newTestCandidate(contend(), standAside())
	_, _, err := c.Get(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, c.Update(t.Context(), recordOf("me")), errReplaced)
	assert.Empty(t, c.lock.record.HolderIdentity)
	require.ErrorIs(t, write(c.Candidate), fence.ErrClosed)
}

func TestReplacedCandidateWaitsForItsSuccessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestCandidate(standAside(), standAside())
		got := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, _, err := c.Get(ctx)
			got <- err
		}()
		// Another process leads and renews the Lease.
		for range 10 {
			renewed := recordOf("other")
			renewed.RenewTime.Time = time.Now()
			c.lock.set(renewed)
			time.Sleep(standInLook)
			synctest.Wait()
			require.Empty(t, got)
		}
		// After the update is canceled, it is immediately this replica's turn.
		asked := c.lock.gets
		c.turn.set(contend())
		synctest.Wait()
		require.NoError(t, <-got)
		assert.Equal(t, asked+1, c.lock.gets)
		cancel()
	})
}

// TestCandidateLeadsIfItsSuccessorDoesNotStart covers a replica whose successor does not start, so no process leads.
func TestCandidateLeadsIfItsSuccessorDoesNotStart(t *testing.T) {
	t.Parallel()
	for _, holder := range []string{"", "dead"} {
		synctest.Test(t, func(t *testing.T) {
			c := newTestCandidate(standAside(), standAside())
			c.lock.record.HolderIdentity = holder
			began := time.Now()
			_, _, err := c.Get(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 2*standInLook, time.Since(began))
			require.NoError(t, c.Update(t.Context(), recordOf("me")), "the candidate keeps the Lease if the outcome of a write is unknown")
			require.NoError(t, write(c.Candidate))
		})
	}
}

// elect runs an elector with a candidate until ctx ends. It returns a channel that is closed when the elector has ended.
func elect(ctx context.Context, t *testing.T, c *Candidate) <-chan struct{} {
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

// TestWaitingCandidateEndsImmediately checks that a waiting process ends immediately.
func TestWaitingCandidateEndsImmediately(t *testing.T) {
	t.Parallel()
	for name, decision := range map[string]Decision{"ends while it waits for its turn": standAside(), "ends while it waits for the Lease": contend()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newTestCandidate(decision, decision)
				c.lock.set(recordOf("other"))
				ctx, cancel := context.WithCancel(t.Context())
				ended := elect(ctx, t, c.Candidate)
				time.Sleep(DefaultLeaseDuration / 2)
				synctest.Wait()
				stopped := time.Now()
				cancel()
				<-ended
				assert.Zero(t, time.Since(stopped))
				assert.Equal(t, "other", c.lock.record.HolderIdentity)
			})
		})
	}
}

// TestCandidateDoesNotReleaseAForeignLease ends a leader that has lost the Lease to another process without noticing.
func TestCandidateDoesNotReleaseAForeignLease(t *testing.T) {
	t.Parallel()
	for _, taker := range []string{"other", "cvo-uninstall"} {
		synctest.Test(t, func(t *testing.T) {
			c := newTestCandidate(contend(), contend())
			ctx, cancel := context.WithCancel(t.Context())
			ended := elect(ctx, t, c.Candidate)
			time.Sleep(DefaultRetryPeriod / 2)
			synctest.Wait()
			require.Equal(t, "me", c.lock.record.HolderIdentity)
			c.lock.set(recordOf(taker))
			cancel()
			<-ended
			assert.Equal(t, taker, c.lock.record.HolderIdentity, "the other process keeps the Lease")
			require.ErrorIs(t, write(c.Candidate), fence.ErrClosed)
		})
	}
}

// TestLossOfTheLeaseNamesItsHolder covers the error of an elector that has ended without the Lease.
func TestLossOfTheLeaseNamesItsHolder(t *testing.T) {
	t.Parallel()
	lost := errors.New("leader election lost")
	c := newTestCandidate(contend(), contend())
	require.NoError(t, c.Update(t.Context(), recordOf("me")))
	assert.Equal(t, lost, c.NameHolder(lost), "no other process is known, for example because the API server does not respond")
	c.lock.set(recordOf("cvo-uninstall"))
	_, _, err := c.Get(t.Context())
	require.NoError(t, err)
	err = c.NameHolder(lost)
	require.ErrorIs(t, err, lost)
	require.EqualError(t, err, `leader election lost: another process holds the Lease: "cvo-uninstall"`)
	require.NoError(t, c.NameHolder(nil))

	standby := newTestCandidate(contend(), contend())
	standby.lock.set(recordOf("other"))
	_, _, err = standby.Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, lost, standby.NameHolder(lost), "a standby that fails has not lost the Lease")
}

// TestCandidateKeepsTheLeaseAfterAnUncertainWrite ends a leader that may not know the outcome of a write. It keeps the Lease only while the
// write may still take effect.
func TestCandidateKeepsTheLeaseAfterAnUncertainWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		answered bool
		ago      time.Duration
		holder   string
		duration int
	}{
		{"releases the Lease after the response to every write", true, 0, "", 1},
		{"keeps the Lease after a recent write without a response", false, 0, "me", 9}, // 7.5 s and 1.25 s
		{"keeps the Lease for less time after an earlier write", false, 5 * time.Second, "me", 4},
		{"releases the Lease after the deadline of a write", false, 9 * time.Second, "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newTestCandidate(contend(), contend())
				ctx, cancel := context.WithCancel(t.Context())
				ended := elect(ctx, t, c.Candidate)
				time.Sleep(DefaultRetryPeriod / 2)
				synctest.Wait()
				if tt.answered {
					require.NoError(t, write(c.Candidate))
				} else {
					require.ErrorIs(t, writeWithoutAnswer(c.Candidate), errBroken)
				}
				time.Sleep(tt.ago)
				cancel()
				<-ended
				assert.Equal(t, tt.holder, c.lock.record.HolderIdentity)
				assert.Equal(t, tt.duration, c.lock.record.LeaseDurationSeconds)
				require.ErrorIs(t, write(c.Candidate), fence.ErrClosed)
			})
		})
	}
}

// TestDeposedLeaderNeverLeadsAgain covers a leader that finds out that another process has led in the meantime, for example because its node
// was suspended. It would rely on what it knew before, such as the digest of a tag.
//
//threat:tag-moved-release
//threat:same-force-true
func TestDeposedLeaderNeverLeadsAgain(t *testing.T) {
	t.Parallel()
	for _, between := range []string{"other", ""} { // the other process still has the Lease, or has released it
		c := newTestCandidate(contend(), contend())
		require.NoError(t, c.Update(t.Context(), recordOf("me")))
		c.lock.set(recordOf(between))
		_, _, err := c.Get(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, write(c.Candidate), fence.ErrClosed)
		require.ErrorIs(t, c.Update(t.Context(), recordOf("me")), errDeposed)
		require.Error(t, c.Create(t.Context(), recordOf("me")))
		assert.Equal(t, between, c.lock.record.HolderIdentity)
		require.ErrorIs(t, write(c.Candidate), fence.ErrClosed)
	}
}

// TestDeletedLeaseIsRecreatedByItsLeader deletes the Lease as another client. A leader recreates it immediately. Other replicas wait until
// a leader that has not noticed the deletion has stopped writing.
func TestDeletedLeaseIsRecreatedByItsLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		follower := newTestCandidate(contend(), contend())
		follower.lock.set(recordOf("other"))
		_, _, err := follower.Get(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.ErrorIs(t, follower.Create(t.Context(), recordOf("me")), errHeld)
		assert.Equal(t, "other", follower.lock.record.HolderIdentity)
		time.Sleep(follower.fence.Lease())
		require.NoError(t, follower.Create(t.Context(), recordOf("me")))
		require.NoError(t, write(follower.Candidate))
		require.NoError(t, follower.Create(t.Context(), recordOf("me")), "a leader recreates the Lease immediately")

		fresh := newTestCandidate(contend(), contend())
		require.NoError(t, fresh.Create(t.Context(), recordOf("me")), "no process has held the Lease")
	})
}

// wallClock is a clock whose wall time is set forward. The monotonic time does not change.
type wallClock struct{ forward time.Duration }

func (c *wallClock) Now() time.Time                     { return time.Now().Add(c.forward) }
func (c *wallClock) Since(then time.Time) time.Duration { return time.Since(then) }

// TestSettingTheClockDoesNotEndLeadership sets the wall clock forward, which does not affect another leader.
func TestSettingTheClockDoesNotEndLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clk := &wallClock{}
		follower := newTestCandidateAt(clk, 12*time.Second, contend(), contend())
		follower.lock.set(recordOf("other"))
		_, _, err := follower.Get(t.Context())
		require.NoError(t, err)
		clk.forward = time.Hour
		require.ErrorIs(t, follower.Create(t.Context(), recordOf("me")), errHeld)
		time.Sleep(12 * time.Second)
		require.NoError(t, follower.Create(t.Context(), recordOf("me")))
	})
}

// TestDefaultTimesFitTogether checks that the default times match the rules of package fence.
func TestDefaultTimesFitTogether(t *testing.T) {
	t.Parallel()
	f := fence.New(clock.RealClock{}, DefaultLeaseDuration, func() time.Time { return time.Time{} })
	last := f.LastWrite()
	assert.Equal(t, 10*time.Second, last)
	require.NoError(t, CheckRetryPeriod(DefaultLeaseDuration, DefaultRetryPeriod))
	require.EqualError(t, CheckRetryPeriod(8*time.Second, 3*time.Second),
		"a retry period of 3s is too long for a lease of 8s, which may expire between two renewals: use at most 2s")
	assert.Less(t, DefaultRetryPeriod+DefaultRenewDeadline/2, last, "a renewal without a response is repeated before the fence closes")
	assert.Less(t, DefaultRenewDeadline+DefaultRetryPeriod, DefaultLeaseDuration, "a leader that cannot renew gives up first")
}

// TestWithdrawnCandidateNeverClaims requests the Lease, like the elector, after the process has decided to end.
func TestWithdrawnCandidateNeverClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestCandidate(contend(), contend())
		require.True(t, c.Withdraw())
		ctx, cancel := context.WithCancel(t.Context())
		ended := elect(ctx, t, c.Candidate)
		time.Sleep(time.Minute)
		assert.Empty(t, c.lock.holder())
		cancel()
		<-ended
		assert.Empty(t, c.lock.holder())

		c = newTestCandidate(contend(), contend())
		_, _, err := c.Get(t.Context())
		require.NoError(t, err)
		assert.False(t, c.Withdraw(), "the process may hold the Lease by now")
	})
}

// TestUnansweredClaimIsReleased ends a process while its claim has no response, or after the claim's connection has broken.
func TestUnansweredClaimIsReleased(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// exists is true if the process claims an existing Lease, and otherwise it creates one.
		exists, broken bool
		// taker takes the Lease before the process ends.
		taker, want string
	}{
		{name: "creates the Lease"},
		{name: "claims the Lease", exists: true},
		{name: "ends between two claims", exists: true, broken: true},
		{name: "keeps the Lease of another process", exists: true, taker: "other", want: "other"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			t.Parallel()
			name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
			leases := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test")).CoordinationV1().Leases("default")
			if tt.exists {
				_, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			swallowed := make(chan struct{})
			swallow := sync.OnceFunc(func() { close(swallowed) })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cfg := controlPlane.For(t).Config("operator-test")
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					resp, err := next.RoundTrip(r)
					if err != nil || r.Method == http.MethodGet || ctx.Err() != nil {
						return resp, err
					}
					_ = resp.Body.Close()
					swallow()
					if !tt.broken {
						<-ctx.Done()
					}
					return nil, errBroken
				})
			})
			lease, err := NewLease(cfg, "default", name, leader.Identity{Host: "me"}, time.Minute)
			require.NoError(t, err)
			c := New(clock.RealClock{}, lease, Options{LeaseDuration: ackLease, RetryPeriod: DefaultRetryPeriod})
			c.lease = nil
			ended := elect(ctx, t, c)
			<-swallowed
			held, err := leases.Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, "me", *held.Spec.HolderIdentity, "the server has accepted the claim")
			if tt.taker != "" {
				held.Spec.HolderIdentity = &tt.taker
				_, err = leases.Update(t.Context(), held, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			cancel()
			<-ended
			c.Resign(t.Context())
			held, err = leases.Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, tt.want, ptr.Deref(held.Spec.HolderIdentity, ""))
		})
	}
}
