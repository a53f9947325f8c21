package nodes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/policy"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// Plan is what the controller would do next if nothing else changed.
type Plan struct {
	At    time.Time  `json:"at"`
	Pools []PoolPlan `json:"pools"`
	// Unselected lists those of the added MachineConfigs that no pool selects.
	Unselected []string `json:"unselected"`
}

// PoolPlan is the plan for one pool. A paused pool is planned as if it were resumed.
type PoolPlan struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
	// Config is the pool's config, and Target the one that nodes get: the MachineConfigs render to it, or it is Config if they cannot be
	// rendered. Target is empty if no node starts because of Error. Sources are the MachineConfigs.
	Config  string   `json:"config"`
	Target  string   `json:"target"`
	Sources []string `json:"sources"`
	// Error explains why nodes get no new config: the MachineConfigs cannot be rendered, or a field of the pool is invalid. A running update
	// continues.
	Error string `json:"error,omitempty"`
	// Jobs are sentences about the Jobs that the pool's policy requires for each node, and about one that failed for the pool's config.
	Jobs []string `json:"jobs"`
	// Reported says why the controller has not started a node that starts by this plan; empty if nothing is reported. The API servers may be the reason
	// for a control-plane node, and metrics and Jobs for a pool whose policy has them: the plan checks none of these.
	Reported string `json:"reported,omitempty"`
	// Total is the number of the pool's nodes, and Done the number of those that run the target.
	Total          int `json:"total"`
	Done           int `json:"done"`
	MaxUnavailable int `json:"maxUnavailable"`
	// Transitions are the changes from the configs that nodes run to the target.
	Transitions []Transition `json:"transitions"`
	// Nodes are the nodes that do not run the target, or that wait for the Job after their update: first those whose update is in progress, then those that start now, in order, then those
	// that wait, in the order of zone and age.
	Nodes []PlannedNode `json:"nodes"`

	err error
}

// Transition is the change of a host from one config to the target of its pool.
type Transition struct {
	// From is the name of a rendered MachineConfig; empty for hosts without a config.
	From string `json:"from"`
	// Changes are sentences without a period, such as "file /etc/a changed".
	Changes []string `json:"changes"`
	// Drain and Reboot report whether the node must be drained and rebooted. Actions are all actions on the host.
	Drain   bool     `json:"drain"`
	Reboot  bool     `json:"reboot"`
	Actions []string `json:"actions"`
	// Unknown explains why the change is not known. The plan then expects a drain.
	Unknown string `json:"unknown,omitempty"`
}

// mayDrain reports whether the change needs a drain, or may need one.
func (t Transition) mayDrain() bool { return t.Drain || t.Unknown != "" }

// Turn says when a node starts.
type Turn string

// Turns.
const (
	// Running means that the update is in progress.
	Running Turn = "Running"
	// Start means that the node starts now.
	Start Turn = "Start"
	// Wait means that the node starts later.
	Wait Turn = "Wait"
)

// PlannedNode is a node that does not run the target.
type PlannedNode struct {
	Name string `json:"name"`
	Turn Turn   `json:"turn"`
	// From is the config that the node runs: the name of one of the pool's transitions.
	From string `json:"from"`
	// Why explains why the node waits.
	Why string `json:"why,omitempty"`
	// Evicted is the number of pods that a drain evicts. Awaited lists those whose completion a drain rule waits for first. Of the others, Unmanaged
	// lists those without a controller, which are deleted permanently, and EmptyDir those with a volume that is deleted with the pod.
	Evicted   int      `json:"evicted"`
	Awaited   []string `json:"awaited"`
	Unmanaged []string `json:"unmanaged"`
	EmptyDir  []string `json:"emptyDir"`
	// ZeroBudgets lists PodDisruptionBudgets of these pods that allow no disruption now. Contested lists pods that several budgets select,
	// which the API server never evicts.
	ZeroBudgets []string `json:"zeroBudgets"`
	Contested   []string `json:"contested"`

	node *corev1.Node
}

// Configs are MachineConfigs, and the rules for their effects.
type Configs struct {
	// Stored are all MachineConfigs of the cluster. Added are not in the cluster yet, and replace those with the same name.
	Stored, Added []*mcfgv1.MachineConfig
	// Controller names the release of the stage; nil if it does not exist.
	Controller *mcfgv1.ControllerConfig
	// RolloutPolicies are the NodeRolloutPolicies by name, which decide when nodes start.
	RolloutPolicies map[string]*api.NodeRolloutPolicy
	// Policies select the actions after a change.
	Policies operatorv1.NodeDisruptionPolicyClusterStatus
}

