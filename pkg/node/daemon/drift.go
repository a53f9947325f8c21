//go:build linux

package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/host"
)

// driftDelay is the delay from a change of a file to the comparison, so that a program can complete what it writes. It grows with each change soon after
// a comparison, because a program may write the file all the time.
var driftDelay = backoff.Doubling{First: time.Second, Max: time.Minute}

// driftInterval is the time between comparisons if the files cannot be watched, and after which a change does not prolong driftDelay.
const driftInterval = time.Minute

// drift is the result of the last comparison of the host with its current config.
type drift struct {
	config string
	// reason says how the host differs, or why it cannot be compared; empty if it does not differ. found has the differences.
	reason string
	found  []host.Drift
	// changed is closed as soon as the result may be wrong. It is nil without a watch.
	changed <-chan struct{}
	stop    func()
	// at is the time of the comparison, changes the number of changes that came soon after one, and due the time of the next one, without a watch.
	at, due time.Time
	changes int
}

// expire ends the result after a change at a time.
func (d *drift) expire(now time.Time) {
	d.unwatch()
	if now.Sub(d.at) >= driftInterval {
		d.changes = 0
	}
	d.changes++
	d.due = now.Add(driftDelay.After(d.changes))
}

func (d *drift) unwatch() {
	if d.stop != nil {
		d.stop()
	}
	d.changed, d.stop = nil, nil
}

// compare compares the host with its current config, unless no file has changed since the last time. after is the time until the next comparison; 0
// if only a change requires one.
func (d *Daemon) compare(ctx context.Context, s host.State) (after time.Duration) {
	now := d.clock.Now()
	if d.drift.config == s.Current.Name {
		if d.drift.changed != nil || s.Current.Name == "" {
			return 0
		}
		if wait := d.drift.due.Sub(now); wait > 0 {
			return wait
		}
	}
	d.drift.unwatch()
	before := d.drift
	d.drift = drift{config: s.Current.Name, at: now, changes: before.changes}
	if s.Current.Name == "" {
		return 0
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("config", s.Current.Name)
	var watchErr error
	if d.drift.changed, d.drift.stop, watchErr = d.host.Watch(s); watchErr != nil { // before the comparison, so no change is lost
		after = driftInterval
		log.Error(watchErr, "changes of files are only found by comparisons", "interval", after.String())
	}
	content, err := d.host.Content(s.Current)
	if err == nil {
		d.drift.found, err = d.host.Verify(content)
	}
	if err != nil {
		d.drift.unwatch()
		d.drift.reason, after = fmt.Sprintf("comparing the host with MachineConfig %s: %v", s.Current.Name, err), driftInterval
	} else if len(d.drift.found) > 0 {
		d.drift.reason = d.difference(s.Current.Name, d.drift.found)
	}
	if d.drift.reason != before.reason {
		log.Info("host compared", "difference", d.drift.reason)
	}
	d.drift.due = now.Add(after)
	return after
}

// ownRestore returns what the policies require to restore the content of the current config without a request of an administrator, or nil if the daemon
// does not do that now: the pool's policy does not want it, the Node does not show the difference yet, a reboot is needed, or a drain is too early. after is
// the time until the answer may be another one; 0 if only a change requires that.
func (d *Daemon) ownRestore(ctx context.Context, n *corev1.Node, s host.State) (required *disruption.Decision, after time.Duration, err error) {
	if !d.mayRestore || len(d.drift.found) == 0 || n.Annotations[api.NodeReasonAnnotation] != excerpt(d.drift.reason) {
		return nil, 0, nil
	}
	content, err := d.host.Content(s.Current)
	if err != nil {
		return nil, 0, err
	}
	decision, err := d.disruption(ctx, host.Without(content, d.drift.found), content)
	if _, isObstacle := errors.AsType[obstacle](err); isObstacle {
		return nil, requestRetry.Max, nil // the Node is degraded anyway, and no event shows that the init system answers again
	}
	isReboot := func(a disruption.Action) bool { return a.Type == operatorv1.RebootStatusAction }
	if err != nil || slices.ContainsFunc(decision.Actions, isReboot) {
		return nil, 0, err
	}
	if wait := d.ownDrains.wait(d.clock.Now()); decision.Drain && wait > 0 {
		return nil, wait, nil
	}
	return &decision, 0, nil
}

// drains counts the drains to restore content without a request. They become rare, because another program may change the content again each time. The
// zero value has none.
type drains struct {
	count int
	last  time.Time
}

// wait returns the time until the next drain may begin; at most 0 if it may begin now.
func (s drains) wait(now time.Time) time.Duration {
	return s.last.Add(changeRetry.After(s.count)).Sub(now)
}

// add counts a drain that begins now. One long after the last one is the first again.
func (s *drains) add(now time.Time) {
	if now.Sub(s.last) >= 2*changeRetry.Max {
		s.count = 0
	}
	s.count, s.last = s.count+1, now
}

// difference returns a sentence without period about a host that differs from a config, with the remedy.
func (d *Daemon) difference(config string, found []host.Drift) string {
	return fmt.Sprintf("the host differs from MachineConfig %s: %s: %s. Restore the content of that MachineConfig, or run 'cvo nodes retry %s'",
		config, found[0].Path, found[0].Found, d.node)
}
