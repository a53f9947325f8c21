package lead

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/fence"
)

// Candidate is this process's part in the election. It implements resourcelock.Interface. It claims the Lease only if it is this process's
// turn to lead and the watch shows no other leader. If it finds out afterwards that it is not its turn, it releases the Lease. The elector
// calls Get, Create and Update from one goroutine; Follow follows the watch in another.
type Candidate struct {
	resourcelock.Interface
	clock clock.PassiveClock
	log   logr.Logger
	fence *fence.Fence
	// turn is nil if it is always this process's turn.
	turn Turn
	// ack confirms to an uninstall that has taken the Lease that this process has stopped writing.
	ack acknowledgement
	// lease is the Lease as reported by the watch; nil to poll the Lease instead.
	lease *leaseView
	// patience is the maximum wait for the first report of the watch before the Lease is polled.
	patience time.Duration

	mu    sync.Mutex
	state state
}

// errHeld is the reason for not writing a Lease that another process holds.
var errHeld = errors.New("another process holds the Lease")

// errDeposed ends a process that has lost the Lease.
var errDeposed = errors.New("leader election lost: this process must restart before it leads again")

// errReplaced is the reason for releasing a Lease right after acquiring it.
var errReplaced = errors.New("this replica is being replaced")

// Fence returns the fence for the writes of this process.
func (c *Candidate) Fence() *fence.Fence { return c.fence }

// handle applies an event. It returns the new state and the effect, which the caller has to carry out.
func (c *Candidate) handle(e event) (state, effect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var todo effect
	c.state, todo = next(c.state, e)
	return c.state, todo
}

func (c *Candidate) current() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// lastRenewal returns the time when the last successful renewal was sent; zero while this process does not lead.
func (c *Candidate) lastRenewal() time.Time { return c.current().renewed }

// Withdraw reports whether this process has not taken part in the election yet. If so, it never will.
func (c *Candidate) Withdraw() bool {
	s, _ := c.handle(withdraw{})
	return s.phase == withdrawn
}

// Get implements resourcelock.Interface. Before the elector first holds the Lease, Get returns only once this process may claim it. Get
// then shows the Lease as vacant. Otherwise the elector, which reads the Lease for the first time, would wait for another full lease.
func (c *Candidate) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	s, _ := c.handle(begin{})
	if s.phase == withdrawn {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	var vacant []byte
	if s.waits() {
		if c.turn != nil {
			if err := c.awaitTurn(ctx); err != nil {
				return nil, nil, err
			}
		}
		if c.lease != nil {
			var err error
			if vacant, err = c.lease.awaitVacancy(ctx, c.clock, c.Identity(), c.patience); err != nil {
				return nil, nil, err
			}
		}
	}
	record, raw, err := c.read(ctx)
	if err == nil && vacant != nil && bytes.Equal(raw, vacant) {
		record.HolderIdentity = ""
	}
	return record, raw, err
}

// read returns the Lease and records its holder.
func (c *Candidate) read(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := c.Interface.Get(ctx)
	if err != nil {
		return record, raw, err
	}
	if c.see(record.HolderIdentity) == acknowledge {
		c.acknowledge(ctx)
	}
	return record, raw, nil
}

// see records the holder of the Lease in the API server's latest response.
func (c *Candidate) see(holder string) effect {
	_, todo := c.handle(see{holder: holder, self: holder == c.Identity(), at: c.clock.Now()})
	return todo
}

// Follow runs the watch of the Lease until ctx ends, and then returns nil. It makes a leader that loses the Lease stop writing immediately, and
// sends the acknowledgement to an uninstall that has taken the Lease. After a loss it returns an error, because the process has to end.
func (c *Candidate) Follow(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { c.lease.run(watching) })
	for {
		seen, changed := c.lease.look()
		s := c.current()
		if seen.synced && seen.holder != c.Identity() && (s.phase == leading || s.claimed && seen.holder == api.UninstallHolder) {
			s = c.checkHolder(ctx)
		}
		var retry <-chan time.Time
		switch {
		case s.owesAck() && !c.acknowledge(ctx):
			retry = time.After(ackRetry)
		case s.phase == deposed:
			return errDeposed
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-retry:
		}
	}
}

