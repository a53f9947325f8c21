package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/policy"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// patience is the time in which each machine of the required pools is expected to be updated. OpenShift has the same limit.
const patience = 10 * time.Minute

// namedNodes is the maximum number of nodes in a text.
const namedNodes = 3

// descriptionText is the maximum length of a pool's description in bytes.
const descriptionText = 1000

// level is how far the required pools are.
type level struct {
	// waiting says which required pool does not run the release's config yet; empty if all do.
	waiting string
	// failure says why the required pools will not run it without help; empty if they may.
	failure string
	// overdue is the time at which the wait for a pool becomes a failure; zero if it does not.
	overdue time.Time
}

// levelOf returns how far the required pools are. A pool counts only if its rendered config is of this release: otherwise the status that an
// earlier controller wrote would be taken for the new one. Its daemons count, too: the version operator does not wait for the pods of a
// component that has a ClusterOperator. since is when the update began, zero if that is not known. A wait counts from the beginning of the
// pool's own update, if the pool has begun.
func levelOf(s State, o Options, since, now time.Time) level {
	var l level
	var machines int32
	var slowest string
	if !slices.ContainsFunc(s.Pools, func(p *mcfgv1.MachineConfigPool) bool { return p.Name == api.ControlPlanePool }) {
		l.waiting = fmt.Sprintf("MachineConfigPool %s does not exist yet", api.ControlPlanePool)
	}
	late := lateDaemons(s, o.Release)
	for _, p := range s.Pools {
		if _, required := p.Labels[api.RequiredPoolLabel]; !required {
			if o.DegradedPoolsGate && pool.IsTrue(p, mcfgv1.MachineConfigPoolDegraded) {
				l.fail(describe(p))
			}
			continue
		}
		machines += p.Status.MachineCount
		waiting, isForNodes := waitOf(p, s, late[p.Name], o)
		l.waiting = cmp.Or(l.waiting, waiting)
		switch {
		case pool.IsTrue(p, mcfgv1.MachineConfigPoolDegraded):
			l.fail(describe(p))
		case isForNodes && p.Spec.Paused: // a paused pool is rendered, too
			l.fail(fmt.Sprintf("MachineConfigPool %s is paused and cannot sync until unpaused: set spec.paused to false", p.Name))
		case waiting != "":
			since := since
			if pool.IsTrue(p, mcfgv1.MachineConfigPoolUpdating) {
				since = pool.Condition(p, mcfgv1.MachineConfigPoolUpdating).LastTransitionTime.Time
			}
			if !since.IsZero() && (l.overdue.IsZero() || since.Before(l.overdue)) {
				l.overdue, slowest = since, fmt.Sprintf("%s: see `cvo nodes status %s`", waiting, p.Name)
			}
		}
	}
	if l.overdue.IsZero() {
		return l
	}
	limit := patience * time.Duration(max(machines, 1))
	l.overdue = l.overdue.Add(limit)
	if !now.Before(l.overdue) {
		l.fail(fmt.Sprintf("after %s, %s", limit, slowest))
		l.overdue = time.Time{}
	}
	return l
}

// why says what the required pools lack; empty if nothing.
func (l level) why() string { return cmp.Or(l.waiting, l.failure) }

func (l *level) fail(why string) { l.failure = strings.TrimPrefix(l.failure+"; "+why, "; ") }

// lateDaemons returns the names of the nodes in each pool whose daemon is not of the release, or has not reported.
func lateDaemons(s State, release string) map[string][]string {
	selectors := pool.NewSelectors(s.Pools)
	late := map[string][]string{}
	for _, n := range s.Nodes {
		if pool.IsWindows(n) || pool.IsReleased(n) {
			continue
		}
		if name, _ := selectors.Pool(n); n.Annotations[api.DaemonReleaseAnnotation] != release {
			late[name] = append(late[name], n.Name)
		}
	}
	for _, names := range late {
		slices.Sort(names)
	}
	return late
}

// waitOf returns why a pool does not run the release's config yet; empty if it does. late are the nodes whose daemon is not of the release.
// isForNodes reports whether only nodes are missing.
func waitOf(p *mcfgv1.MachineConfigPool, s State, late []string, o Options) (why string, isForNodes bool) {
	target := p.Spec.Configuration.Name
	rendered := s.Configs[target]
	switch {
	case rendered == nil || len(p.Spec.Configuration.Source) == 0,
		rendered.Annotations[api.ReleaseAnnotation] != o.Release,
		rendered.Annotations[api.GeneratedByAnnotation] != o.Version,
		rendered.Spec.OSImageURL != policy.OSImage(s.Policies[p.Name], rendered, o.OSImage) && rendered.Annotations[api.OSImageOverriddenAnnotation] != "true":
		why = fmt.Sprintf("MachineConfigPool %s has no config of release %s yet", p.Name, o.Release)
		if s.OtherRelease != "" {
			why += ": it " + s.OtherRelease
		}
		return why, false
	case p.Generation > p.Status.ObservedGeneration:
		return fmt.Sprintf("the status of MachineConfigPool %s is not current yet", p.Name), false
	case len(late) > 0:
		return fmt.Sprintf("the daemons of these nodes of MachineConfigPool %s are not of release %s yet: %s", p.Name, o.Release, printable.List(late, namedNodes)), false
	case p.Status.Configuration.Name == "", !pool.IsTrue(p, mcfgv1.MachineConfigPoolUpdated):
		return fmt.Sprintf("%d of %d nodes of MachineConfigPool %s are updated", p.Status.UpdatedMachineCount, p.Status.MachineCount, p.Name), true
	}
	return "", false
}

// describe returns why a pool is degraded, in at most descriptionText bytes: a pool's message names all its degraded nodes.
func describe(p *mcfgv1.MachineConfigPool) string {
	for _, kind := range []mcfgv1.MachineConfigPoolConditionType{mcfgv1.MachineConfigPoolDegraded, mcfgv1.MachineConfigPoolRenderDegraded} {
		if message := pool.Message(p, kind); message != "" {
			return fmt.Sprintf("MachineConfigPool %s is degraded: %s", p.Name, printable.Excerpt(message, descriptionText))
		}
	}
	return fmt.Sprintf("MachineConfigPool %s is degraded", p.Name)
}
