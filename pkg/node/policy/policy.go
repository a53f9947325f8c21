// Package policy decides by NodeRolloutPolicies whether the nodes of a pool may start their update now. It takes policies and the state of pools
// as values. Package update reads them, and package plan orders the nodes that may start.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
)

// defaultDuration is the default of spec.expectedDuration.
const defaultDuration = 30 * time.Minute

// Pool is the state of a MachineConfigPool.
type Pool struct {
	// Name is the pool's name, and Policy its policy; nil if it has none.
	Name   string
	Policy *api.NodeRolloutPolicy
	// Nodes is the number of the pool's nodes, and Failed the number of those that failed to stage or to apply the pool's config.
	Nodes, Failed int
	// Config is the pool's config. Started is the number of the nodes that run it, update to it or failed to, and Done the number of those that run it
	// and are ready.
	Config        string
	Started, Done int
	// Updated reports whether all nodes run what the pool's MachineConfigs result in. The others are reasons why that may need an administrator:
	// the pool is paused, its MachineConfigs cannot be rendered or one of its fields is invalid, or so many of its nodes are degraded.
	Updated  bool
	Paused   bool
	Error    string
	Degraded int
	// Health is the health of the nodes that run the pool's config.
	Health Health
	// Jobs is the state of the Jobs for the pool's nodes.
	Jobs Jobs
}

// Decision is what a policy allows.
type Decision struct {
	// Refusal says why no node of the pool starts now, as a sentence without subject and period; empty if nodes may.
	Refusal string
	// Unprepared says why no node starts now whose Job before the update has not succeeded yet; empty if such nodes may, or if Refusal has the reason.
	Unprepared string
	// Invalid says which field makes the policy invalid; empty if none does. Halted reports that the failure budget is exhausted, with the reason.
	Invalid, Halted string
	// Canary is what the policy's status reports about the canaries; nil if not enough nodes run the config.
	Canary *api.NodeCanaryStatus
	// Limit is the number of nodes that may start now, negative if too many have, and Limited the reason of the others, as a sentence without subject and
	// period. An empty Limited means that there is no limit.
	Limit   int
	Limited string
	// PerZone is the number of nodes in a zone that may be unavailable or failed at the same time; 0 is no limit.
	PerZone int
	// Again is the time at which the decision changes; zero if only a change of an object changes it.
	Again time.Time
}

// Decide returns the decision for each pool, in the same order.
func Decide(pools []Pool, now time.Time) []Decision {
	decisions := make([]Decision, len(pools))
	for i, p := range pools {
		if p.Policy != nil {
			decisions[i] = decide(pools, p, now)
		}
	}
	return decisions
}

func decide(pools []Pool, p Pool, now time.Time) (d Decision) {
	spec := p.Policy.Spec
	d.PerZone = int(spec.MaxUnavailablePerZone)
	failed := p.Failed + p.Health.Unhealthy + p.Jobs.Failed
	if b := spec.FailureBudget; b != nil && p.Nodes > 0 && failed >= max(scaled(b, p.Nodes), 1) {
		d.Halted = fmt.Sprintf("%s failed, and the failure budget is %s", printable.Count(failed, "node"), b.String())
		if why := p.halt(); why != "" {
			d.Halted += ": " + why
		}
	}
	windows, err := parse(p.Policy)
	if err == nil {
		err = checkDependencies(pools, p)
	}
	var start, jobStart time.Time
	if err == nil && len(windows) > 0 {
		start, d.Again, err = next(windows, p.Policy, 0, now)
		if job := spec.Jobs.Before; job != nil {
			var again time.Time
			jobStart, again, err = next(windows, p.Policy, job.Deadline.Duration, now)
			if again.Before(d.Again) {
				d.Again = again
			}
		}
	}
	if err != nil {
		d.Invalid = err.Error()
	}
	d.Invalid = cmp.Or(d.Invalid, p.Health.Invalid)
	soaked := d.decideCanary(p, now)
	if soaked.After(now) && (d.Again.IsZero() || soaked.Before(d.Again)) {
		d.Again = soaked
	}
	pending := firstNotUpdated(pools, spec.DependsOn)
	switch {
	case d.Invalid != "":
		d.Refusal = fmt.Sprintf("waits, because NodeRolloutPolicy %s is invalid: %s", p.Name, d.Invalid)
	case d.Halted != "":
		d.Refusal = fmt.Sprintf("waits, because NodeRolloutPolicy %s halted the pool: %s", p.Name, d.Halted)
	case p.Jobs.Refusal != "":
		d.Refusal = p.Jobs.Refusal
	case pending != nil:
		d.Refusal = fmt.Sprintf("waits for MachineConfigPool %s, on which NodeRolloutPolicy %s depends: %s", pending.Name, p.Name, pending.delay())
	case p.Health.Why != "":
		d.Refusal = "waits until the updated nodes are healthy: " + p.Health.Why
	case soaked.After(now):
		d.Refusal = fmt.Sprintf("waits until the canaries of NodeRolloutPolicy %s have run the config for %s, at %s",
			p.Name, duration.HumanDuration(spec.Canary.Soak.Duration), soaked.UTC().Format(time.RFC3339))
	default:
		d.Refusal = waitForWindow(p.Name, "it", start, now)
		d.Unprepared = waitForWindow(p.Name, "its Job and its update", jobStart, now)
	}
	return d
}

