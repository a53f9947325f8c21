//go:build linux

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/machine"
)

const (
	// interval is the time between two looks at the machine.
	interval = 5 * time.Second
	// retry is the time after an error, and after the request of a reboot.
	retry = time.Minute
	// mostBoots is the number of boots with an unconfirmed change that may end. A machine that crashes may reach no deadline.
	mostBoots = 3
)

// Guard guards the changes of one machine.
type Guard struct {
	host    *host.Host
	machine *machine.Machine
	clock   clock.Clock
	uptime  func() time.Duration
	options Options

	subject subject
	trial   Trial
}

// subject is what a trial is about.
type subject struct {
	// change identifies the change.
	change string
	// ran is host.Change.Ran. What the machine did before its services used the change is no sign that it works.
	ran bool
}

// New returns the guard of a machine. uptime returns the time of the boot's monotonic clock.
func New(h *host.Host, m *machine.Machine, clk clock.Clock, uptime func() time.Duration, o Options) *Guard {
	return &Guard{host: h, machine: m, clock: clk, uptime: uptime, options: o}
}

// Run guards the pending change until it is confirmed or undone, or ctx ends. Without a pending change it disables the guard and ends.
func (g *Guard) Run(ctx context.Context) error {
	for {
		hasEnded, err := g.look(ctx)
		wait := interval
		switch {
		case hasEnded:
			return nil
		case errors.Is(err, machine.ErrRebooting):
			wait = retry
		case errors.Is(err, host.ErrBusy), errors.Is(err, host.ErrPending):
			// The other process has not finished.
		case err != nil:
			logr.FromContextOrDiscard(ctx).Error(err, "guarding the change failed", "retry", retry.String())
			wait = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.clock.After(wait):
		}
	}
}

// look makes one step: it completes an undo, or checks the machine and judges the change.
func (g *Guard) look(ctx context.Context) (hasEnded bool, err error) {
	change, pending, err := g.host.Pending()
	if err != nil {
		return false, err
	}
	if !pending {
		err := g.host.DisableGuard()
		return err == nil, err
	}
	boot, err := g.host.Boot()
	switch {
	case err != nil:
		return false, err
	case change.IsUndoing():
		return false, g.machine.RollBack(ctx, change, "") // by another process, which may have ended
	case change.AwaitsReboot(boot) && (change.Boot == boot || change.Prepared == boot):
		return false, nil
	}
	if now := (subject{change.ID(), change.Ran}); g.subject != now {
		g.subject, g.trial = now, Trial{}
	}
	var countErr error
	if change.Phase == host.Applied && change.Counted != boot {
		countErr = g.host.CountBoot(change, boot)
		change.Boots++
	}
	if change.Boots > mostBoots {
		return false, g.undo(ctx, change, fmt.Sprintf("%d boots ended before the change was confirmed", mostBoots))
	}
	g.trial = g.trial.Observe(g.uptime(), g.check(ctx, change))
	reason := g.trial.Judge(g.uptime(), g.options)
	switch {
	case reason == "" && change.IsOnTrial() && g.trial.HasPassed(g.uptime(), g.options):
		return false, g.host.SetPassed(change)
	case reason == "":
		return false, countErr // a full disk prevents no judgment
	}
	return false, g.undo(ctx, change, reason)
}

func (g *Guard) undo(ctx context.Context, change host.Change, reason string) error {
	logr.FromContextOrDiscard(ctx).Info("undoing the change", "config", change.To.Name, "reason", reason)
	return g.machine.RollBack(ctx, change, reason)
}

// check returns the first failure of the machine; empty if all checks pass.
func (g *Guard) check(ctx context.Context, change host.Change) (failure string) {
	content, err := g.host.Content(change.To)
	if err != nil {
		return err.Error()
	}
	switch found, err := g.machine.Difference(ctx, change, content); {
	case err != nil:
		return err.Error()
	case found != "":
		return found
	}
	if g.options.KubeletHealth == "" {
		return ""
	}
	if err := CheckKubelet(ctx, g.options.KubeletHealth); err != nil {
		return err.Error()
	}
	return ""
}

const (
	// kubeletTimeout is the timeout of a request to the kubelet on the same machine.
	kubeletTimeout = 5 * time.Second
	// kubeletStart is the time for which a kubelet that restarts may not answer.
	kubeletStart = 30 * time.Second
)

// AwaitKubelet waits until the kubelet answers at the URL of its health port. It returns the last error if the kubelet does not within kubeletStart.
func AwaitKubelet(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, kubeletStart)
	defer cancel()
	for {
		err := CheckKubelet(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// CheckKubelet returns an error unless the kubelet answers at the URL of its health port.
func CheckKubelet(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("checking the kubelet: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("checking the kubelet: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("checking the kubelet: GET %s returns %s", url, response.Status)
	}
	return nil
}