// Draft is a plan without pods.
type Draft struct {
	cluster Cluster
	plan    *Plan
	// drafts are the pools whose nodes may start, those of the plan and the others, because all share the budgets.
	drafts []*draft
	// rules are the drain rules by node.
	rules map[string]drain.Rules
}

// draft is a pool with its target.
type draft struct {
	*PoolPlan
	pool  *mcfgv1.MachineConfigPool
	nodes []*corev1.Node
	// input has what the planner needs.
	input plan.Pool
	// hasChecks reports whether the pool's policy has a query of metrics, or Jobs before the updates.
	hasChecks bool
	shown     bool
}

// NewDraft renders the MachineConfigs of all pools and finds the nodes that need the result. Only limits the plan to one pool. The error is a
// *config.Error for an invalid added MachineConfig.
func NewDraft(c Cluster, configs Configs, only string) (*Draft, error) {
	if only != "" {
		if _, err := c.Find(only); err != nil {
			return nil, err
		}
	}
	for _, mc := range configs.Added {
		if err := config.Validate(mc); err != nil {
			return nil, err
		}
	}
	d := &Draft{cluster: c, rules: map[string]drain.Rules{}, plan: &Plan{At: c.At, Pools: []PoolPlan{}, Unselected: []string{}}}
	r := newRenderer(configs, c.Pools)
	members := pool.Assign(c.Pools, c.Nodes)
	for _, p := range c.Pools {
		isShown := only == "" || only == p.Name
		d.drafts = append(d.drafts, new(r.draft(p, members, c.Nodes, c.Machines, isShown)))
	}
	d.restrict(configs.RolloutPolicies)
	// The controller does not start nodes of paused pools, so they must not take budgets from others.
	slices.SortFunc(d.drafts, func(a, b *draft) int {
		return cmp.Or(compareBool(a.Paused, b.Paused), strings.Compare(a.Name, b.Name))
	})
	for _, mc := range configs.Added {
		if !r.selected[mc.Name] {
			d.plan.Unselected = append(d.plan.Unselected, mc.Name)
		}
	}
	return d, nil
}

// restrict refuses nodes by the policies, as the controller does.
func (d *Draft) restrict(policies map[string]*api.NodeRolloutPolicy) {
	states := make([]policy.Pool, len(d.drafts))
	for i, p := range d.drafts {
		states[i] = p.input.State(p.pool, p.nodes, p.err == nil, d.cluster.Machines, policies[p.Name])
		states[i].Paused, states[i].Error = p.Paused, p.Error
		states[i].Health = policy.ReportedHealth(policies[p.Name], p.Target != p.Config)
		states[i].Jobs = policy.ReportedJobs(policies[p.Name], p.Target != p.Config)
	}
	for i, decision := range policy.Decide(states, d.plan.At) {
		p := d.drafts[i]
		p.input.Restrict(decision)
		rules := states[i].Policy
		p.hasChecks = rules != nil && (rules.Spec.Health.PoolUnhealthyIf != "" || rules.Spec.Jobs.Before != nil)
		p.addJobs(rules, states[i].Jobs.Why)
		drains, err := drain.NewRules(rules)
		if err != nil {
			continue // no node starts by an invalid policy
		}
		for _, n := range p.nodes {
			d.rules[n.Name] = drains
		}
	}
}

