package pool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cluster-version/cvo/pkg/api"
)

// Membership assigns nodes to pools.
type Membership struct {
	// Nodes are the nodes of each pool whose daemon has reported, sorted by name.
	Nodes map[string][]*corev1.Node
	// Contested lists the custom pools that select the same node, or may do so because their selector is invalid. Such a node is in no pool.
	Contested map[string][]string
	// Poolless lists nodes that no pool selects.
	Poolless []string
	// Released lists nodes that an administrator has taken out of the hands of the node stage. They are in no pool.
	Released []string
	// Silent lists nodes whose daemon has not reported.
	Silent []string
	Selectors
}

// Assign returns the nodes of each pool. A custom pool has precedence over the worker pool, and the control-plane pool over both. A node that
// several custom pools select is in no pool, even if it belongs to the control plane. Assign omits Windows nodes.
// A released node is in no pool.
func Assign(pools []*mcfgv1.MachineConfigPool, nodes []*corev1.Node) Membership {
	m := Membership{Nodes: map[string][]*corev1.Node{}, Contested: map[string][]string{}, Selectors: NewSelectors(pools)}
	for _, n := range nodes {
		if IsWindows(n) {
			continue
		}
		name, custom := m.Pool(n)
		switch {
		case IsReleased(n):
			m.Released = append(m.Released, n.Name)
			continue
		case name == "" && len(custom) > 0:
			m.Contested[n.Name] = custom
			continue
		case name == "":
			m.Poolless = append(m.Poolless, n.Name)
			continue
		}
		if !HasReported(n) {
			m.Silent = append(m.Silent, n.Name)
			continue
		}
		m.Nodes[name] = append(m.Nodes[name], n)
	}
	for _, members := range m.Nodes {
		slices.SortFunc(members, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	}
	for _, names := range [][]string{m.Poolless, m.Released, m.Silent} {
		slices.Sort(names)
	}
	return m
}

// IsWindows reports whether a node runs Windows. The stage leaves out such nodes.
func IsWindows(n *corev1.Node) bool { return n.Labels[corev1.LabelOSStable] == "windows" }

// Selectors select the nodes of pools.
type Selectors struct {
	byPool map[string]labels.Selector
	// SelectAll lists pools whose empty selector would select every node. They get no nodes.
	SelectAll []string
	// Invalid has the reason for each pool whose selector is invalid. The nodes of such a pool are not known, and seem to belong to other pools.
	Invalid map[string]string
}

// NewSelectors returns the selectors of pools.
func NewSelectors(pools []*mcfgv1.MachineConfigPool) Selectors {
	s := Selectors{byPool: map[string]labels.Selector{}, Invalid: map[string]string{}}
	for _, p := range pools {
		selector, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector) // selects nothing if nil
		switch {
		case err != nil:
			nodes := "no node outside pool " + api.ControlPlanePool
			if p.Name == api.ControlPlanePool {
				nodes = "no node"
			}
			s.Invalid[p.Name] = fmt.Sprintf("spec.nodeSelector is invalid: %v. Correct it: until then, %s starts its update", err, nodes)
		case selector.Empty():
			s.SelectAll = append(s.SelectAll, p.Name)
		default:
			s.byPool[p.Name] = selector
		}
	}
	slices.Sort(s.SelectAll)
	return s
}

// Doubt says why the nodes of a pool may belong to another one, as a sentence without subject and period. It is empty if no selector is invalid,
// and for the control-plane pool, which has precedence over the others; Pool excludes nodes that several custom pools may select.
func (s Selectors) Doubt(pool string) string {
	if len(s.Invalid) == 0 || pool == api.ControlPlanePool {
		return ""
	}
	return fmt.Sprintf("waits because it may belong to MachineConfigPool %s, whose spec.nodeSelector is invalid", slices.Min(slices.Collect(maps.Keys(s.Invalid))))
}

// Pool returns the name of a node's pool, and the custom pools that select the node. Assign describes the precedence. The name is empty if no
// pool selects the node or several custom pools do. Of a control-plane node that a custom pool selects, a custom pool with an invalid selector
// counts as another one.
func (s Selectors) Pool(n *corev1.Node) (name string, custom []string) {
	var controlPlane, worker bool
	for name, selector := range s.byPool {
		if !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		switch name {
		case api.ControlPlanePool:
			controlPlane = true
		case api.WorkerPool:
			worker = true
		default:
			custom = append(custom, name)
		}
	}
	if controlPlane && len(custom) > 0 { // an invalid selector may be the second one, and the control-plane pool is updated
		for name := range s.Invalid {
			if name != api.ControlPlanePool && name != api.WorkerPool {
				custom = append(custom, name)
			}
		}
	}
	slices.Sort(custom)
	switch {
	case len(custom) > 1:
		return "", custom
	case controlPlane:
		return api.ControlPlanePool, custom
	case len(custom) == 1:
		return custom[0], custom
	case worker:
		return api.WorkerPool, nil
	}
	return "", nil
}

// BuiltIn returns the two pools that every cluster has, for a cluster without them. A label selector cannot express "or", so the nodes'
// labels decide: distributions of Kubernetes label control-plane nodes with control-plane or master, and workers with worker or not at all.
func BuiltIn(nodes []*corev1.Node) (controlPlane, worker *mcfgv1.MachineConfigPool) {
	carried := func(label string) bool {
		return slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return has(n, label) })
	}
	selected := masterRole
	if carried(controlPlaneRole) {
		selected = controlPlaneRole
	}
	workers := &metav1.LabelSelector{MatchLabels: map[string]string{workerRole: ""}}
	if !carried(workerRole) {
		workers = &metav1.LabelSelector{}
		for _, label := range controlPlaneRoles {
			workers.MatchExpressions = append(workers.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpDoesNotExist})
		}
	}
	controlPlane = builtIn(api.ControlPlanePool, &metav1.LabelSelector{MatchLabels: map[string]string{selected: ""}})
	controlPlane.Labels[api.RequiredPoolLabel] = ""
	return controlPlane, builtIn(api.WorkerPool, workers)
}

func builtIn(name string, nodes *metav1.LabelSelector) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			api.BuiltInPoolLabel: "", api.PoolLabelPrefix + name: "",
		}},
		Spec: mcfgv1.MachineConfigPoolSpec{
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{api.MachineConfigRoleLabel: name}},
			NodeSelector:          nodes,
		},
	}
}
