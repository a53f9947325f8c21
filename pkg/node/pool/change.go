package pool

import (
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// Change is a write to a node.
type Change struct {
	Node *corev1.Node
	// Target requests the pool's config from the node.
	Target bool
	// slotReleased is the value of api.SlotReleasedAnnotation if the node returns to its config; empty if it does not.
	slotReleased string
	// Taint is true if the node should have UpdateInProgressTaint, which keeps new pods away from nodes whose update is pending.
	Taint bool
	// Job is the config after whose update a Job must succeed: api.NodeJobAnnotation. Empty for none.
	Job string
}

// Apply makes the change in n, a copy of the node.
func (c Change) Apply(n *corev1.Node, config string) {
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	if delete(n.Annotations, api.NodeJobAnnotation); c.Job != "" {
		n.Annotations[api.NodeJobAnnotation] = c.Job
	}
	if c.Target {
		n.Annotations[api.DesiredConfigAnnotation] = config
		delete(n.Annotations, api.DesiredImageAnnotation)
	}
	if c.slotReleased != "" {
		returnToCurrent(n)
		n.Annotations[api.SlotReleasedAnnotation] = c.slotReleased
	} else if !c.Taint {
		delete(n.Annotations, api.SlotReleasedAnnotation)
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isUpdateInProgress)
	if c.Taint {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: api.UpdateInProgressTaint, Effect: corev1.TaintEffectPreferNoSchedule})
	}
}

// Changes returns the writes that a pool's nodes need now, first those to targeted, the nodes that get the pool's config. job returns Change.Job of a
// node. The taints in a paused pool, and in one without a config, do not change.
func Changes(p *mcfgv1.MachineConfigPool, nodes, targeted []*corev1.Node, job func(*corev1.Node) string) []Change {
	var changes []Change
	for _, n := range targeted {
		changes = append(changes, Change{Node: n, Target: true, Job: job(n)})
	}
	isFixed := p.Spec.Paused || p.Spec.Configuration.Name == ""
	for _, n := range nodes {
		if slices.Contains(targeted, n) {
			continue
		}
		isTainted := slices.ContainsFunc(n.Spec.Taints, isUpdateInProgress)
		c := Change{Node: n, Taint: isTainted, Job: job(n)}
		if !isFixed {
			c.Taint = !hasTarget(n, p.Spec.Configuration.Name)
		}
		if c.Taint != isTainted || c.Job != n.Annotations[api.NodeJobAnnotation] {
			changes = append(changes, c)
		}
	}
	return changes
}

// Release removes what the stage has written from n, a copy of a released node: the taint and, once the node's daemon has ended, the requested config
// and a cordon of ours. A daemon that ends has the cordon lifted itself, after the pending change. isChanged reports whether there was something to remove.
func Release(n *corev1.Node) (isChanged bool) {
	taints := len(n.Spec.Taints)
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isUpdateInProgress)
	isChanged = len(n.Spec.Taints) != taints
	if n.Annotations[api.NodeStateAnnotation] != api.NodeReleased {
		return isChanged
	}
	if _, ours := n.Annotations[api.CordonAnnotation]; ours {
		n.Spec.Unschedulable = false
	}
	for _, name := range []string{api.DesiredConfigAnnotation, api.DesiredImageAnnotation, api.CordonAnnotation, api.SlotReleasedAnnotation, api.NodeJobAnnotation} {
		if _, has := n.Annotations[name]; has {
			delete(n.Annotations, name)
			isChanged = true
		}
	}
	return isChanged
}

func isUpdateInProgress(t corev1.Taint) bool { return t.Key == api.UpdateInProgressTaint }
