package insight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
	nodepool "github.com/cluster-version/cvo/pkg/node/pool"
)

// Pool is a machine config pool with its nodes.
type Pool struct {
	Name        string `json:"name"`
	State       State  `json:"assessment"`
	Paused      bool   `json:"paused"`
	Total       int    `json:"total"`
	Updated     int    `json:"updated"`
	Available   int    `json:"available"`
	Progressing int    `json:"progressing"`
	Draining    int    `json:"draining"`
	Outdated    int    `json:"outdated"`
	Excluded    int    `json:"excluded"`
	Degraded    int    `json:"degraded"`
	Nodes       []Node `json:"nodes"`
}

// Phase is a node's progress towards the target.
type Phase string

// Phases of nodes.
const (
	PhaseDraining  Phase = "Draining"
	PhaseUpdating  Phase = "Updating"
	PhaseRebooting Phase = "Rebooting"
	PhasePaused    Phase = "Paused"
	PhasePending   Phase = "Pending"
	PhaseUpdated   Phase = "Updated"
)

// NodeState is the state of a node.
type NodeState string

// States of nodes.
const (
	NodeDegraded    NodeState = "Degraded"
	NodeUnavailable NodeState = "Unavailable"
	NodeProgressing NodeState = "Progressing"
	NodeExcluded    NodeState = "Excluded"
	NodeOutdated    NodeState = "Outdated"
	NodeCompleted   NodeState = "Completed"
)

// Node is one node of a pool.
type Node struct {
	Name  string    `json:"name"`
	State NodeState `json:"assessment"`
	Phase Phase     `json:"phase"`
	// Version is empty if unknown.
	Version        string `json:"version,omitempty"`
	DesiredVersion string `json:"desiredVersion,omitempty"`
	// Estimate is the remaining time: ? if unknown, - if nothing remains.
	Estimate    string `json:"estimate"`
	Message     string `json:"message,omitempty"`
	Unavailable bool   `json:"unavailable"`
	Degraded    bool   `json:"degraded"`

	updating, updated bool
}

// stages maps phases to states and estimates, in the order of the node list.
var stages = []struct {
	phase    Phase
	state    NodeState
	estimate string
}{
	{PhaseDraining, NodeProgressing, "+10m"},
	{PhaseUpdating, NodeProgressing, "+5m"},
	{PhaseRebooting, NodeProgressing, "+5m"},
	{PhasePaused, NodeExcluded, "-"},
	{PhasePending, NodeOutdated, "?"},
	{PhaseUpdated, NodeCompleted, "-"},
}

// nodeStates is the order of states in the node list.
var nodeStates = []NodeState{NodeDegraded, NodeUnavailable, NodeProgressing, NodeExcluded, NodeOutdated, NodeCompleted}

func assessPools(in Input, a *Assessment) ([]Pool, []Insight) {
	members, strays, selectors := membership(in)
	without := len(in.Nodes) > 0 && !slices.ContainsFunc(in.Pools, func(p mcfgv1.MachineConfigPool) bool { return p.Name == api.ControlPlanePool })
	switch {
	case without:
		a.addMissing(SectionControlNodes, "there is no MachineConfigPool %q", api.ControlPlanePool)
	case len(strays) > 0:
		a.addMissing(SectionWorkers, "%d nodes, such as %s, are in no MachineConfigPool", len(strays), strays[0])
	}
	var pools []Pool
	var found []Insight
	var unknown []string
	for i := range in.Pools {
		pool := &in.Pools[i]
		p := Pool{Name: pool.Name, Paused: pool.Spec.Paused, Nodes: []Node{}}
		for _, node := range members[pool.Name] {
			assessed, insights := assessNode(in, pool, node)
			p.Nodes = append(p.Nodes, assessed)
			found = append(found, insights...)
			if current := node.Annotations[api.CurrentConfigAnnotation]; assessed.Version == "" && !slices.Contains(unknown, current) {
				unknown = append(unknown, current)
			}
		}
		sorted.By(p.Nodes, func(a, b Node) int {
			return cmp.Or(
				cmp.Compare(slices.Index(nodeStates, a.State), slices.Index(nodeStates, b.State)),
				cmp.Compare(stageOf(a.Phase), stageOf(b.Phase)),
				strings.Compare(a.Name, b.Name))
		})
		p.count()
		if selectors.Invalid[p.Name] != "" {
			section := SectionWorkers
			if p.Name == api.ControlPlanePool {
				section = SectionControlNodes
			}
			p.State = StateUnknown
			a.addMissing(section, "the nodes of MachineConfigPool %s are unknown, and may appear in other pools: its spec.nodeSelector is invalid", p.Name)
		}
		if p.Excluded > 0 && p.Paused {
			found = append(found, Insight{
				Level: Warning, Impact: ImpactStalled,
				Summary:     fmt.Sprintf("Outdated nodes in a paused pool '%s' will not be updated", p.Name),
				Description: "Pool is paused, which stops all changes to the nodes in the pool, including updates. The nodes will not be updated until the pool is unpaused by the administrator.",
				Reference:   referencePaused,
				Resources:   []Resource{{configPools, p.Name}},
			})
		}
		pools = append(pools, p)
	}
	if len(unknown) > 0 && !in.AsOriginal {
		slices.Sort(unknown)
		if unknown[0] == "" {
			unknown[0] = "(none named by the node)"
		}
		a.addMissing(SectionWorkers, "the release of MachineConfig %s is unknown, and so is the version of its nodes", strings.Join(unknown, ", "))
	}
	return pools, found
}