// addJobs adds the sentences about the Jobs of a policy, which is nil if the pool has none. failure is one about a failed Job, or empty.
func (d *draft) addJobs(rules *api.NodeRolloutPolicy, failure string) {
	for _, step := range policy.Steps() {
		if job := policy.JobOf(rules, step); job != nil {
			d.Jobs = append(d.Jobs, fmt.Sprintf("%s the update of each node, a Job of CronJob %s/%s must succeed within %s",
				step, job.Namespace, job.Name, duration.HumanDuration(job.Deadline.Duration)))
		}
	}
	if failure != "" {
		d.Jobs = append(d.Jobs, "A Job failed: "+failure)
	}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// NeedsPods reports whether the plan depends on pods and budgets: a node may start or be drained.
func (d *Draft) NeedsPods() bool {
	return slices.ContainsFunc(d.drafts, func(p *draft) bool {
		return p.shown && (len(p.input.Candidates) > 0 || slices.ContainsFunc(p.Transitions, Transition.mayDrain))
	})
}

// NeedsLeader reports whether the plan depends on the node of the leading controller.
func (d *Draft) NeedsLeader() bool {
	return slices.ContainsFunc(d.drafts, func(p *draft) bool {
		return p.shown && p.input.UpdatesControlPlane && len(p.input.Candidates) > 1
	})
}

// renderer renders the MachineConfigs of pools.
type renderer struct {
	configs Configs
	byName  map[string]*mcfgv1.MachineConfig
	// all are the values of byName.
	all []*mcfgv1.MachineConfig
	// selected has the names of MachineConfigs that a pool selects.
	selected map[string]bool
	// osImage is the release's image of the operating system. The controller knows it from the release, and the last rendered MachineConfigs of pools
	// that do not hold it have it. If all hold it, theirs is the best guess.
	osImage string
}

func newRenderer(configs Configs, pools []*mcfgv1.MachineConfigPool) *renderer {
	r := &renderer{configs: configs, byName: map[string]*mcfgv1.MachineConfig{}, selected: map[string]bool{}}
	for _, mc := range slices.Concat(configs.Stored, configs.Added) {
		r.byName[mc.Name] = mc
	}
	r.all = slices.Collect(maps.Values(r.byName))
	held := ""
	for _, p := range pools {
		mc, rules := r.byName[p.Spec.Configuration.Name], configs.RolloutPolicies[p.Name]
		if mc == nil || mc.Annotations[api.OSImageOverriddenAnnotation] == "true" {
			continue
		}
		if rules != nil && rules.Spec.HoldOSImage {
			held = cmp.Or(held, mc.Spec.OSImageURL)
		} else {
			r.osImage = cmp.Or(r.osImage, mc.Spec.OSImageURL)
		}
	}
	r.osImage = cmp.Or(r.osImage, held)
	return r
}

// draft returns the plan of a pool without pods. all are the nodes of the cluster, and m has their pools. The plan expects that nodes stage the
// config, except those that cannot.
func (r *renderer) draft(p *mcfgv1.MachineConfigPool, m pool.Membership, all []*corev1.Node, machines map[string]*mcfgv1.MachineConfigNode, shown bool) draft {
	nodes := m.Nodes[p.Name]
	d := draft{
		pool: p.DeepCopy(), nodes: nodes, shown: shown,
		PoolPlan: &PoolPlan{
			Name: p.Name, Paused: p.Spec.Paused, Config: p.Spec.Configuration.Name, Total: len(nodes),
			Sources: []string{}, Jobs: []string{}, Transitions: []Transition{}, Nodes: []PlannedNode{},
		},
	}
	if shown {
		d.pool.Spec.Paused = false
	}
	rendered, err := r.render(&d)
	if err != nil {
		rendered = r.byName[p.Spec.Configuration.Name] // the controller continues with the pool's config
	}
	if rendered != nil {
		d.pool.Spec.Configuration.Name = rendered.Name
	} else {
		d.pool.Spec.Paused = true
	}
	var invalid error
	release := ""
	if c := r.configs.Controller; c != nil {
		release = c.Annotations[api.ReleaseAnnotation] // the plan expects that its controller runs
	}
	d.input, invalid = plan.NewPool(d.pool, m, all, release, plan.OtherRelease(r.configs.Controller, release))
	if err = cmp.Or(invalid, err); err != nil {
		d.err, d.Error = err, err.Error()
	}
	if rendered == nil || invalid != nil {
		return d
	}
	d.input.ExpectStaged(rendered.Name, len(nodes), machines)
	d.MaxUnavailable, d.Target = d.input.Slots, rendered.Name
	d.Done = int(pool.Status(d.pool, nodes, pool.StatusOptions{}, time.Time{}).UpdatedMachineCount)
	for _, n := range nodes {
		if from := n.Annotations[api.CurrentConfigAnnotation]; from != rendered.Name && d.transition(from) == nil {
			d.Transitions = append(d.Transitions, r.transition(from, rendered))
		}
	}
	sorted.By(d.Transitions, func(a, b Transition) int { return strings.Compare(a.From, b.From) })
	return d
}

// render renders the MachineConfigs that the pool selects, as the controller does.
func (r *renderer) render(d *draft) (*mcfgv1.MachineConfig, error) {
	selected, err := pool.Sources(d.pool, r.all)
	if err != nil {
		return nil, err
	}
	for _, mc := range selected {
		d.Sources = append(d.Sources, mc.Name)
		r.selected[mc.Name] = true
	}
	return config.Render(d.Name, selected, policy.OSImage(r.configs.RolloutPolicies[d.Name], r.byName[d.Config], r.osImage))
}

// transition returns the change from a config to a rendered one.
func (r *renderer) transition(from string, to *mcfgv1.MachineConfig) Transition {
	t := Transition{From: from, Changes: []string{}, Actions: []string{}}
	next, err := config.Decode(to)
	mc := r.byName[from]
	switch {
	case from == "":
		t.Unknown = "the host has no config yet; its daemon compares the host with the new one, and drains the node only if they differ"
		return t
	case mc == nil:
		t.Unknown = "this MachineConfig no longer exists"
		return t
	case err != nil:
		t.Unknown = err.Error()
		return t
	}
	current, err := config.Decode(mc)
	if err != nil {
		t.Unknown = err.Error()
		return t
	}
	change := config.Difference(current, next)
	decision := disruption.Decide(change, r.configs.Policies)
	t.Changes, t.Drain = append(t.Changes, sentences(change)...), decision.Drain
	for _, action := range decision.Actions {
		t.Reboot = t.Reboot || action.Type == operatorv1.RebootStatusAction
		t.Actions = append(t.Actions, actionText(action))
	}
	return t
}

// sentences describes a change.
func sentences(c config.Change) []string {
	var out []string
	for _, set := range []struct {
		noun string
		config.Set
	}{
		{"file", c.Files}, {"unit", c.Units}, {"kernel argument", c.KernelArguments}, {"extension", c.Extensions},
	} {
		for _, list := range []struct {
			names []string
			verb  string
		}{{set.Added, "added"}, {set.Changed, "changed"}, {set.Removed, "removed"}} {
			for _, name := range list.names {
				out = append(out, fmt.Sprintf("%s %s %s", set.noun, name, list.verb))
			}
		}
	}
	if n := len(c.SSHKeys.All()); n > 0 {
		out = append(out, fmt.Sprintf("%d SSH keys changed", n))
	}
	for _, step := range []struct {
		noun string
		config.Step
	}{{"image", c.OSImage}, {"kernel", c.KernelType}} {
		if step.Step != (config.Step{}) {
			out = append(out, fmt.Sprintf("%s changed from %s to %s", step.noun, cmp.Or(step.From, "default"), cmp.Or(step.To, "default")))
		}
	}
	if c.FIPS {
		out = append(out, "FIPS mode changed")
	}
	return out
}

func actionText(a disruption.Action) string {
	if a.Type == operatorv1.DaemonReloadStatusAction {
		return "reload systemd"
	}
	return strings.TrimSpace(strings.ToLower(string(a.Type)) + " " + disruption.Unit(a))
}

// Workload has the pods of a cluster, and what decides about their evictions.
type Workload struct {
	// Pods are the pods on nodes.
	Pods    []*corev1.Pod
	Budgets []policyv1.PodDisruptionBudget
	// Leader is the pod of the leading controller; empty if it is not known.
	Leader types.NamespacedName
}

// Plan returns the plan. It counts only the pods that a drain evicts. It checks neither the API servers nor
// metrics, as the controller does before a node starts.
func (d *Draft) Plan(w Workload) *Plan {
	index := plan.NewIndex(w.Budgets)
	byNode := map[string][]*corev1.Pod{}
	leader := ""
	var etcd []corev1.Pod
	for _, pod := range w.Pods {
		if pod.Namespace == w.Leader.Namespace && pod.Name == w.Leader.Name {
			leader = pod.Spec.NodeName
		}
		if plan.IsEtcd(pod) {
			etcd = append(etcd, *pod)
		}
		if drain.ActionFor(pod, func(_, _ string) bool { return true }) == drain.Evict && !d.rules[pod.Spec.NodeName].Skips(pod) {
			index.AddPod(pod)
			byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], pod)
		}
	}
	inputs := make([]plan.Pool, len(d.drafts))
	for i := range d.drafts {
		inputs[i] = d.drafts[i].input
		inputs[i].Leader = leader
	}
	planner := func(pools []plan.Pool) []plan.Plan { return index.Plan(pools, d.cluster.At) }
	guard := func(n *corev1.Node) string { return plan.EtcdRefusal(n, d.cluster.Nodes, etcd, w.Budgets) }
	for i, result := range plan.Guarded(inputs, planner, guard) {
		if p := d.drafts[i]; p.shown {
			if (p.input.UpdatesControlPlane || p.hasChecks) && len(result.Start) > 0 {
				p.Reported = pool.Message(p.pool, pool.NodesWaiting)
			}
			p.addNodes(result)
			for n := range p.Nodes {
				if t := p.transition(p.Nodes[n].From); t != nil && t.mayDrain() && !pool.IsStranded(p.Nodes[n].node, d.cluster.Nodes) {
					p.Nodes[n].addPods(byNode[p.Nodes[n].Name], d.rules[p.Nodes[n].Name], index)
				}
			}
		}
	}
	byName := slices.Clone(d.drafts)
	slices.SortFunc(byName, func(a, b *draft) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range byName {
		if p.shown {
			d.plan.Pools = append(d.plan.Pools, *p.PoolPlan)
		}
	}
	return d.plan
}

