package operator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
)

// candidate is the Lease as this process takes part in the election: it looks at the Lease only while it is its turn to
// lead, gives the Lease back if it finds out that it is not when it has won, and tells the fence of every renewal. The
// elector calls it from one goroutine.
type candidate struct {
	resourcelock.Interface
	clock clock.PassiveClock
	log   logr.Logger
	fence *fence
	// post is where this process stands; nil outside of the cluster.
	post *post
	// word is given when an uninstall has taken the Lease from this process.
	word *word

	// leading: the Lease is ours, and we have made sure that it should be.
	leading atomic.Bool
	// holder is who has the Lease, by what was read or written last, and othersAt when that was somebody else.
	holder   string
	othersAt time.Time
	// ending: the Lease is not wanted any more.
	ending bool
	// claimed: this process has asked for the Lease, so an uninstall that has it may have taken it from this one.
	claimed bool
	// standingIn: nobody leads, so this process does until it is stopped, though another is to replace it.
	standingIn bool
}

// errOthers is why a Lease is left alone.
var errOthers = errors.New("somebody else has it")

// errReplaced is why a Lease that was won is given back.
var errReplaced = errors.New("this replica is being replaced")

// Get implements resourcelock.Interface. To a process whose turn it is not it returns once that changes, unless somebody
// waits for its word.
func (c *candidate) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if c.post != nil && !c.leading.Load() && !c.ending && !c.owesWord() {
		if err := c.turn(ctx); err != nil {
			return nil, nil, err
		}
	}
	return c.read(ctx)
}

// read returns the Lease, and takes note of whose it is. Once it is not ours, nothing is written any more, and if it is
// won again, everything is looked at anew.
func (c *candidate) read(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := c.Interface.Get(ctx)
	if err != nil {
		return record, raw, err
	}
	c.holder = record.HolderIdentity
	if c.holder != c.Identity() {
		if c.holder != "" {
			c.othersAt = c.clock.Now()
		}
		if c.leading.Swap(false) {
			c.standingIn = false
			c.fence.shut()
		}
		if c.owesWord() {
			c.giveWord(ctx)
		}
	}
	return record, raw, nil
}

// owesWord reports whether an uninstall may be waiting to hear that this process writes nothing any more.
func (c *candidate) owesWord() bool { return c.claimed && c.holder == api.UninstallHolder }

// giveWord tells the uninstall so if that is true; if not, the next look at the Lease tries again. The elector looks once a
// retry period until it gives up renewing, and a last time before the process ends, for whatever reason.
func (c *candidate) giveWord(ctx context.Context) {
	given, err := c.word.give(ctx, c.fence)
	if err != nil {
		c.log.Info("not telling the uninstall yet that nothing is written any more", "error", err.Error())
		return
	}
	c.claimed = false
	if given {
		c.log.Info("told the uninstall that nothing is written any more")
	}
}

// turn waits until it is this process's turn. Being replaced it waits for whoever replaces it; if nobody holds the Lease
// for two looks in a row, that one does not start, and this process stands in: it applies nothing beyond the Deployment
// that names the other, but somebody has to tell, and to take another request.
func (c *candidate) turn(ctx context.Context) error {
	c.standingIn = false
	told, seen := false, ""
	for {
		s, changed := c.post.look()
		if s.known && decide(s.situation) == contend {
			return nil
		}
		if s.known && !told {
			c.log.Info("not contending for the Lease: another release's operator replaces this one", "own", s.own, "deployment", s.template)
			told = true
		}
		look := time.NewTimer(standInLook)
		select {
		case <-ctx.Done():
			look.Stop()
			return ctx.Err()
		case <-changed:
			look.Stop()
		case <-look.C:
			if !s.known {
				continue
			}
			now := c.sight(ctx)
			if now != "" && now == seen {
				c.log.Info("standing in: this operator is being replaced, but nobody leads", "own", s.own, "deployment", s.template)
				c.standingIn = true
				return nil
			}
			seen = now
		}
	}
}

// standInLook is how often a replica that is being replaced looks whether anybody leads: long enough for whoever leads to
// have renewed many times.
const standInLook = 30 * time.Second

// sight returns what the Lease says, empty if that cannot be found out. Each renewal changes it.
func (c *candidate) sight(ctx context.Context) string {
	_, raw, err := c.read(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return "none"
	case err != nil:
		return ""
	}
	return string(raw)
}

// Create implements resourcelock.Interface. A Lease that is gone was deleted by somebody, and whoever had it may not know
// yet: until that one does not write any more for certain, only it makes a new one.
func (c *candidate) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	// By the monotonic clock alone: one that is set forth ends no wait.
	if left := c.fence.lease - c.clock.Since(c.othersAt); !c.leading.Load() && !c.othersAt.IsZero() && left > 0 {
		return fmt.Errorf("not making the Lease anew, which was deleted: %w for another %s: %s", errOthers, left.Round(time.Second), c.holder)
	}
	return c.write(ctx, record, c.Interface.Create)
}

// Update implements resourcelock.Interface.
func (c *candidate) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.write(ctx, record, c.Interface.Update)
}

func (c *candidate) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	if record.HolderIdentity != c.Identity() {
		c.leading.Store(false)
		c.ending = true
		c.fence.close(ctx) // before anybody else can have it
		if c.holder != c.Identity() {
			// The elector goes by what it saw last, and would give back what it has lost without having seen it.
			return fmt.Errorf("not giving the Lease back: %w: %q", errOthers, c.holder)
		}
		if !c.fence.settled() {
			return fmt.Errorf("not giving the Lease back, which runs out: %w", errUnanswered)
		}
		return send(ctx, record)
	}
	c.claimed = true // whatever the answer says
	sent := c.clock.Now()
	if err := send(ctx, record); err != nil {
		return err
	}
	c.holder = record.HolderIdentity
	if !c.leading.Load() {
		if err := c.confirm(ctx); err != nil {
			c.giveBack(ctx, record)
			return err
		}
		c.leading.Store(true)
	}
	c.fence.renew(sent)
	return nil
}

// confirm makes sure, past all caches, that it is still this process's turn: the Deployment may have changed while the
// Lease was won.
func (c *candidate) confirm(ctx context.Context) error {
	if c.post == nil || c.standingIn {
		return nil
	}
	s, err := c.post.ask(ctx)
	if err != nil {
		return fmt.Errorf("giving the Lease back: finding out whether this replica is being replaced: %w", err)
	}
	if decide(s) != contend {
		return fmt.Errorf("giving the Lease back: %w by one of %s", errReplaced, s.template)
	}
	return nil
}

// giveBack has nobody hold the Lease. If that fails, or what was written when it was held before may still take effect, it
// runs out.
func (c *candidate) giveBack(ctx context.Context, record resourcelock.LeaderElectionRecord) {
	if !c.fence.settled() {
		c.log.Info("lease not given back", "error", errUnanswered.Error())
		return
	}
	c.log.Info("giving the Lease back: another release's operator replaces this one")
	record.HolderIdentity, record.LeaseDurationSeconds = "", 1
	if err := c.Interface.Update(ctx, record); err != nil {
		c.log.Info("lease not given back", "error", err.Error())
	}
}
