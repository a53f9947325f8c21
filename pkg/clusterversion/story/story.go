// Package story turns the progress of a rollout into events about reached runlevels, long waits, nodes that are handed over and dropped
// fields. A Story records what events have reported, so that none is repeated.
package story

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// operatorWait is the wait for a ClusterOperator after which an event reports it. It is longer than most operators need for an update, and
// far shorter than the time after which the status calls them slow.
const operatorWait = 5 * time.Minute

// Story records the part of a rollout that events have reported. It is an immutable value.
type Story struct {
	// started is the time when the rollout began.
	started time.Time
	// adds is true for a rollout that adds objects to a completed release. The update has reported its runlevels.
	adds bool
	// reached counts the runlevels that were reached together with all lower ones. reachedAt is the time when this process saw the last one
	// reached, zero if it saw none.
	reached    int
	reachedAt  time.Time
	handedOver bool
	dropped    []report.Dropped
	loosened   []report.Loosened
	controlled []report.Controlled
	scaled     []manifest.ID
	// waited are the ClusterOperators whose long wait an event has reported.
	waited []string
}

// New returns the story of a rollout before its first pass. known is the progress that is already reported, so a rollout that is planned
// again repeats no event. adds is true if the rollout adds objects to a completed release.
func New(known report.Progress, started time.Time, adds bool) Story {
	return Story{
		started: started, adds: adds, reached: reachedRunlevels(known), handedOver: known.HandedOver,
		dropped: known.Dropped, loosened: known.Loosened, controlled: known.Controlled, scaled: known.ScaledToZero,
	}
}

// Events returns the events for the changes in a rollout's progress, and the story that includes them.
func Events(s Story, after report.Progress, now time.Time) ([]event.Event, Story) {
	var list []event.Event
	if after.Mode == release.Updating {
		for reached := reachedRunlevels(after); s.reached < reached; s.reached++ {
			if !s.adds {
				list = append(list, runlevelReached(after, s, now))
			}
			s.reachedAt = now
		}
	}
	if after.HandedOver && !s.handedOver && after.Mode != release.Reconciling {
		list, s.handedOver = append(list, nodesHandedOver(after.Release.Version)), true
	}
	for _, p := range slowOperators(after, s) {
		if wait := now.Sub(p.Since); wait >= operatorWait {
			list = append(list, operatorWaitedFor(p, after.Release.Version, wait))
			s.waited = append(slices.Clone(s.waited), p.ID.Name)
		}
	}
	for _, d := range after.Dropped {
		if !slices.ContainsFunc(s.dropped, func(reported report.Dropped) bool { return reported.ID == d.ID }) {
			list = append(list, fieldDropped(d))
		}
	}
	for _, l := range after.Loosened {
		reported := slices.ContainsFunc(s.loosened, func(reported report.Loosened) bool {
			return reported.ID == l.ID && slices.Equal(reported.Fields, l.Fields)
		})
		if !reported {
			list = append(list, securityLoosened(l))
		}
	}
	for _, c := range after.Controlled {
		if !slices.Contains(s.controlled, c) {
			list = append(list, otherController(c))
		}
	}
	for _, id := range after.ScaledToZero {
		if !slices.Contains(s.scaled, id) {
			list = append(list, scaledToZero(id))
		}
	}
	s.dropped, s.loosened, s.controlled, s.scaled = after.Dropped, after.Loosened, after.Controlled, after.ScaledToZero
	return list, s
}

// reachedRunlevels counts the runlevels that were reached together with all lower ones.
func reachedRunlevels(p report.Progress) int {
	open := slices.IndexFunc(p.Runlevels, func(l report.Runlevel) bool { return l.Done < l.Total })
	if open < 0 {
		return len(p.Runlevels)
	}
	return open
}

// slowOperators returns the ClusterOperators that an unfinished rollout waits for and that no event has reported yet.
func slowOperators(p report.Progress, s Story) []report.Problem {
	if p.Mode == release.Reconciling {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Problems), func(p report.Problem) bool {
		return !p.IsClusterOperator() || p.Err != nil || p.State == gate.Settled || p.Since.IsZero() || slices.Contains(s.waited, p.ID.Name)
	})
}

// Next returns the time until an event is due without a change in the cluster; 0 if there is none.
func Next(s Story, p report.Progress, now time.Time) time.Duration {
	next := time.Duration(0)
	for _, p := range slowOperators(p, s) {
		if left := max(operatorWait-now.Sub(p.Since), time.Millisecond); next == 0 || left < next {
			next = left
		}
	}
	return next
}

func runlevelReached(p report.Progress, s Story, now time.Time) event.Event {
	level := p.Runlevels[s.reached]
	text := fmt.Sprintf("Reached runlevel %02d of %s, %s after the start", level.Runlevel, p.Release.Version, now.Sub(s.started).Round(time.Second))
	if !s.reachedAt.IsZero() {
		text += fmt.Sprintf(" and %s after runlevel %02d", now.Sub(s.reachedAt).Round(time.Second), p.Runlevels[s.reached-1].Runlevel)
	}
	return event.Normal(api.EventRunlevelReached, "%s", text)
}

func operatorWaitedFor(p report.Problem, version string, wait time.Duration) event.Event {
	return event.Normal(api.EventClusterOperatorWaitedFor, "Waited %s so far for ClusterOperator %s at runlevel %02d of %s: %s",
		wait.Round(time.Second), p.ID.Name, p.Runlevel, version, p.Message)
}

func nodesHandedOver(version string) event.Event {
	return event.Normal(api.EventNodesHandedOver, "The control plane is at %s; the nodes are handed over to %s", version, api.MachineConfigOperator)
}

func fieldDropped(d report.Dropped) event.Event {
	return event.Warning(api.EventFieldDropped, "%s (%s): dropped %s: the API server's schema does not have it", d.ID, d.File, strings.Join(d.Fields, ", "))
}

// securityLoosened reports security settings that other clients have added. Those clients own the fields, so the fields stay, but an
// administrator should know.
func securityLoosened(l report.Loosened) event.Event {
	return event.Warning(api.EventSecurityLoosened, "Other clients set fields of %s that loosen the security of its pods: %s", l.ID, strings.Join(l.Fields, ", "))
}

// otherController reports an object with another controller. That controller keeps this role and may write the object too.
func otherController(c report.Controlled) event.Event {
	return event.Warning(api.EventOtherController, "%s controls %s of the release and may write it too; the version operator is only one of its owners",
		c.Controller, c.ID)
}

// scaledToZero reports a workload without pods, which does not delay the rollout.
func scaledToZero(id manifest.ID) event.Event {
	return event.Warning(api.EventScaledToZero, "%s is scaled to 0, so no pod runs; its manifest leaves spec.replicas to other clients", id)
}

// Reached returns the number of runlevels that were reached together with all lower ones.
func (s Story) Reached() int { return s.reached }
