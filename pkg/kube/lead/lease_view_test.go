package lead

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

func TestVacantInWaitsForTheRestOfTheLease(t *testing.T) {
	t.Parallel()
	raw := []byte("{}")
	for _, tt := range []struct {
		name string
		seen leaseSeen
		age  time.Duration
		want time.Duration
	}{
		{"no Lease", leaseSeen{synced: true}, 0, 0},
		{"a released Lease", leaseSeen{raw: raw, duration: time.Second}, 0, 0},
		{"a Lease that was just deleted", leaseSeen{holder: "other", duration: 15 * time.Second}, 0, 15 * time.Second},
		{"its own Lease", leaseSeen{raw: raw, holder: "me", duration: 15 * time.Second}, 0, 0},
		{"a Lease that was just renewed", leaseSeen{raw: raw, holder: "other", duration: 15 * time.Second}, 0, 15 * time.Second},
		{"a Lease that was renewed a while ago", leaseSeen{raw: raw, holder: "other", duration: 15 * time.Second}, 14 * time.Second, time.Second},
		{"an expired Lease", leaseSeen{raw: raw, holder: "other", duration: 15 * time.Second}, 15 * time.Second, 0},
		{"a Lease that expired long ago", leaseSeen{raw: raw, holder: "other", duration: 15 * time.Second}, time.Hour, 0},
		{"a Lease that is kept for a pending write", leaseSeen{raw: raw, holder: "other", duration: 4 * time.Second}, time.Second, 3 * time.Second},
	} {
		t.Run("it handles "+tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, tt.seen.vacantIn("me", tt.age))
		})
	}
}

// seenLease returns a Lease as the watch reports it.
func seenLease(holder string) *coordinationv1.Lease {
	record := recordOf(holder)
	record.RenewTime = metav1.Now()
	return &coordinationv1.Lease{Spec: resourcelock.LeaderElectionRecordToLeaseSpec(&record)}
}

// following returns a candidate with a watch of the Lease, whose events the test sends.
func following() (testCandidate, func(holder string)) {
	c := newTestCandidate(contend(), contend())
	c.lease = &leaseView{clock: clock.RealClock{}, changed: make(chan struct{})}
	return c, func(holder string) {
		lease := seenLease(holder)
		c.lock.set(*resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec))
		c.lease.see(lease)
		c.lease.update(func(s *leaseSeen) { s.synced = true })
	}
}

func TestStandbyAcquiresAFreeLease(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		then func(renew func(string))
		want time.Duration
	}{
		{"waits one lease after the last renewal of a killed leader", func(func(string)) {}, 12 * time.Second},
		{"acquires a released Lease immediately", func(renew func(string)) { renew("") }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, renew := following()
				renew("other")
				ctx, cancel := context.WithCancel(t.Context())
				ended := elect(ctx, t, c.Candidate)
				for range 10 {
					time.Sleep(DefaultRetryPeriod)
					renew("other")
					synctest.Wait()
				}
				require.Zero(t, c.lock.reads(), "a standby sends no reads")
				last := time.Now()
				tt.then(renew)
				for !c.leads() {
					time.Sleep(10 * time.Millisecond)
				}
				assert.InDelta(t, tt.want.Seconds(), time.Since(last).Seconds(), 0.05)
				assert.Equal(t, "me", c.lock.holder())
				written := c.lock.read()
				assert.WithinDuration(t, time.Now(), written.AcquireTime.Time, time.Second, "the time of the acquisition and not of the start of the wait")
				assert.WithinDuration(t, time.Now(), written.RenewTime.Time, time.Second)
				cancel()
				<-ended
			})
		})
	}
}

// TestStandbyPollsWithoutAWatch covers a watch that reports nothing, for example because the permission is missing.
func TestStandbyPollsWithoutAWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := following()
		ctx, cancel := context.WithCancel(t.Context())
		ended := elect(ctx, t, c.Candidate)
		time.Sleep(DefaultRetryPeriod + time.Millisecond)
		synctest.Wait()
		assert.True(t, c.leads())
		assert.Equal(t, "me", c.lock.holder())
		cancel()
		<-ended
	})
}

// TestLaggingStandbyDoesNotTakeTheLease covers a watch that has missed a renewal. The API server's response decides.
func TestLaggingStandbyDoesNotTakeTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, renew := following()
		renew("other")
		time.Sleep(13 * time.Second)
		later := recordOf("other")
		later.RenewTime = metav1.Now()
		c.lock.set(later)
		record, _, err := c.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "other", record.HolderIdentity)
	})
}
