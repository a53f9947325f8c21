// Package lead elects the one process that may write. The leader is the holder of a Lease, an object in the API server that the holder
// renews every few seconds. client-go's elector decides when to request and when to renew the Lease. A Candidate sends these requests,
// under two additional conditions:
//   - It requests the Lease only when it is this process's turn. In an update, processes of two releases compete for the Lease, and a
//     Turn decides which of them should lead. A process whose Deployment is being replaced stands aside.
//   - It opens the fence of package fence, which lets writes pass, only while this process certainly leads.
//
// Election and fence are one state machine, because the fence opens and closes with the leadership:
//
//	from                          event                        to
//	idle                          begin, claim                 standby
//	idle                          withdraw                     withdrawn
//	standby                       standIn                      standingIn
//	standingIn                    wait                         standby
//	standby, standingIn           renew                        leading
//	leading                       see another holder, or none  deposed
//	all but withdrawn             leave                        leaving
//
// An idle process has not taken part in the election, and a withdrawn one never will. A standby waits for its turn and for the Lease. A
// process that is standing in requests the Lease although it is not its turn, because no process leads. A leader writes. A deposed process
// has lost the Lease. It never leads again: another process may have accepted a release in the meantime, which this one would not know. It
// ends once no uninstall waits for its acknowledgement. A leaving process releases the Lease. The fence is open only while leading, and only
// for a part of the lease after the last renewal was sent. Function next contains every transition.
//
// Three more facts belong to the state, because they decide whether a transition may happen. The term distinguishes renewals from before
// and after a loss of the Lease: only the latter open the fence. The holder, and the time when another process held the Lease, prevent this
// process from recreating a deleted Lease too early. The claim records that this process may hold the Lease although no response said so. It
// then releases the Lease when it ends. The claim also records that an uninstall may have taken the Lease from this process. The process
// acknowledges this once none of its writes is pending.
//
// Package leader has the identity in the Lease and finds the leader. Package process ends a process within a time limit.
package lead

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/kube/fence"
)

// Default times of leader election; package fence explains the times within a lease. Standbys watch the Lease. They acquire it within 15 s
// after the last renewal of a leader that was killed, and immediately from a leader that ended. The renewal, every 3 s, is the only write
// of an idle process. A leader that cannot renew gives up before another process may lead.
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 3 * time.Second
)

// CheckRetryPeriod returns an error if the lease may expire because a single renewal gets no response.
func CheckRetryPeriod(lease, retry time.Duration) error {
	if limit := fence.MaxRetryPeriod(lease); retry > limit {
		return fmt.Errorf("a retry period of %s is too long for a lease of %s, which may expire between two renewals: use at most %s", retry, lease, limit)
	}
	return nil
}

// Turn decides whether it is a process's turn to lead. It does not affect a leader, which leads until it is stopped.
type Turn interface {
	// Look returns the decision according to watches, and a channel that is closed when it changes.
	Look() (Decision, <-chan struct{})
	// Ask reads the decision from the API server. The result is always known.
	Ask(ctx context.Context) (Decision, error)
}

// Decision is the answer of a Turn.
type Decision struct {
	// Known is false until all watches have reported the current state.
	Known bool
	// Contend is true if this process should take part in the election, and lead after acquiring the Lease. Otherwise it should let another
	// replica lead, and stand in if none does.
	Contend bool
	// Own identifies this process, and Deployed the one in the current Deployment. Both are for messages.
	Own, Deployed string
}

// Options configures a Candidate.
type Options struct {
	// Turn decides when this process may lead; nil means always.
	Turn Turn
	// LeaseDuration and RetryPeriod are the elector's. They have no default.
	LeaseDuration, RetryPeriod time.Duration
	// Log receives messages about the election. The zero value drops them.
	Log logr.Logger
}

// New returns a candidate for a Lease. Every client with which this process writes as the leader needs its Fence; the clients for the Lease
// have none.
func New(clk clock.PassiveClock, lease *Lease, options Options) *Candidate {
	c := &Candidate{
		Interface: lease.lock, clock: clk, log: options.Log, turn: options.Turn, patience: options.RetryPeriod, state: state{phase: idle},
		ack:   acknowledgement{leases: lease.leases, name: lease.name(), identity: lease.lock.Identity()},
		lease: newLeaseView(clk, lease.watched, lease.name()),
	}
	c.fence = fence.New(clk, options.LeaseDuration, c.lastRenewal)
	return c
}
