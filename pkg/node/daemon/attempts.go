//go:build linux

package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/host"
)

// attemptsRecord is the name of the host's record with the attempts.
const attemptsRecord = "attempts"

// attempts is what the daemon knows about its attempts to apply the last config that failed, or to restore the content of the current one. A restarted
// daemon must know it, too: each attempt drains the node.
type attempts struct {
	// Config is the name of the config; empty if the host has its desired config, or none has failed.
	Config string `json:"config,omitempty"`
	// Replaces reports whether an administrator has requested the attempts. Then they also replace what differs on the host.
	Replaces bool `json:"replaces,omitempty"`
	// State and Reason are what the Node shows about it until the next attempt.
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Times is the number of failures in sequence, since the last request to try again.
	Times int `json:"times,omitempty"`
	// Last is the time of the last failure.
	Last time.Time `json:"last,omitzero"`
	// Counted identifies the last failed change of the host that the daemon has counted. A service of the host makes the changes, and may fail while no
	// daemon runs.
	Counted string `json:"counted,omitempty"`
	// Retried identifies the last request to try again that the daemon has followed, see retryID.
	Retried string `json:"retried,omitempty"`
}

// none returns the attempts after which no failed one counts.
func (a attempts) none() attempts { return attempts{Counted: a.Counted, Retried: a.Retried} }

// wait returns the time until the next attempt.
func (a attempts) wait(now time.Time) time.Duration {
	if a.Times == 0 {
		return 0
	}
	return a.Last.Add(changeRetry.After(a.Times)).Sub(now)
}

// recall reads the attempts of former processes.
func (d *Daemon) recall(ctx context.Context) {
	if err := d.host.ReadRecord(attemptsRecord, &d.attempts); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "cannot read earlier attempts; retrying a failed update now")
	}
	if now := d.clock.Now(); d.attempts.Last.After(now) {
		d.attempts.Last = now // the clock of the host has been set back
	}
}

// missed counts the attempt of a former process that failed while no daemon ran. s is the host's state without a pending change.
func (d *Daemon) missed(ctx context.Context, s host.State, desired string) {
	if d.knowsLast {
		return
	}
	d.knowsLast = true
	last := d.machine.LastFailure()
	if last.Attempt == "" || last.Attempt == d.attempts.Counted {
		return
	}
	if last.Config == desired && s.RolledBack.Config == "" {
		d.fail(ctx, desired, api.NodeDegraded, last.Text)
		return
	}
	a := d.attempts
	a.Counted = last.Attempt // it will not count later, when the desired config is another one
	d.save(ctx, a)
}

// save stores the attempts on the host. If that fails, perhaps for the reason of a failed attempt, this process knows them at least.
func (d *Daemon) save(ctx context.Context, a attempts) {
	if d.attempts == a {
		return
	}
	d.attempts = a
	if err := d.host.SaveRecord(attemptsRecord, a); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "a restarted daemon will not know the attempts", "config", a.Config, "times", a.Times)
	}
}

// fail counts a failure of a config, with the state of the Node and the reason.
func (d *Daemon) fail(ctx context.Context, name, state, reason string) {
	a := d.attempts.none()
	if d.attempts.Config == name {
		a.Times, a.Replaces = d.attempts.Times, d.attempts.Replaces
	}
	a.Config, a.State, a.Reason, a.Last, a.Counted = name, state, excerpt(reason), d.clock.Now().UTC(), d.machine.LastFailure().Attempt
	a.Times++
	d.save(ctx, a)
}

// isRetryRequested reports whether an administrator has requested to try the desired config again, and the daemon has not followed the request yet.
func (d *Daemon) isRetryRequested(n *corev1.Node, desired string) bool {
	name, _, _ := strings.Cut(n.Annotations[api.NodeRetryAnnotation], " ")
	return name != "" && name == desired && d.attempts.Retried != retryID(n)
}

// retryID identifies a request to try again, which may be longer than what the host should store: it is its SHA-256 in hex.
func retryID(n *corev1.Node) string {
	digest := sha256.Sum256([]byte(n.Annotations[api.NodeRetryAnnotation]))
	return hex.EncodeToString(digest[:])
}