// addNodes adds the nodes that do not run the target.
func (d *draft) addNodes(result plan.Plan) {
	add := func(n *corev1.Node, turn Turn, why string) {
		d.Nodes = append(d.Nodes, PlannedNode{
			node: n, Name: n.Name, Turn: turn, From: n.Annotations[api.CurrentConfigAnnotation], Why: why,
			Awaited: []string{}, Unmanaged: []string{}, EmptyDir: []string{}, ZeroBudgets: []string{}, Contested: []string{},
		})
	}
	if d.Target == "" {
		return
	}
	var unready []*corev1.Node
	for _, n := range d.nodes {
		isTarget := n.Annotations[api.DesiredConfigAnnotation] == d.Target
		switch {
		case isTarget && pool.IsDegraded(n):
			add(n, Running, "failed: "+n.Annotations[api.NodeReasonAnnotation])
		case isTarget && !pool.IsDone(n):
			add(n, Running, "")
		case isTarget && pool.AwaitsJob(n):
			add(n, Running, awaitsJob)
		case !isTarget && pool.HoldsSlot(n) && !slices.Contains(d.input.Retarget, n):
			add(n, Running, d.input.Refused[n.Name])
		case !isTarget && !pool.HoldsSlot(n) && !pool.IsReady(n):
			unready = append(unready, n)
		}
	}
	for _, n := range d.input.Retarget {
		add(n, Start, "is updated to another config now, and keeps its slot")
	}
	for _, n := range result.Start {
		add(n, Start, "")
	}
	for _, w := range result.Waiting {
		add(w.Node, Wait, w.String())
	}
	for _, n := range unready {
		add(n, Wait, "waits because it "+unreadiness(n))
	}
}

