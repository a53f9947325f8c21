//go:build linux

// Package guard undoes a change of a machine that fails. It runs on the host as a service that needs neither the cluster nor the daemon. It looks
// at the pending change of package host, checks the files and the kubelet, and restores the former config by package machine if a check fails
// for too long, or if the daemon does not confirm the change in time. Linux only.
package guard

import (
	"fmt"
	"time"
)

// Options of a guard. The zero value of a deadline is its default.
type Options struct {
	// KubeletHealth is the URL of the kubelet's health port. Default: the kubelet is not checked.
	KubeletHealth string
	// BootDeadline is how long a check may fail without interruption. Default: 10 minutes.
	BootDeadline time.Duration
	// ContactDeadline is how long the change may stay unconfirmed. Default: 30 minutes.
	ContactDeadline time.Duration
}

func (o Options) withDefaults() Options {
	if o.BootDeadline == 0 {
		o.BootDeadline = 10 * time.Minute
	}
	if o.ContactDeadline == 0 {
		o.ContactDeadline = 30 * time.Minute
	}
	return o
}

// Trial is what a guard has seen of a pending change in this boot. Times are those of the boot's monotonic clock, which no change of the date
// affects. The zero value has seen nothing.
type Trial struct {
	begun       bool
	since       time.Duration
	failure     string
	failedSince time.Duration
	// lastFailed is the time of the last failure. Without one, it equals since.
	lastFailed time.Duration
}

// Observe adds the result of the checks at a time. failure is empty if all checks pass.
func (t Trial) Observe(at time.Duration, failure string) Trial {
	if !t.begun {
		t.begun, t.since, t.lastFailed = true, at, at
	}
	if failure != "" {
		t.lastFailed = at
	}
	if failure != "" && t.failure == "" {
		t.failedSince = at
	}
	t.failure = failure
	return t
}

// passTime is how long all checks must pass without interruption before a change without a reboot may be confirmed. A service that has been restarted
// may fail some time later.
const passTime = time.Minute

// HasPassed reports whether the checks have passed for passTime, or for half the time in which the change must be confirmed, if that is shorter.
func (t Trial) HasPassed(at time.Duration, o Options) bool {
	return t.failure == "" && at-t.lastFailed >= min(passTime, o.withDefaults().ContactDeadline/2)
}

// Judge returns the reason to undo the change at a time; empty to wait.
func (t Trial) Judge(at time.Duration, o Options) (reason string) {
	o = o.withDefaults()
	switch {
	case !t.begun:
		return ""
	case t.failure != "" && at-t.failedSince >= o.BootDeadline:
		return fmt.Sprintf("a check failed for %s: %s", (at - t.failedSince).Round(time.Second), t.failure)
	case at-t.since < o.ContactDeadline:
		return ""
	case t.failure != "":
		return fmt.Sprintf("the change was not confirmed for %s, and a check fails: %s", (at - t.since).Round(time.Second), t.failure)
	default:
		return fmt.Sprintf("all checks pass, but the daemon did not confirm the change for %s", (at - t.since).Round(time.Second))
	}
}
