package lead

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// leaseView is the Lease as reported by a watch. With it standbys do not need to poll, and a leader notices a loss immediately.
type leaseView struct {
	clock clock.PassiveClock
	watch *watch.Single[*coordinationv1.Lease]

	mu   sync.Mutex
	seen leaseSeen
	// changed is closed and replaced at each change of seen.
	changed chan struct{}
}

// leaseSeen is one state of the Lease. The zero value is the state before the first report.
type leaseSeen struct {
	synced bool
	// raw is the Lease's record; nil if there is no Lease.
	raw []byte
	// holder is empty if no process holds the Lease. A deleted Lease keeps its holder and duration, because the holder may not have noticed
	// the deletion.
	holder   string
	duration time.Duration
	// at is the time when the state arrived here. The holder renewed the Lease before that.
	at time.Time
}

func newLeaseView(clk clock.PassiveClock, leases coordinationv1client.LeaseInterface, name string) *leaseView {
	v := &leaseView{clock: clk, changed: make(chan struct{})}
	v.watch = watch.NewSingle(leases, &coordinationv1.Lease{}, name, watch.OnState(v.see))
	return v
}

// run watches the Lease until ctx ends.
func (v *leaseView) run(ctx context.Context) {
	watch.Run(ctx, func() { v.update(func(s *leaseSeen) { s.synced = true }) }, v.watch)
}

// see records a state of the Lease; nil means that it does not exist.
func (v *leaseView) see(lease *coordinationv1.Lease) {
	v.update(func(s *leaseSeen) {
		s.raw, s.at = nil, v.clock.Now()
		if lease == nil {
			return
		}
		s.raw, _ = json.Marshal(*resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)) // like LeaseLock.Get
		s.holder = ptr.Deref(lease.Spec.HolderIdentity, "")
		s.duration = time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	})
}

func (v *leaseView) update(change func(*leaseSeen)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(&v.seen)
	close(v.changed)
	v.changed = make(chan struct{})
}

// look returns the latest state, and a channel that is closed when it changes.
func (v *leaseView) look() (leaseSeen, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen, v.changed
}

// vacantIn returns the time after which a process may claim the Lease if it is not renewed again; zero means immediately. age is the time
// since the state arrived. The time is zero if the Lease has no holder, or the process itself is the holder. Otherwise it is the holder's
// lease, counted from the arrival of the latest renewal or of the deletion.
func (s leaseSeen) vacantIn(self string, age time.Duration) time.Duration {
	if s.holder == "" || s.holder == self {
		return 0
	}
	return max(0, s.duration-age)
}

// awaitVacancy returns once a process may claim the Lease, with the record that it may replace. It also returns if the watch reports
// nothing within patience, for example because the permission is missing. Then the caller polls.
func (v *leaseView) awaitVacancy(ctx context.Context, clk clock.PassiveClock, self string, patience time.Duration) ([]byte, error) {
	for {
		seen, changed := v.look()
		wait := patience
		if seen.synced {
			// Only the monotonic clock counts, so setting the wall clock ends no wait.
			if wait = seen.vacantIn(self, clk.Since(seen.at)); wait == 0 {
				return seen.raw, nil
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-changed:
			timer.Stop()
		case <-timer.C:
			if !seen.synced {
				return nil, nil // the caller polls
			}
		}
	}
}