// membership returns the nodes of each pool, the names of nodes without a pool, and the selectors of the pools.
func membership(in Input) (members map[string][]*corev1.Node, strays []string, selectors nodepool.Selectors) {
	selectors = nodepool.NewSelectors(pointers.To(in.Pools))
	members = map[string][]*corev1.Node{}
	for i := range in.Nodes {
		node := &in.Nodes[i]
		if name, _ := selectors.Pool(node); name != "" && !nodepool.IsReleased(node) {
			members[name] = append(members[name], node)
		} else {
			strays = append(strays, node.Name)
		}
	}
	return members, strays, selectors
}

func (p *Pool) count() {
	p.Total = len(p.Nodes)
	pending := 0
	for _, node := range p.Nodes {
		if !node.Unavailable {
			p.Available++
		}
		if node.Degraded {
			p.Degraded++
		}
		switch node.Phase {
		case PhaseUpdated:
			p.Updated++
			continue
		case PhasePaused:
			p.Excluded++
		case PhasePending:
			pending++
		case PhaseDraining, PhaseUpdating, PhaseRebooting:
			if node.Phase == PhaseDraining {
				p.Draining++
			}
			if !node.Degraded {
				p.Progressing++
			}
		}
		p.Outdated++
	}
	switch {
	case p.Updated == p.Total:
		p.State = StateCompleted
	case pending == p.Total:
		p.State = StatePending
	case p.Degraded > 0:
		p.State = StateDegraded
	case p.Excluded > 0:
		p.State = StateExcluded
	default:
		p.State = StateProgressing
	}
}

func assessNode(in Input, pool *mcfgv1.MachineConfigPool, node *corev1.Node) (Node, []Insight) {
	notes := node.Annotations
	n := Node{Name: node.Name, Version: in.Releases[notes[api.CurrentConfigAnnotation]], DesiredVersion: in.Releases[notes[api.DesiredConfigAnnotation]]}
	troubles := troublesOf(node)
	n.Unavailable = len(troubles) > 0 && notes[api.DesiredImageAnnotation] == ""
	n.Degraded = notes[api.DesiredConfigAnnotation] != "" && nodepool.IsDegraded(node)

	settled := notes[api.CurrentConfigAnnotation] == notes[api.DesiredConfigAnnotation]
	asked := notes[api.DesiredConfigAnnotation] == pool.Spec.Configuration.Name
	if history := in.ClusterVersion.Status.History; len(history) > 0 {
		goal := history[0].Version
		_, directed := notes[api.DesiredConfigAnnotation]
		// An update to another architecture keeps the version, so only the configuration shows that it is complete.
		n.updated = n.Version != "" && n.Version == goal &&
			(!migratesArchitecture(in.ClusterVersion) || !directed || settled && asked)
		n.updating = !n.updated && n.Version != "" && n.DesiredVersion != "" && n.DesiredVersion == goal && !settled && asked
	}
	n.Phase = phaseOf(n, pool, node)
	stage := stages[stageOf(n.Phase)]
	n.State, n.Estimate = stage.state, stage.estimate

	var found []Insight
	resources := []Resource{{nodeKind, node.Name}}
	if n.Unavailable && !n.updating {
		n.State, n.Estimate, n.Message = NodeUnavailable, "?", troubles.join(func(t trouble) string { return t.reason })
		if troubles.serious(in) {
			found = append(found, Insight{
				Since: troubles.since(), Level: Warning, Impact: ImpactSpeed,
				Summary:     troubles.join(func(t trouble) string { return t.summary(node.Name) }),
				Description: troubles.join(trouble.description), Reference: referenceNodes, Resources: resources,
			})
		}
	}
	if n.Degraded {
		n.State, n.Estimate, n.Message = NodeDegraded, "?", notes[api.NodeReasonAnnotation]
		found = append(found, Insight{
			Level: Error, Impact: ImpactStalled, Summary: fmt.Sprintf("Node %s is degraded", node.Name),
			Description: n.Message, Reference: referenceNodes, Resources: resources,
		})
	}
	if n.updated {
		n.Estimate = "-"
	}
	// The row already shows the node's name. A short name might be part of another word, so it stays.
	if len(node.Name) >= 8 {
		n.Message = strings.ReplaceAll(n.Message, node.Name, "<node>")
	}
	return n, found
}