// addPods adds the pods that a drain of the node would evict by its rules.
func (n *PlannedNode) addPods(pods []*corev1.Pod, rules drain.Rules, index *plan.Index) {
	n.Evicted = len(pods)
	for _, pod := range pods {
		name := pod.Namespace + "/" + pod.Name
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue // nothing of it is lost
		}
		if rules.Delay(pod) != "" {
			n.Awaited = append(n.Awaited, name)
			continue
		}
		if drain.IsUnmanaged(pod) {
			n.Unmanaged = append(n.Unmanaged, name)
		}
		if drain.HasLocalData(pod) {
			n.EmptyDir = append(n.EmptyDir, name)
		}
	}
	zero, contested := index.Refusals(n.Name)
	for _, budget := range zero {
		n.ZeroBudgets = append(n.ZeroBudgets, budget.String())
	}
	n.Contested = append(n.Contested, contested...)
	for _, names := range [][]string{n.Awaited, n.Unmanaged, n.EmptyDir, n.ZeroBudgets, n.Contested} {
		slices.Sort(names)
	}
}

// transition returns the transition from a config, or nil if no node needs it.
func (p *PoolPlan) transition(from string) *Transition {
	for i := range p.Transitions {
		if p.Transitions[i].From == from {
			return &p.Transitions[i]
		}
	}
	return nil
}

// Errors returns the reasons why pools cannot be planned, joined; nil if there are none.
func (p *Plan) Errors() error {
	var errs []error
	for _, pool := range p.Pools {
		if pool.err != nil {
			errs = append(errs, fmt.Errorf("MachineConfigPool %s: %w", pool.Name, pool.err))
		}
	}
	return errors.Join(errs...)
}
