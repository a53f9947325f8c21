// Package pool takes MachineConfigPools, Nodes and MachineConfigNodes as values. It returns the nodes of each pool, the nodes that may stage a
// config or start an update, and the counts and conditions of the pool's status. Package update reads the objects and writes the results.
package pool

import (
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
)

// IsStranded reports whether the pods of a node could run nowhere else: it is a control-plane node, and none of the other nodes is ready. Such
// a node is updated without a drain. A worker is always drained.
func IsStranded(n *corev1.Node, nodes []*corev1.Node) bool {
	return IsControlPlaneNode(n) && !slices.ContainsFunc(nodes, func(other *corev1.Node) bool { return other.Name != n.Name && IsReady(other) })
}

// CanMove reports whether a pod could run on another node: one that is ready, and that the pod's nodeSelector, its required affinity to nodes and
// its tolerations allow.
func CanMove(pod *corev1.Pod, nodes []*corev1.Node) bool {
	return slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
		return n.Name != pod.Spec.NodeName && IsReady(n) && labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(n.Labels)) &&
			meetsAffinity(&pod.Spec, n) && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return !tolerates(pod, t) })
	})
}

// meetsAffinity reports whether a node meets a term of the affinity that the pods of a spec require. A term with fields, or with an operator other
// than those of labels, counts as one that no node meets.
func meetsAffinity(spec *corev1.PodSpec, n *corev1.Node) bool {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		var required metav1.LabelSelector
		for _, e := range term.MatchExpressions {
			required.MatchExpressions = append(required.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values})
		}
		selector, err := metav1.LabelSelectorAsSelector(&required)
		return err == nil && len(term.MatchFields) == 0 && !selector.Empty() && selector.Matches(labels.Set(n.Labels))
	})
}

func tolerates(pod *corev1.Pod, t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectPreferNoSchedule || slices.ContainsFunc(pod.Spec.Tolerations, func(own corev1.Toleration) bool {
		return own.ToleratesTaint(logr.Discard(), &t, false)
	})
}

// IsUndrained reports whether the node is expected to update without a drain. Either it is stranded, or it has no config yet: then its daemon
// drains it only if the host differs from the requested content.
func IsUndrained(n *corev1.Node, nodes []*corev1.Node) bool {
	return !drain.IsRequested(n) &&
		(n.Annotations[api.CurrentConfigAnnotation] == "" || IsStranded(n, nodes))
}

// HasReported reports whether the node's daemon has reported, and follows the controller. Other nodes are neither counted nor updated.
func HasReported(n *corev1.Node) bool {
	state := n.Annotations[api.NodeStateAnnotation]
	return state != "" && state != api.NodeReleased
}

// IsReleased reports whether an administrator has taken the node out of the hands of the node stage.
func IsReleased(n *corev1.Node) bool {
	_, is := n.Annotations[api.NodeReleasedAnnotation]
	return is
}

// IsReady reports whether pods can start on the node. Kubernetes does not report every condition on every node, so an absent condition does
// not matter. Memory and process pressure come and go with the workload, so they do not matter either.
func IsReady(n *corev1.Node) bool {
	return !n.Spec.Unschedulable && isHealthy(n)
}

// isHealthy reports whether pods could start on the node if it had no cordon.
func isHealthy(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			if c.Status != corev1.ConditionTrue {
				return false
			}
		case corev1.NodeDiskPressure, corev1.NodeNetworkUnavailable:
			if c.Status != corev1.ConditionFalse {
				return false
			}
		}
	}
	return true
}

// IsDone reports whether the node runs its desired config.
func IsDone(n *corev1.Node) bool {
	return isSettled(n) && n.Annotations[api.NodeStateAnnotation] == api.NodeDone
}

// isSettled reports whether the current and the desired config and image are equal.
func isSettled(n *corev1.Node) bool {
	config, image := n.Annotations[api.DesiredConfigAnnotation], n.Annotations[api.DesiredImageAnnotation]
	return config != "" && config == n.Annotations[api.CurrentConfigAnnotation] && image == n.Annotations[api.CurrentImageAnnotation]
}

// AwaitsJob reports whether the node runs its desired config, and a Job must succeed after that.
func AwaitsJob(n *corev1.Node) bool { return n.Annotations[api.NodeJobAnnotation] != "" && IsDone(n) }

// IsDegraded reports whether the daemon cannot apply the desired config.
func IsDegraded(n *corev1.Node) bool {
	return api.IsNodeDegraded(n.Annotations[api.NodeStateAnnotation])
}

// isFailing reports whether the daemon cannot apply a config that the node does not run yet.
func isFailing(n *corev1.Node) bool {
	return n.Annotations[api.CurrentConfigAnnotation] != n.Annotations[api.DesiredConfigAnnotation] && IsDegraded(n)
}

// IsRetry reports whether the daemon has failed to apply the desired config, also while it tries again: it then keeps the reason.
func IsRetry(n *corev1.Node) bool {
	return n.Annotations[api.CurrentConfigAnnotation] != n.Annotations[api.DesiredConfigAnnotation] && n.Annotations[api.NodeReasonAnnotation] != ""
}

// IsUnavailable reports whether the node counts against the pool's maxUnavailable: it is not ready, or its update is in progress. A node that
// failed and serves again does not count, so it can get another config.
func IsUnavailable(n *corev1.Node) bool {
	return !IsReady(n) || n.Annotations[api.DesiredConfigAnnotation] != "" && !IsDone(n) && !isFailing(n)
}

// HoldsSlot reports whether the node is unavailable and its update has begun and not ended.
func HoldsSlot(n *corev1.Node) bool {
	return n.Annotations[api.DesiredConfigAnnotation] != "" && !IsDone(n) && IsUnavailable(n) && !Differs(n)
}

// Differs reports whether the host of the node differs from the config that it has.
func Differs(n *corev1.Node) bool { return isSettled(n) && IsDegraded(n) }

// IsRestoring reports whether the daemon waits for the drain of the node to restore the content of its config.
func IsRestoring(n *corev1.Node) bool { return isSettled(n) && drain.IsPending(n) }

// IsBusy reports whether pods cannot start on the node, or soon cannot: it is not ready, or its update is in progress.
func IsBusy(n *corev1.Node) bool { return !IsReady(n) || HoldsSlot(n) }

// IsDraining reports whether the node's update has begun and the drain that it needs is not complete. The daemon requests the drain after the
// update has begun.
func IsDraining(n *corev1.Node) bool {
	config := n.Annotations[api.DesiredConfigAnnotation]
	switch n.Annotations[api.DesiredDrainAnnotation] {
	case drain.EndOf(config):
		return false
	case drain.Before(config):
		return HoldsSlot(n) && !drain.IsAnswered(n)
	default:
		return HoldsSlot(n) && !isSettled(n) // it may have had its first config without a drain
	}
}

// hasTarget reports whether the node runs the config, or updates to it.
func hasTarget(n *corev1.Node, config string) bool {
	return n.Annotations[api.DesiredConfigAnnotation] == config && n.Annotations[api.DesiredImageAnnotation] == ""
}
