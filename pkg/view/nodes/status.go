// Package nodes shows the updates of nodes: their state, the plan for the next ones, and the effect of a pause or a retry. It takes MachineConfigPools,
// MachineConfigs, Nodes, pods and PodDisruptionBudgets as values, and returns values and texts for the command line and a console. It uses the
// packages with which the controller decides, so it shows what the controller does. Package collect reads the objects.
package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// Cluster has the objects of a cluster that describe the updates of nodes.
type Cluster struct {
	// At is the time of the read.
	At    time.Time
	Pools []*mcfgv1.MachineConfigPool
	Nodes []*corev1.Node
	// Machines are the MachineConfigNodes by name.
	Machines map[string]*mcfgv1.MachineConfigNode
}

// Find returns the pool with a name. Its error lists the existing pools.
func (c Cluster) Find(name string) (*mcfgv1.MachineConfigPool, error) {
	names := make([]string, len(c.Pools))
	for i, p := range c.Pools {
		if p.Name == name {
			return p, nil
		}
		names[i] = p.Name
	}
	slices.Sort(names)
	return nil, fmt.Errorf("there is no MachineConfigPool %q: the pools are %s", name, cmp.Or(strings.Join(names, ", "), "not created yet"))
}

// Status is the state of the updates of nodes at one time.
type Status struct {
	At    time.Time `json:"at"`
	Pools []Pool    `json:"pools"`
	// WithoutPool lists nodes that no pool selects.
	WithoutPool []string `json:"withoutPool"`
	// Released lists nodes that an administrator has taken out of the hands of the node stage. They are in no pool.
	Released []string `json:"released"`
	// WithoutDaemon lists nodes of pools whose daemon has not reported. No count includes them.
	WithoutDaemon []string `json:"withoutDaemon"`
	// Contested lists nodes that several custom pools select. They are in no pool.
	Contested []Contested `json:"contested"`
}

// Contested is a node that several custom pools select.
type Contested struct {
	Node  string   `json:"node"`
	Pools []string `json:"pools"`
}

// PoolState is the state of a pool in one word.
type PoolState string

// States of a pool.
const (
	// PoolDegraded means that the MachineConfigs cannot be rendered, a field of the pool is invalid, or a node is degraded.
	PoolDegraded PoolState = "Degraded"
	// PoolEmpty means that the pool has no rendered config yet.
	PoolEmpty PoolState = "NotRendered"
	// PoolUpdated means that all nodes run the pool's config.
	PoolUpdated PoolState = "Updated"
	// PoolPaused means that no node starts its update before an administrator resumes the pool.
	PoolPaused PoolState = "Paused"
	// PoolUpdating means that nodes update, or wait for their turn.
	PoolUpdating PoolState = "Updating"
)

// Pool is a MachineConfigPool and those of its nodes that need attention.
type Pool struct {
	Name   string    `json:"name"`
	State  PoolState `json:"state"`
	Paused bool      `json:"paused"`
	// Config is the name of the rendered MachineConfig that all nodes of the pool are to run; empty if there is none yet.
	Config string `json:"config"`
	// Total is the number of nodes whose daemon has reported. Done nodes run the config, updating nodes have started and are not degraded.
	// Unavailable nodes use the slots of maxUnavailable. A node may be counted twice.
	Total       int `json:"total"`
	Done        int `json:"done"`
	Updating    int `json:"updating"`
	Degraded    int `json:"degraded"`
	Unavailable int `json:"unavailable"`
	// MaxUnavailable is the number of slots; 0 if spec.maxUnavailable is invalid.
	MaxUnavailable int `json:"maxUnavailable"`
	// RenderError and SpecError explain why the MachineConfigs cannot be rendered, and which field of the pool prevents updates. NodeErrors
	// has the reasons of degraded nodes as the pool reports them.
	RenderError string `json:"renderError,omitempty"`
	SpecError   string `json:"specError,omitempty"`
	NodeErrors  string `json:"nodeErrors,omitempty"`
	// Waiting explains why nodes wait although slots are free: it has the reason of the first one, and the number of the others.
	Waiting string `json:"waiting,omitempty"`
	// Nodes are the nodes that are not done, and those that are done and unavailable. Degraded ones are first, then those with a blocked drain.
	Nodes []Node `json:"nodes"`
}

// Phase is the phase of a node's update.
type Phase string

// Phases of a node's update.
const (
	Degraded  Phase = "Degraded"
	Draining  Phase = "Draining"
	Rebooting Phase = "Rebooting"
	Applying  Phase = "Applying"
	Waiting   Phase = "Waiting"
	Done      Phase = "Done"
)

// phases is the order of phases in lists.
var phases = []Phase{Degraded, Draining, Rebooting, Applying, Waiting, Done}