func phaseOf(n Node, pool *mcfgv1.MachineConfigPool, node *corev1.Node) Phase {
	state := node.Annotations[api.NodeStateAnnotation]
	switch {
	case n.updating && drains(node):
		return PhaseDraining
	case n.updating && state == "Rebooting":
		return PhaseRebooting
	case n.updating && state == "Done":
		return PhaseUpdated
	case n.updating:
		return PhaseUpdating
	case n.updated:
		return PhaseUpdated
	case pool.Spec.Paused:
		return PhasePaused
	}
	return PhasePending
}

// drains reports whether an updating node is being drained. Until the daemon notices the update, its state is still
// Done, and draining is the next step.
func drains(node *corev1.Node) bool {
	notes := node.Annotations
	if notes[api.DesiredDrainAnnotation] == "" || notes[api.AppliedDrainAnnotation] == "" {
		return false
	}
	return drain.IsPending(node) || notes[api.NodeStateAnnotation] == "Done"
}

func stageOf(phase Phase) int {
	for i, stage := range stages {
		if stage.phase == phase {
			return i
		}
	}
	return len(stages) - 1
}

// trouble is a reason to treat a node as unavailable.
type trouble struct {
	reason, message string
	since           time.Time
	// verb completes "Node x …"; empty for troubles that every update causes.
	verb string
	// want is the healthy value of the condition.
	want  string
	grace time.Duration
}

type troubles []trouble

func troublesOf(node *corev1.Node) troubles {
	var found troubles
	for _, c := range node.Status.Conditions {
		t := trouble{message: c.Message, since: c.LastTransitionTime.Time}
		healthy := corev1.ConditionFalse
		switch c.Type {
		case corev1.NodeReady:
			healthy = corev1.ConditionTrue
			t.reason, t.verb, t.grace = "Not ready", "is not ready", 5*time.Minute
		case corev1.NodeDiskPressure:
			t.reason, t.verb, t.grace = "Disk pressure", "has disk pressure", time.Minute
		case corev1.NodeNetworkUnavailable:
			t.reason, t.verb, t.grace = "Network unavailable", "has unavailable network", time.Minute
		default:
			continue
		}
		if c.Status != healthy {
			t.want = fmt.Sprintf("%s!=%s", c.Type, healthy)
			found = append(found, t)
		}
	}
	if node.Spec.Unschedulable {
		found = append(found, trouble{reason: "Node is marked unschedulable"})
	}
	if len(found) == 0 && !nodepool.IsDone(node) && !nodepool.IsDegraded(node) {
		found = append(found, trouble{reason: "Machine Config Daemon is processing the node"})
	}
	return found
}

func (t trouble) summary(node string) string {
	if t.verb == "" {
		return t.reason
	}
	return "Node " + node + " " + t.verb
}

func (t trouble) description() string {
	if t.verb == "" {
		return t.reason
	}
	return fmt.Sprintf("Node has a %s condition with Reason %q and message %q", t.want, t.reason, t.message)
}

func (ts troubles) join(text func(trouble) string) string {
	texts := make([]string, len(ts))
	for i, t := range ts {
		texts[i] = text(t)
	}
	return strings.Join(texts, " | ")
}

// serious reports whether a trouble that not every update causes has outlasted its grace period.
func (ts troubles) serious(in Input) bool {
	return slices.ContainsFunc(ts, func(t trouble) bool {
		return t.verb != "" && (in.AsOriginal || in.Now.Sub(t.since) >= t.grace)
	})
}

func (ts troubles) since() time.Time {
	var oldest time.Time
	for _, t := range ts {
		if !t.since.IsZero() && (oldest.IsZero() || t.since.Before(oldest)) {
			oldest = t.since
		}
	}
	return oldest
}