// ackRetry is the delay before another attempt to send an acknowledgement.
const ackRetry = 250 * time.Millisecond

// checkHolder reads the holder of the Lease from the API server, because the watch may lag behind this process's requests. It returns the
// state after that.
func (c *Candidate) checkHolder(ctx context.Context) state {
	lease, err := c.ack.leases.Get(ctx, c.ack.name, metav1.GetOptions{})
	if err == nil { // otherwise the next renewal will find out
		c.see(ptr.Deref(lease.Spec.HolderIdentity, ""))
	}
	return c.current()
}

// acknowledge confirms to the uninstall that this process has stopped writing. It returns true if nothing remains to be confirmed. After a
// failure it is retried after each event of the watch, after each read by the elector, and before the process ends.
func (c *Candidate) acknowledge(ctx context.Context) (done bool) {
	given, err := c.ack.give(ctx, c.fence)
	if err != nil {
		c.log.Info("cannot confirm to the uninstall yet that this process has stopped writing", "error", err.Error())
		return false
	}
	c.handle(acknowledged{})
	if given {
		c.log.Info("confirmed to the uninstall that this process has stopped writing")
	}
	return true
}

// awaitTurn waits until it is this process's turn. A replica that is being replaced waits for its successor. If the Lease does not change
// between two checks, no process renews it, because the successor does not start. Then this process stands in. It does not apply anything
// after the successor's Deployment, but reports the reason and accepts another request.
func (c *Candidate) awaitTurn(ctx context.Context) error {
	c.handle(wait{})
	logged, before := false, ""
	for {
		d, changed := c.turn.Look()
		if d.Known && d.Contend {
			return nil
		}
		if d.Known && !logged {
			c.log.Info("not contending for the Lease: another release's operator replaces this one", "own", d.Own, "deployment", d.Deployed)
			logged = true
		}
		look := time.NewTimer(standInLook)
		select {
		case <-ctx.Done():
			look.Stop()
			return ctx.Err()
		case <-changed:
			look.Stop()
		case <-look.C:
			if !d.Known {
				continue
			}
			now := c.content(ctx)
			if now != "" && now == before {
				c.log.Info("standing in: this operator is being replaced, but no other one leads", "own", d.Own, "deployment", d.Deployed)
				c.handle(standIn{})
				return nil
			}
			before = now
		}
	}
}

// standInLook is the interval at which a replica that is being replaced checks whether another process leads. A leader renews the Lease
// many times in this interval.
const standInLook = 30 * time.Second

// content returns the content of the Lease, which every renewal changes. It returns "none" if there is no Lease, and "" if it is unknown.
func (c *Candidate) content(ctx context.Context) string {
	if c.lease != nil {
		if seen, _ := c.lease.look(); seen.synced {
			return cmp.Or(string(seen.raw), "none")
		}
	}
	_, raw, err := c.read(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return "none"
	case err != nil:
		return ""
	}
	return string(raw)
}

// Create implements resourcelock.Interface. If another client has deleted the Lease, its holder may not have noticed yet. Until the holder
// has certainly stopped writing, only the holder recreates the Lease. A process that has never seen the Lease cannot know of a holder, and
// creates it at once, as in a new cluster.
func (c *Candidate) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	s := c.current()
	// Only the monotonic clock counts, so setting the wall clock ends no wait.
	if left := c.fence.Lease() - c.clock.Since(s.otherAt); s.phase != leading && !s.otherAt.IsZero() && left > 0 {
		return fmt.Errorf("not recreating the deleted Lease: %w for another %s: %q", errHeld, left.Round(time.Second), s.holder)
	}
	return c.write(ctx, record, c.Interface.Create)
}

// Update implements resourcelock.Interface.
func (c *Candidate) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.write(ctx, record, c.Interface.Update)
}

func (c *Candidate) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	if record.HolderIdentity != c.Identity() {
		return c.leave(ctx, record, send)
	}
	if c.current().phase == deposed {
		return errDeposed
	}
	sent := c.clock.Now()
	s, _ := c.handle(claim{at: sent})
	if s.phase != leading {
		// The elector read its clock before it waited for its turn, possibly long ago.
		record.RenewTime = metav1.NewTime(sent)
	}
	record.AcquireTime = s.acquired
	if err := send(ctx, record); err != nil {
		return err
	}
	err := c.lead(ctx, s.term, sent)
	if err != nil && !errors.Is(err, errHeld) {
		c.giveBack(ctx, record)
	}
	return err
}