// Node is a node of a pool.
type Node struct {
	Name  string `json:"name"`
	Phase Phase  `json:"phase"`
	// Current and Desired are names of rendered MachineConfigs. Current is empty for a node that has none yet. Desired is the pool's config if
	// the node has not started.
	Current string `json:"currentConfig,omitempty"`
	Desired string `json:"desiredConfig,omitempty"`
	// Since is the start of the phase; nil if unknown.
	Since *time.Time `json:"since,omitempty"`
	// Attempt counts the drains for this update; 0 before the first.
	Attempt int `json:"attempt,omitempty"`
	// Why explains why the node waits, is degraded or is unavailable, or what blocks its drain; empty if nothing does.
	Why string `json:"why,omitempty"`
}

// NewStatus returns the status of all pools, or of the named one.
func NewStatus(c Cluster, only string) (*Status, error) {
	pools := c.Pools
	if only != "" {
		p, err := c.Find(only)
		if err != nil {
			return nil, err
		}
		pools = []*mcfgv1.MachineConfigPool{p}
	}
	members := pool.Assign(c.Pools, c.Nodes)
	s := &Status{At: c.At, Pools: []Pool{}, WithoutPool: []string{}, Released: []string{}, WithoutDaemon: []string{}, Contested: []Contested{}}
	turn := turnOf(c.Pools, members)
	for _, p := range pools {
		s.Pools = append(s.Pools, newPool(p, members, c.Machines, turn, c.At))
	}
	sorted.By(s.Pools, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	if only != "" {
		return s, nil
	}
	s.WithoutPool, s.WithoutDaemon = append(s.WithoutPool, members.Poolless...), append(s.WithoutDaemon, members.Silent...)
	s.Released = append(s.Released, members.Released...)
	for _, node := range slices.Sorted(maps.Keys(members.Contested)) {
		s.Contested = append(s.Contested, Contested{Node: node, Pools: members.Contested[node]})
	}
	return s, nil
}

// turnOf returns the first control-plane pool with an unavailable or failed node; empty if there is none. Other control-plane nodes wait for it.
func turnOf(pools []*mcfgv1.MachineConfigPool, members pool.Membership) string {
	for _, p := range pools {
		if nodes := members.Nodes[p.Name]; pool.UpdatesControlPlane(p.Name, nodes) && pool.Used(p, nodes) > 0 {
			return p.Name
		}
	}
	return ""
}

// newPool returns a pool with its nodes. turn is the result of turnOf.
func newPool(p *mcfgv1.MachineConfigPool, members pool.Membership, machines map[string]*mcfgv1.MachineConfigNode, turn string, now time.Time) Pool {
	nodes := members.Nodes[p.Name]
	counts := pool.Status(p, nodes, pool.StatusOptions{}, now)
	result := Pool{
		Name: p.Name, Paused: p.Spec.Paused, Config: p.Spec.Configuration.Name,
		Total: len(nodes), Done: int(counts.UpdatedMachineCount), Degraded: int(counts.DegradedMachineCount), Unavailable: int(counts.UnavailableMachineCount),
		RenderError: pool.Message(p, mcfgv1.MachineConfigPoolRenderDegraded),
		NodeErrors:  pool.Message(p, mcfgv1.MachineConfigPoolNodeDegraded),
		Waiting:     pool.Message(p, pool.NodesWaiting),
		Nodes:       []Node{},
	}
	var err error
	if result.MaxUnavailable, err = pool.MaxUnavailable(p, len(nodes)); err != nil {
		result.SpecError = err.Error()
	}
	if slices.Contains(members.SelectAll, p.Name) {
		result.SpecError = "spec.nodeSelector is empty, so it would select every node, and the pool gets none: set a label"
	}
	result.SpecError = cmp.Or(members.Invalid[p.Name], result.SpecError)
	used := pool.Used(p, nodes)
	delay := members.Doubt(p.Name)
	if delay == "" && turn != "" && pool.UpdatesControlPlane(p.Name, nodes) {
		wait := plan.Wait{Cause: plan.ControlPlane}
		if used == 0 {
			wait.OtherPool = turn
		}
		delay = wait.String()
	}
	for _, n := range nodes {
		if pool.HoldsSlot(n) && !pool.IsDegraded(n) {
			result.Updating++
		}
		node := newNode(p, n)
		switch node.Phase {
		case Done:
			switch {
			case !pool.IsReady(n):
				node.Why = unreadiness(n)
			case pool.AwaitsJob(n):
				node.Why = awaitsJob
			default:
				continue
			}
		case Waiting:
			_, failure := pool.IsStaged(machines[n.Name], result.Config)
			node.Why = result.waits(n, used, failure, delay)
		default:
		}
		result.Nodes = append(result.Nodes, node)
	}
	sorted.By(result.Nodes, func(a, b Node) int { return cmp.Compare(a.rank(), b.rank()) })
	result.State = result.state()
	return result
}

func (p *Pool) state() PoolState {
	switch {
	case p.Degraded > 0 || p.RenderError != "" || p.SpecError != "":
		return PoolDegraded
	case p.Config == "":
		return PoolEmpty
	case p.Done == p.Total:
		return PoolUpdated
	case p.Paused:
		return PoolPaused
	}
	return PoolUpdating
}

func newNode(p *mcfgv1.MachineConfigPool, n *corev1.Node) Node {
	node := Node{Name: n.Name, Phase: phaseOf(p, n), Current: n.Annotations[api.CurrentConfigAnnotation], Desired: n.Annotations[api.DesiredConfigAnnotation]}
	if node.Desired == "" || pool.IsDone(n) {
		node.Desired = p.Spec.Configuration.Name
	}
	node.Attempt, _ = strconv.Atoi(n.Annotations[api.CordonAnnotation])
	_, isBlocked := drain.InProgress(n)
	switch {
	case node.Phase == Degraded:
		node.Why = n.Annotations[api.NodeReasonAnnotation]
	case node.Phase == Draining && isBlocked:
		node.Why = condition(n, corev1.NodeDrainInProgress).Message
	}
	// The controller sets one of the first three during an update.
	for _, kind := range []corev1.NodeConditionType{corev1.NodeDrainInProgress, corev1.NodeMaintenanceInProgress, corev1.NodeMaintenancePlanned} {
		if c := condition(n, kind); c != nil && c.Status == corev1.ConditionTrue && node.Since == nil {
			node.Since = &c.LastTransitionTime.Time
		}
	}
	if c := condition(n, corev1.NodeReady); c != nil && c.Status != corev1.ConditionTrue && node.Since == nil {
		node.Since = &c.LastTransitionTime.Time
	}
	return node
}

func phaseOf(p *mcfgv1.MachineConfigPool, n *corev1.Node) Phase {
	notes := n.Annotations
	switch {
	case pool.IsDegraded(n):
		return Degraded
	case pool.IsDone(n) && notes[api.DesiredConfigAnnotation] == p.Spec.Configuration.Name:
		return Done
	case notes[api.DesiredConfigAnnotation] == "" || notes[api.NodeStateAnnotation] == api.NodeDone:
		return Waiting
	case notes[api.NodeStateAnnotation] == api.NodeRebooting:
		return Rebooting
	case drain.IsPending(n):
		return Draining
	}
	return Applying
}

// rank is the position of the node's group in a list.
func (n Node) rank() int {
	rank := 2 * slices.Index(phases, n.Phase)
	if n.Phase == Draining && n.Why == "" {
		rank++
	}
	return rank
}

// waits explains why a node has not started. used is the number of used slots. failure says why the node cannot stage the config, and delay why no
// node of the pool may start, even if a slot is free. The result is empty if the node may start at once.
func (p *Pool) waits(n *corev1.Node, used int, failure, delay string) string {
	_, isReturned := pool.SlotReleased(n)
	switch {
	case pool.HoldsSlot(n):
		return "waits for its daemon to start the update"
	case p.Config == "":
		return "waits for the pool's first rendered config"
	case !pool.IsReady(n):
		return "waits because it " + unreadiness(n)
	case p.Paused:
		return "waits because the pool is paused"
	case p.SpecError != "":
		return "waits because a field of the pool is invalid"
	case failure != "":
		return pool.Unstageable(p.Config, failure)
	case delay != "":
		return delay
	case used >= p.MaxUnavailable:
		return plan.Wait{Cause: plan.Slot, Slots: p.MaxUnavailable}.String()
	case isReturned:
		return plan.Wait{Cause: plan.Returned}.String()
	case p.Waiting != "":
		return fmt.Sprintf("waits although a slot is free: 'cvo nodes plan %s' shows why", p.Name)
	}
	return ""
}

// awaitsJob explains why a node that is done keeps its slot.
const awaitsJob = "waits for the Job after its update"

// unreadiness explains why a node is not ready.
func unreadiness(n *corev1.Node) string {
	if n.Spec.Unschedulable {
		return "is cordoned"
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeDiskPressure, corev1.NodeNetworkUnavailable} {
		healthy := corev1.ConditionFalse
		if kind == corev1.NodeReady {
			healthy = corev1.ConditionTrue
		}
		if c := condition(n, kind); c != nil && c.Status != healthy {
			return fmt.Sprintf("has condition %s=%s: %s", kind, c.Status, cmp.Or(c.Message, "no message"))
		}
	}
	return "is not ready"
}

// condition returns a condition of a node, or nil.
func condition(n *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}
