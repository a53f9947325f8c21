package main

import (
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

// epoch is the start of every story in the tests.
func epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// at returns the time after this many seconds of the story.
func at(seconds float64) time.Time { return epoch().Add(time.Duration(seconds * float64(time.Second))) }

func component(name string, done, total int) report.Component {
	return report.Component{Name: name, Done: done, Total: total}
}

func runlevel(number int, components ...report.Component) report.Runlevel {
	r := report.Runlevel{Runlevel: number, Components: components}
	for _, c := range components {
		r.Done, r.Total = r.Done+c.Done, r.Total+c.Total
	}
	return r
}

// progressOf summarizes runlevels as the operator does.
func progressOf(version string, mode release.Mode, problems []report.Problem, levels ...report.Runlevel) *report.Progress {
	p := &report.Progress{Release: release.Release{Version: version}, Mode: mode, Problems: problems, Runlevels: levels}
	for _, l := range levels {
		p.Done, p.Total = p.Done+l.Done, p.Total+l.Total
	}
	return p
}

func operatorProblem(name string, level int, state gate.State, message string, since time.Time) report.Problem {
	return report.Problem{
		ID:       manifest.ID{Group: "config.openshift.io", Kind: "ClusterOperator", Name: name},
		Runlevel: level, Component: name, State: state, Message: message, Since: since,
	}
}

func condition(kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus, message string) configv1.ClusterOperatorStatusCondition {
	return configv1.ClusterOperatorStatusCondition{Type: kind, Status: status, Message: message}
}

// clusterVersion returns a ClusterVersion with the given conditions, and with a history if a version is given.
func clusterVersion(completed, accepted, progressing, failing string) *configv1.ClusterVersion {
	status := func(message string) configv1.ConditionStatus {
		if message == "" {
			return configv1.ConditionFalse
		}
		return configv1.ConditionTrue
	}
	cv := &configv1.ClusterVersion{}
	available := ""
	if completed != "" {
		available = "Done applying " + completed
		cv.Status.History = []configv1.UpdateHistory{{State: configv1.CompletedUpdate, Version: completed, Verified: true}}
	}
	cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		condition(configv1.OperatorAvailable, status(available), available),
		condition(api.Failing, status(failing), failing),
		condition(configv1.OperatorProgressing, status(progressing), progressing),
		condition(api.ReleaseAccepted, status(accepted), accepted),
	}
	return cv
}

const accepted = `Payload loaded version="1.1.0" image="127.0.0.1:41234/platform/release@sha256:757f1ebccc7b4b34e799affc01a954358bc8ebb489d8dbcc3a73347935b7ed4d" architecture=""`

// preparing returns a story before the install.
func preparing() story {
	return story{began: epoch(), operators: map[string]configv1.ClusterOperatorStatus{}, steps: []step{
		{name: "registry", began: at(0), ended: at(0)},
		{name: "control plane", began: at(0)},
		{name: "signing key", began: at(0), ended: at(0.4)},
		{name: "release 1.0.0", began: at(0.4), ended: at(0.5)},
	}}
}

// installing returns a story in the middle of the install.
func installing() story {
	s := preparing()
	s.phases = []phase{{to: "1.0.0", began: at(5)}}
	s.clusterVersion(clusterVersion("", accepted, "Unable to apply 1.0.0: some cluster operators are not available", "Cluster operators dns, network are not available"), at(5.2))
	s.progress(progressOf("1.0.0", release.Initializing, []report.Problem{
		{
			ID: manifest.ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "pools.example.com"}, Runlevel: 10, Component: "config",
			State: gate.Waiting, Message: "CustomResourceDefinition.apiextensions.k8s.io pools.example.com has not been observed yet", Since: at(5.5),
		},
		operatorProblem("dns", 30, gate.Failed, "Cluster operator dns is not available", at(6)),
		operatorProblem("network", 30, gate.Failed, "Cluster operator network is not available", time.Time{}),
	}, runlevel(0, component("cluster-version-operator", 4, 4)), runlevel(10, component("config", 3, 7)),
		runlevel(30, component("dns", 8, 9), component("network", 8, 9)), runlevel(80, component(api.MachineConfigOperator, 0, 11))), at(6.5))
	return s
}

// installed returns a story at the end of the install.
func installed() story {
	s := installing()
	p := progressOf("1.0.0", release.Initializing, nil, runlevel(0, component("cluster-version-operator", 4, 4)), runlevel(10, component("config", 7, 7)),
		runlevel(30, component("dns", 9, 9), component("network", 9, 9)), runlevel(80, component(api.MachineConfigOperator, 11, 11)))
	p.HandedOver = true
	s.progress(p, at(8))
	s.clusterVersion(clusterVersion("1.0.0", accepted, "", ""), at(8.5))
	s.phases[0].requests = requests{writes: 48, reads: 12}
	return s
}