// waitForWindow says that what can be done in a window waits for its start; it returns an empty text if that is not after now.
func waitForWindow(policy, what string, start, now time.Time) string {
	if !start.After(now) {
		return ""
	}
	return fmt.Sprintf("waits for the next window of NodeRolloutPolicy %s in which %s can be done, at %s", policy, what, start.Format(time.RFC3339))
}

// decideCanary limits the start to the canaries until enough nodes have run the config for long enough. It returns the time at which that is so; zero
// before enough nodes run it and all of them are healthy, and without canaries. A node that failed is a canary, so that no other takes its place.
func (d *Decision) decideCanary(p Pool, now time.Time) (soaked time.Time) {
	canary := p.Policy.Spec.Canary
	if canary == nil || p.Config == "" || p.Nodes == 0 {
		return soaked
	}
	if d.Canary = p.Policy.Status.Canary; d.Canary != nil && d.Canary.Config == p.Config {
		if soaked = d.Canary.Since.Add(canary.Soak.Duration); !soaked.After(now) {
			return soaked
		}
	} else {
		d.Canary = nil
	}
	if !p.Health.isGood() {
		d.Canary = nil
		return time.Time{} // no node starts
	}
	canaries := min(scaled(&canary.Nodes, p.Nodes), p.Nodes)
	if p.Done < canaries {
		d.Canary = nil
		d.Limit = canaries - p.Started
		d.Limited = fmt.Sprintf("waits for the canaries of NodeRolloutPolicy %s: %d of %d run the config and are ready", p.Name, p.Done, canaries)
		return time.Time{}
	}
	if d.Canary == nil {
		d.Canary = &api.NodeCanaryStatus{Config: p.Config, Since: metav1.NewTime(now.UTC().Truncate(time.Second))}
	}
	return d.Canary.Since.Add(canary.Soak.Duration)
}

// next returns the time at which a node may start, now or later, and the time at which that changes. deadline is the time that a Job before the update may
// need; 0 without one. A window that is too short for the measured
// duration counts for the expected one: otherwise a slow update would end all others, and no faster one could be measured.
func next(windows []window, p *api.NodeRolloutPolicy, deadline time.Duration, now time.Time) (start, again time.Time, err error) {
	all := intervals(windows, now)
	need := nodeDuration(p) + deadline
	start, longest, ok := find(all, need, now)
	if expected := expectedDuration(p) + deadline; !ok && expected < need {
		need = expected
		start, longest, ok = find(all, need, now)
	}
	switch {
	case !ok && deadline > 0:
		return start, again, fmt.Errorf("a node needs %s after a Job of up to %s, and the longest of spec.windows has %s: extend it, or set spec.expectedDuration or spec.jobs.before.deadline",
			duration.HumanDuration(need-deadline), duration.HumanDuration(deadline), duration.HumanDuration(longest))
	case !ok:
		return start, again, fmt.Errorf("a node needs %s, and the longest of spec.windows has %s: extend it, or set spec.expectedDuration",
			duration.HumanDuration(need), duration.HumanDuration(longest))
	case start.After(now):
		return start, start, nil
	case all[0].isAlways():
		return start, again, nil
	}
	return start, all[0].end.Add(-need).Add(time.Second), nil // then a node no longer fits
}

// parse returns the windows of a policy. The error names the invalid field.
func parse(p *api.NodeRolloutPolicy) ([]window, error) {
	spec := p.Spec
	var windows []window
	for i, w := range spec.Windows {
		parsed, err := parseWindow(w)
		if err != nil {
			return nil, fmt.Errorf("spec.windows[%d].%w", i, err)
		}
		windows = append(windows, parsed)
	}
	if d := spec.ExpectedDuration; d != nil && d.Duration <= 0 {
		return nil, fmt.Errorf("spec.expectedDuration is %s: use a duration such as 45m", d.Duration)
	}
	if c := spec.Canary; c != nil && scaled(&c.Nodes, 100) < 1 {
		return nil, fmt.Errorf("spec.canary.nodes is %s: use a number such as 2 or a percentage such as 3%%", c.Nodes.String())
	}
	if c := spec.Canary; c != nil && c.Soak.Duration < 0 {
		return nil, fmt.Errorf("spec.canary.soak is %s: use a duration such as 30m", c.Soak.Duration)
	}
	if _, err := drain.NewRules(p); err != nil {
		return nil, err
	}
	if err := checkJobs(p); err != nil {
		return nil, err
	}
	if b := spec.FailureBudget; b != nil && scaled(b, 100) < 1 {
		return nil, fmt.Errorf("spec.failureBudget is %s: use a number such as 2 or a percentage such as 3%%", b.String())
	}
	return windows, nil
}

