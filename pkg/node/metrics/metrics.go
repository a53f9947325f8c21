// Package metrics provides the metrics of the node stage: those that dashboards and alerts for OpenShift read, and ours. Each scrape creates the
// gauges from the objects in the controller's cache, so an object that is gone has no series. Only the durations of phases are counted, as the
// daemons report the ends of phases. A scrape sends no request.
package metrics

import (
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// drainPatience is the age at which a drain counts as an error. OpenShift has the same limit.
const drainPatience = time.Hour

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// descriptions are the descriptions of the gauges.
type descriptions struct {
	osImage, drainError, state, machines, updated, degraded, unavailable *prometheus.Desc
	slots, bound, blocked                                                *prometheus.Desc
}

// Descriptions returns the descriptions of the gauges.
func Descriptions() []*prometheus.Desc {
	d := describe()
	return []*prometheus.Desc{d.osImage, d.drainError, d.state, d.machines, d.updated, d.degraded, d.unavailable, d.slots, d.bound, d.blocked}
}

func describe() descriptions {
	return descriptions{
		osImage:     gauge("os_image_url_override", "1 if a MachineConfig of the pool replaces the release's image of the operating system, else 0.", "pool"),
		drainError:  gauge("mcc_drain_err", "1 if the drain of the node has been in progress for an hour, else 0. Absent if none is in progress.", "node"),
		machines:    gauge("mco_machine_count", "Nodes of the pool.", "pool"),
		updated:     gauge("mco_updated_machine_count", "Nodes of the pool that run its config.", "pool"),
		degraded:    gauge("mco_degraded_machine_count", "Nodes of the pool whose daemon cannot apply the config.", "pool"),
		unavailable: gauge("mco_unavailable_machine_count", "Nodes of the pool that are being updated, are cordoned or are not ready.", "pool"),
		state: gauge("mco_state", "The time at which the state of the node's pool began, in seconds since the epoch. The state is Updated, Updating, "+
			"Paused or Degraded. The reason of Degraded is NodeDegraded, RenderDegraded or InvalidPool; other states have none.",
			"node", "pool", "state", "reason"),
		slots: gauge("cvo_node_pool_slots", "Slots of the pool. Kind total is the maxUnavailable of the pool, 0 if it is invalid. Kind used counts nodes that are "+
			"unavailable or failed, and can exceed the total. Kind blocked counts those whose drain is delayed by a pod.", "pool", "kind"),
		bound: gauge("cvo_node_pool_bound", "1 for what limits the update of the pool now: None, InvalidConfig, InvalidPool, Paused, Nodes, MaxUnavailable or Budgets.",
			"pool", "bound"),
		blocked: gauge("cvo_node_drain_blocked_seconds", "Time since the start of a drain that a pod delays now. Absent for all other nodes.", "pool", "node"),
	}
}

// state is what the gauges are computed from.
type state struct {
	pools []*mcfgv1.MachineConfigPool
	nodes []*corev1.Node
	// isOverridden is true for rendered MachineConfigs whose image of the operating system is not the release's, by name.
	isOverridden map[string]bool
}

// metrics returns the gauges at a time.
func (s state) metrics(d descriptions, now time.Time) []prometheus.Metric {
	var list []prometheus.Metric
	add := func(desc *prometheus.Desc, value float64, labels ...string) {
		list = append(list, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...))
	}
	members := pool.Assign(s.pools, s.nodes)
	for _, p := range s.pools {
		add(d.osImage, number(s.isOverridden[p.Spec.Configuration.Name]), p.Name)
		add(d.machines, float64(p.Status.MachineCount), p.Name)
		add(d.updated, float64(p.Status.UpdatedMachineCount), p.Name)
		add(d.degraded, float64(p.Status.DegradedMachineCount), p.Name)
		add(d.unavailable, float64(p.Status.UnavailableMachineCount), p.Name)

		nodes := members.Nodes[p.Name]
		name, reason, since := stateOf(p)
		blocked := 0
		for _, n := range nodes {
			if !since.IsZero() {
				add(d.state, float64(since.Unix()), n.Name, p.Name, name, reason)
			}
			begun, isBlocked := drain.InProgress(n)
			if begun.IsZero() {
				continue
			}
			add(d.drainError, number(now.Sub(begun) >= drainPatience), n.Name)
			if isBlocked {
				blocked++
				add(d.blocked, now.Sub(begun).Seconds(), p.Name, n.Name)
			}
		}
		total, _ := pool.MaxUnavailable(p, len(nodes)) // the bound shows that it is invalid
		add(d.slots, float64(total), p.Name, "total")
		add(d.slots, float64(pool.Used(p, nodes)), p.Name, "used")
		add(d.slots, float64(blocked), p.Name, "blocked")
		active := pool.BoundOf(p, members)
		for _, b := range pool.Bounds() {
			add(d.bound, number(b == active), p.Name, string(b))
		}
	}
	return list
}

// stateOf returns the state of a pool, its reason and its start. The name is empty if the pool has no config yet.
func stateOf(p *mcfgv1.MachineConfigPool) (name, reason string, since time.Time) {
	const updated, updating, degraded = mcfgv1.MachineConfigPoolUpdated, mcfgv1.MachineConfigPoolUpdating, mcfgv1.MachineConfigPoolDegraded
	switch {
	case pool.IsTrue(p, degraded):
		reason = string(pool.BoundSpec)
		for _, kind := range []mcfgv1.MachineConfigPoolConditionType{mcfgv1.MachineConfigPoolNodeDegraded, mcfgv1.MachineConfigPoolRenderDegraded} {
			if pool.IsTrue(p, kind) {
				reason = string(kind)
			}
		}
		return string(degraded), reason, changed(p, degraded)
	case pool.IsTrue(p, updated):
		return string(updated), "", changed(p, updated)
	case pool.IsTrue(p, updating):
		return string(updating), "", changed(p, updating)
	case p.Spec.Paused:
		return "Paused", "", changed(p, updated, updating) // before or during an update
	default:
		return "", "", time.Time{}
	}
}

// changed returns the last time at which one of the conditions changed.
func changed(p *mcfgv1.MachineConfigPool, kinds ...mcfgv1.MachineConfigPoolConditionType) (last time.Time) {
	for _, kind := range kinds {
		if c := pool.Condition(p, kind); c != nil && c.LastTransitionTime.After(last) {
			last = c.LastTransitionTime.Time
		}
	}
	return last
}

// isOverridden reports whether a rendered MachineConfig has another image of the operating system than the release's.
func isOverridden(mc *mcfgv1.MachineConfig) bool {
	return mc.Annotations[api.OSImageOverriddenAnnotation] == "true"
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