// updating returns a story in the middle of the update, with names of various widths.
func updating(failing string) story {
	s := installed()
	s.failing = failing
	s.phases = append(s.phases, phase{from: "1.0.0", to: "1.1.0", began: at(9)})
	s.notes = append(s.notes, note{at: at(9), kind: commandNote, text: `kubectl patch clusterversion version --type merge -p '{"spec":{"desiredUpdate":{"version":"1.1.0"}}}'`})
	s.operators["dns"] = configv1.ClusterOperatorStatus{Conditions: []configv1.ClusterOperatorStatusCondition{
		condition(configv1.OperatorProgressing, configv1.ConditionTrue, "dns is moving to version 1.1.0"),
	}}
	s.clusterVersion(clusterVersion("1.0.0", accepted, "Working towards 1.1.0: 29 of 60 done (48% complete), waiting on dns, a-network-with-a-very-long-name", ""), at(9.5))
	before := []report.Runlevel{
		runlevel(0, component("cluster-version-operator", 4, 4)), runlevel(10, component("config", 7, 7)),
	}
	after := []report.Runlevel{
		runlevel(50, component("console", 0, 6), component("ingress", 0, 6), component("monitoring", 0, 6), component("区域存储", 0, 6), component("autoscaler", 0, 6)),
		runlevel(80, component(api.MachineConfigOperator, 0, 11)), runlevel(90, component("monitoring", 0, 1)),
	}
	levels := func(dns, network int) []report.Runlevel {
		middle := runlevel(30, component("dns", dns, 9), component("a-network-with-a-very-long-name", network, 9))
		return append(append(append([]report.Runlevel{}, before...), middle), after...)
	}
	s.progress(progressOf("1.1.0", release.Updating, nil, levels(0, 0)...), at(10))
	s.progress(progressOf("1.1.0", release.Updating, []report.Problem{
		operatorProblem("a-network-with-a-very-long-name", 30, gate.Waiting, "Cluster operator a-network-with-a-very-long-name is updating versions", at(11)),
		operatorProblem("dns", 30, gate.Waiting, "Cluster operator dns is updating versions", at(11.5)),
		{
			ID: manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "dns", Name: "resolver"}, Runlevel: 30, Component: "dns",
			State: gate.Waiting, Message: "Deployment dns/resolver has 1 of 3 replicas updated and 2 available", Since: at(11.5),
		},
	}, levels(8, 8)...), at(12))
	return s
}

// stuck returns a story of an update whose operator dns fails.
func stuck() story {
	s := updating("dns")
	s.operators["dns"] = configv1.ClusterOperatorStatus{Conditions: []configv1.ClusterOperatorStatusCondition{
		condition(configv1.OperatorProgressing, configv1.ConditionTrue, "dns is moving to version 1.1.0"),
		condition(configv1.OperatorDegraded, configv1.ConditionTrue, "dns cannot start version 1.1.0 of its operand"),
	}}
	s.clusterVersion(clusterVersion("1.0.0", accepted, "Unable to apply 1.1.0: the cluster operator dns is not available", "Cluster operator dns is not available"), at(13))
	p := progressOf("1.1.0", release.Updating, []report.Problem{operatorProblem("dns", 30, gate.Failed, "Cluster operator dns is not available", at(13))})
	for _, l := range s.current().levels {
		if l.Runlevel.Runlevel == 30 {
			l.Runlevel = runlevel(30, component("dns", 8, 9), component("a-network-with-a-very-long-name", 9, 9))
		}
		p.Runlevels, p.Done, p.Total = append(p.Runlevels, l.Runlevel), p.Done+l.Done, p.Total+l.Total
	}
	s.progress(p, at(14))
	return s
}

// updated returns a story at the end of the demo.
func updated() story {
	s := updating("")
	p := progressOf("1.1.0", release.Updating, nil)
	for _, l := range s.current().levels {
		if l.Runlevel.Runlevel < 80 {
			for i := range l.Components {
				l.Components[i].Done = l.Components[i].Total
			}
			l.Done = l.Total
		}
		p.Runlevels, p.Done, p.Total = append(p.Runlevels, l.Runlevel), p.Done+l.Done, p.Total+l.Total
	}
	s.progress(p, at(15))
	last := *p
	last.Runlevels = append([]report.Runlevel{}, p.Runlevels...)
	last.Runlevels[4] = runlevel(80, component(api.MachineConfigOperator, 11, 11))
	last.HandedOver = true
	s.progress(&last, at(17))
	s.clusterVersion(clusterVersion("1.1.0", accepted, "", ""), at(17.2))
	s.current().requests = requests{writes: 63, reads: 4}
	return s
}

// nodesUpdating returns a story after the update of the control plane, while nodes update.
func nodesUpdating() story {
	s := updated()
	s.pools = []nodes.Pool{
		{Name: api.ControlPlanePool, State: nodes.PoolUpdated, Total: 3, Done: 3},
		{Name: "unused", State: nodes.PoolUpdated},
		{Name: api.WorkerPool, State: nodes.PoolUpdating, Total: 7, Done: 3, Nodes: []nodes.Node{
			{Name: "worker-4", Phase: nodes.Draining}, {Name: "worker-3", Phase: nodes.Applying}, {Name: "worker-5", Phase: nodes.Waiting},
		}},
	}
	return s
}

// nodesUpdated returns a story at the end of the demo, with nodes.
func nodesUpdated() story {
	s := updated()
	s.nodes = map[string]*corev1.Node{"control-0": {}, "worker-0": {}}
	s.current().nodesEnded = at(19)
	return s
}
