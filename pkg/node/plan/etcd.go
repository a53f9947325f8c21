package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/node/pool"
)

// EtcdLabels returns the labels of etcd's pods in namespace kube-system, as kubeadm and others set them.
func EtcdLabels() map[string]string { return map[string]string{"component": "etcd"} }

// IsEtcd reports whether a pod is a member of etcd.
func IsEtcd(pod metav1.Object) bool {
	return pod.GetNamespace() == metav1.NamespaceSystem && labels.SelectorFromSet(EtcdLabels()).Matches(labels.Set(pod.GetLabels()))
}

// EtcdRefusal returns why etcd must not lose its member on a node now, as a sentence without subject and period; empty if it may. members are the
// pods of etcd, and nodes are those of the cluster: the only control-plane node may always start. Budgets that select such pods decide. Without
// one, the members on all other nodes must be ready. A budget does not protect a member that is down already. The kubelet runs the pods from files, so no drain evicts them, and Plan does not count them.
func EtcdRefusal(n *corev1.Node, nodes []*corev1.Node, members []corev1.Pod, budgets []policyv1.PodDisruptionBudget) string {
	if pool.IsOnlyControlPlaneNode(n, nodes) {
		return ""
	}
	isGuarded := false
	for i := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector)
		if err != nil || !slices.ContainsFunc(members, func(pod corev1.Pod) bool {
			return pod.Namespace == budgets[i].Namespace && selector.Matches(labels.Set(pod.Labels))
		}) {
			continue
		}
		isGuarded = true
		b := budget{name: types.NamespacedName{Namespace: budgets[i].Namespace, Name: budgets[i].Name}}
		b.set(&budgets[i])
		isDown := slices.ContainsFunc(members, func(pod corev1.Pod) bool {
			return pod.Spec.NodeName == n.Name && pod.Namespace == budgets[i].Namespace && selector.Matches(labels.Set(pod.Labels)) && !isReady(&pod)
		})
		if b.allowed <= 0 && (!isDown || b.healthy < b.desired) { // a member that is down does not count as healthy, and the update may repair it
			return zeroBudget(b.name, b.healthy, b.desired)
		}
	}
	if isGuarded {
		return ""
	}
	for i := range members {
		if pod := &members[i]; pod.Spec.NodeName != n.Name && !isReady(pod) {
			return fmt.Sprintf("waits for the etcd member on node %s: pod %s/%s is not ready", pod.Spec.NodeName, pod.Namespace, pod.Name)
		}
	}
	return ""
}
