package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/policy"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// NewPool returns a pool for Plan, without the node of the leader. A pool that is paused, is being deleted or has no config has neither candidates
// nor nodes to retarget. all are the nodes of the cluster, and m has their pools. release is the controller's. refusal says why no node may get
// the pool's config now, as in Pool.Refused; empty if nodes may. The error says which field of the pool prevents updates.
func NewPool(p *mcfgv1.MachineConfigPool, m pool.Membership, all []*corev1.Node, release, refusal string) (input Pool, err error) {
	nodes := m.Nodes[p.Name]
	input = Pool{
		Name: p.Name, UpdatesControlPlane: pool.UpdatesControlPlane(p.Name, nodes), Undrained: map[string]bool{}, Used: pool.Used(p, nodes),
		UsedByZone: pool.UsedByZone(p, nodes), Refused: map[string]string{},
	}
	for _, n := range nodes {
		if pool.IsUndrained(n, all) {
			input.Undrained[n.Name] = true
		}
		if pool.IsDraining(n) {
			input.Draining = append(input.Draining, n)
		}
	}
	if why := m.Invalid[p.Name]; why != "" {
		return input, errors.New(why)
	}
	if input.Slots, err = pool.MaxUnavailable(p, len(nodes)); err != nil {
		return input, err
	}
	if p.Spec.Paused || p.DeletionTimestamp != nil || p.Spec.Configuration.Name == "" {
		return input, nil
	}
	refusal = cmp.Or(m.Doubt(p.Name), refusal)
	candidates := pool.Select(p, nodes, input.Slots)
	input.Candidates = candidates.Start
	for _, n := range slices.Concat(candidates.Start, candidates.Retarget) {
		if refusal != "" {
			input.Refused[n.Name] = refusal
		} else if daemon := n.Annotations[api.DaemonReleaseAnnotation]; daemon != release {
			input.Refused[n.Name] = fmt.Sprintf("waits for its daemon of release %s: the running one is of release %q", release, daemon)
		} else if held := policy.Hold(n); held != "" {
			input.Refused[n.Name] = held
		}
	}
	for _, n := range candidates.Retarget {
		if input.Refused[n.Name] == "" {
			input.Retarget = append(input.Retarget, n)
		} else {
			input.Held = append(input.Held, n)
		}
	}
	return input, nil
}

// RequireStaged refuses the candidates that have not staged the pool's config. It returns the MachineConfigNodes of those that stage it next; a
// candidate that is refused for another reason does not. nodes is the number of the pool's nodes, and machines are the MachineConfigNodes by name.
func (p *Pool) RequireStaged(config string, nodes int, machines map[string]*mcfgv1.MachineConfigNode) (next []*mcfgv1.MachineConfigNode) {
	staging := p.staging(config, nodes, machines)
	maps.Copy(p.Refused, staging.Waiting)
	p.refuseUnstageable(staging)
	return staging.Request
}

// ExpectStaged refuses only the candidates that cannot stage the pool's config, and expects the others to stage it. The arguments are those of
// RequireStaged.
func (p *Pool) ExpectStaged(config string, nodes int, machines map[string]*mcfgv1.MachineConfigNode) {
	p.refuseUnstageable(p.staging(config, nodes, machines))
}

func (p *Pool) staging(config string, nodes int, machines map[string]*mcfgv1.MachineConfigNode) pool.Staging {
	allowed := slices.DeleteFunc(slices.Clone(p.Candidates), func(n *corev1.Node) bool { return p.Refused[n.Name] != "" })
	return pool.Stage(config, allowed, nodes, machines)
}

func (p *Pool) refuseUnstageable(s pool.Staging) {
	p.Unstageable = s.Failed
	maps.Copy(p.Refused, s.Failed)
}

// State returns the pool's state that decides with its NodeRolloutPolicy, which is nil if it has none. isRendered reports whether the pool's
// config is what its MachineConfigs result in. The caller sets the other fields.
func (p *Pool) State(mcp *mcfgv1.MachineConfigPool, nodes []*corev1.Node, isRendered bool, machines map[string]*mcfgv1.MachineConfigNode, rules *api.NodeRolloutPolicy) policy.Pool {
	started, done := pool.Targeted(mcp, nodes)
	return policy.Pool{
		Name: p.Name, Policy: rules, Config: mcp.Spec.Configuration.Name, Started: started, Done: done,
		Nodes: len(nodes), Failed: pool.Failed(mcp, nodes, machines),
		Updated:  isRendered && pool.IsUpdated(mcp, nodes),
		Degraded: len(slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !pool.IsDegraded(n) })),
	}
}

// Restrict follows the decision of the pool's policy.
func (p *Pool) Restrict(d policy.Decision) {
	for name, is := range p.unprepared {
		if is && d.Unprepared != "" {
			p.Refused[name] = cmp.Or(p.Refused[name], d.Unprepared)
		}
	}
	p.Refuse(d.Refusal)
	p.Limit, p.Limited, p.PerZone = d.Limit, d.Limited, d.PerZone
}

// Refuse refuses the candidates that are not refused for another reason. why is a sentence without subject and period; an empty one refuses none.
func (p *Pool) Refuse(why string) {
	if why == "" {
		return
	}
	for _, n := range p.Candidates {
		p.Refused[n.Name] = cmp.Or(p.Refused[n.Name], why)
	}
}

// CanStart reports whether a node may start as far as slots and refusals decide. Budgets and other pools may still prevent it.
func (p *Pool) CanStart() bool {
	return p.free() > 0 && slices.ContainsFunc(p.Candidates, func(n *corev1.Node) bool { return p.Refused[n.Name] == "" })
}

// OtherRelease says why the controller of a release may neither render nor assign configs, as a sentence without subject and period; it returns
// an empty text if it may. An update of the stage begins with the ControllerConfig, which is nil if it does not exist. Until its new controller
// runs, the MachineConfigs of both releases may be mixed.
func OtherRelease(config *mcfgv1.ControllerConfig, release string) string {
	if config == nil {
		return fmt.Sprintf("waits for ControllerConfig %s, which the release creates", api.MachineConfigController)
	}
	if named := config.Annotations[api.ReleaseAnnotation]; named != release {
		return fmt.Sprintf("waits for the controller of release %q, which ControllerConfig %s names; the running one is of %q", named, config.Name, release)
	}
	return ""
}

// Guarded returns the plans of a planner for pools. Before a control-plane node starts, guard says why it must not, as a sentence without subject
// and period, or returns an empty text. If it refuses the node, Guarded refuses all candidates of the control plane and plans again.
func Guarded(pools []Pool, planner func([]Pool) []Plan, guard func(*corev1.Node) string) []Plan {
	plans := planner(pools)
	why := ""
	for i := range plans {
		if pools[i].UpdatesControlPlane && len(plans[i].Start) > 0 { // of one pool: they start one at a time
			why = guard(plans[i].Start[0])
		}
	}
	if why == "" {
		return plans
	}
	for i := range pools {
		if pools[i].UpdatesControlPlane {
			pools[i].Refuse(why)
		}
	}
	return planner(pools)
}