// lead opens the fence after a successful renewal that was sent at the given time in the given term.
func (c *Candidate) lead(ctx context.Context, term int, sent time.Time) error {
	if s := c.current(); s.phase != leading {
		if err := c.confirm(ctx, s); err != nil {
			return err
		}
	}
	if s, todo := c.handle(renew{self: c.Identity(), term: term, sent: sent}); todo == discard {
		return fmt.Errorf("losing the Lease during its renewal: %w: %q", errHeld, s.holder)
	}
	return nil
}

// leave ends the leadership and releases the Lease, unless another process holds it by now.
func (c *Candidate) leave(
	ctx context.Context, record resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	if _, todo := c.handle(leave{}); todo == drain {
		c.fence.Drain(ctx)
	}
	if holder := c.current().holder; holder != c.Identity() {
		// The elector relies on its last read, so it would release a Lease that it has lost without noticing.
		return fmt.Errorf("not releasing the Lease: %w: %q", errHeld, holder)
	}
	return c.release(ctx, record, send)
}

// Resign releases the Lease if this process holds it although no response said so: its last claim is unanswered. It is for a process whose
// elector has ended. The elector itself releases only a Lease whose claim has succeeded.
func (c *Candidate) Resign(ctx context.Context) {
	if s := c.current(); !s.claimed || s.phase == leaving {
		return
	}
	record, _, err := c.read(ctx)
	if apierrors.IsNotFound(err) || err == nil && record.HolderIdentity != c.Identity() {
		return
	}
	if err == nil {
		record.RenewTime = metav1.NewTime(c.clock.Now())
		err = c.leave(ctx, *record, c.Interface.Update)
	}
	if err != nil {
		c.log.Info("cannot release the Lease after an unanswered claim", "error", err.Error())
	}
}

// NameHolder adds the process that has taken the Lease from this one to the error of a manager whose elector has ended. It returns any
// other error, and nil, unchanged.
func (c *Candidate) NameHolder(err error) error {
	s := c.current()
	if err == nil || s.phase != deposed && s.phase != leaving || s.holder == "" || s.holder == c.Identity() {
		return err
	}
	return fmt.Errorf("%w: %w: %q", err, errHeld, s.holder)
}

// release gives up the Lease. No other process may lead while a write may still take effect. In that case this process keeps the Lease
// until the deadline of that write.
func (c *Candidate) release(
	ctx context.Context, record resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	record.HolderIdentity, record.LeaseDurationSeconds = "", 1
	if left, write := c.fence.Effective(); left > 0 {
		record.HolderIdentity, record.LeaseDurationSeconds = c.Identity(), int(math.Ceil(left.Seconds()))
		c.log.Info("keeping the Lease until an unanswered write can no longer take effect", "write", write, "left", left.Round(time.Millisecond).String())
	}
	return send(ctx, record)
}

// confirm checks without caches that it is still this process's turn, because the Deployment may have changed while this process acquired
// the Lease.
func (c *Candidate) confirm(ctx context.Context, s state) error {
	if c.turn == nil || s.phase == standingIn {
		return nil
	}
	d, err := c.turn.Ask(ctx)
	if err != nil {
		return fmt.Errorf("releasing the Lease: checking whether this replica is being replaced: %w", err)
	}
	if !d.Contend {
		return fmt.Errorf("releasing the Lease: %w by a replica of %s", errReplaced, d.Deployed)
	}
	return nil
}

// giveBack releases a Lease that was acquired out of turn. If that fails, the Lease expires.
func (c *Candidate) giveBack(ctx context.Context, record resourcelock.LeaderElectionRecord) {
	c.log.Info("releasing the Lease: another release's operator replaces this one")
	if err := c.release(ctx, record, c.Interface.Update); err != nil {
		c.log.Info("cannot release the Lease", "error", err.Error())
	}
}
