package pool

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// Labels of nodes by their role. Distributions of Kubernetes label control-plane nodes with one of the first two or both. An arbiter has a member
// of etcd, and no API server.
const (
	controlPlaneRole = "node-role.kubernetes.io/control-plane"
	masterRole       = "node-role.kubernetes.io/master"
	arbiterRole      = "node-role.kubernetes.io/arbiter"
	workerRole       = "node-role.kubernetes.io/worker"
)

// controlPlaneRoles are the labels of control-plane nodes. The affinities of the DaemonSets have the same ones: a daemon of the control plane may
// read its configs.
var controlPlaneRoles = []string{controlPlaneRole, masterRole, arbiterRole}

// IsControlPlaneNode reports whether the node's labels say that it has a part of the control plane.
func IsControlPlaneNode(n *corev1.Node) bool {
	return slices.ContainsFunc(controlPlaneRoles, func(label string) bool { return has(n, label) })
}

// IsOnlyControlPlaneNode reports whether no other node has a part of the control plane.
func IsOnlyControlPlaneNode(n *corev1.Node, nodes []*corev1.Node) bool {
	return !slices.ContainsFunc(nodes, func(other *corev1.Node) bool { return other.Name != n.Name && IsControlPlaneNode(other) })
}

// IsControlPlanePool reports whether a pool is meant for nodes of the control plane, by its name. Their configs contain credentials.
func IsControlPlanePool(pool string) bool {
	return pool == api.ControlPlanePool || pool == api.ArbiterPool
}

// UpdatesControlPlane reports whether a pool is meant for nodes of the control plane or has one. All nodes of such pools start one at a time.
func UpdatesControlPlane(pool string, nodes []*corev1.Node) bool {
	return IsControlPlanePool(pool) || slices.ContainsFunc(nodes, IsControlPlaneNode)
}

func has(n *corev1.Node, label string) bool {
	_, ok := n.Labels[label]
	return ok
}