// scaled returns the number of nodes of a budget, rounded up; 0 if the budget is invalid.
func scaled(budget *intstr.IntOrString, nodes int) int {
	most, err := intstr.GetScaledValueFromIntOrPercent(budget, nodes, true)
	if err != nil {
		return 0
	}
	return most
}

// nodeDuration returns the time that a node of the policy's pool needs: the longer of the measured one and of an expected one. Updates are not alike, so
// some fast ones must not hide the time that an administrator expects.
func nodeDuration(p *api.NodeRolloutPolicy) time.Duration {
	switch measured := p.Status.NodeDuration; {
	case measured == nil:
		return expectedDuration(p)
	case p.Spec.ExpectedDuration == nil:
		return measured.Duration
	default:
		return max(measured.Duration, p.Spec.ExpectedDuration.Duration)
	}
}

func expectedDuration(p *api.NodeRolloutPolicy) time.Duration {
	if p.Spec.ExpectedDuration != nil {
		return p.Spec.ExpectedDuration.Duration
	}
	return defaultDuration
}

// checkDependencies returns an error if a pool depends on one that does not exist, or on itself.
func checkDependencies(pools []Pool, p Pool) error {
	for _, name := range p.Policy.Spec.DependsOn {
		if !slices.ContainsFunc(pools, func(other Pool) bool { return other.Name == name }) {
			return fmt.Errorf("spec.dependsOn names MachineConfigPool %s, which does not exist", name)
		}
	}
	if path := cycle(pools, p.Name); path != nil {
		return fmt.Errorf("spec.dependsOn has a cycle: %s", strings.Join(path, ", "))
	}
	return nil
}

// cycle returns the pools from a pool back to itself; nil if it does not depend on itself.
func cycle(pools []Pool, origin string) []string {
	visited := map[string]bool{}
	var path func(from string) []string
	path = func(from string) []string {
		i := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == from })
		if i < 0 || pools[i].Policy == nil {
			return nil
		}
		for _, name := range pools[i].Policy.Spec.DependsOn {
			if name == origin {
				return []string{from, name}
			}
			if visited[name] {
				continue
			}
			visited[name] = true
			if rest := path(name); rest != nil {
				return append([]string{from}, rest...)
			}
		}
		return nil
	}
	return path(origin)
}

// firstNotUpdated returns the first of the named pools that is not updated, or whose updated nodes are not healthy; nil if there is none.
func firstNotUpdated(pools []Pool, names []string) *Pool {
	for _, name := range names {
		if i := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == name && (!p.Updated || !p.Health.isGood()) }); i >= 0 {
			return &pools[i]
		}
	}
	return nil
}

// delay says why a pool is not updated or not healthy, with the remedy.
func (p *Pool) delay() string {
	switch {
	case p.Updated:
		return cmp.Or(p.Health.Invalid, p.Health.Why)
	case p.Error != "":
		return "it has no valid config: " + p.Error
	case p.Jobs.Why != "":
		return p.Jobs.Why
	case p.Paused:
		return fmt.Sprintf("it is paused; 'cvo nodes resume %s' resumes it", p.Name)
	case p.Degraded > 0:
		return fmt.Sprintf("it has %s; 'cvo nodes status %s' shows why", printable.Count(p.Degraded, "degraded node"), p.Name)
	}
	return "it is not updated yet"
}

// OSImage returns the release's image of the operating system for the config of a pool: the released one, or that of the pool's current config while the
// pool's policy holds it. current is that config; nil if the pool has none. The policy is nil if the pool has none.
func OSImage(p *api.NodeRolloutPolicy, current *mcfgv1.MachineConfig, released string) string {
	if p == nil || !p.Spec.HoldOSImage || current == nil || current.Annotations[api.OSImageOverriddenAnnotation] == "true" {
		return released
	}
	return current.Spec.OSImageURL
}

// Hold says why an administrator keeps a node at its config, as a sentence without subject and period; empty if the node is not held.
func Hold(n *corev1.Node) string {
	reason, isHeld := n.Annotations[api.NodeHoldAnnotation]
	switch {
	case !isHeld:
		return ""
	case reason == "":
		return fmt.Sprintf("is held by annotation %s", api.NodeHoldAnnotation)
	}
	return fmt.Sprintf("is held by annotation %s: %s", api.NodeHoldAnnotation, printable.Text(printable.Excerpt(reason, 256)))
}
