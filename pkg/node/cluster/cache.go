package cluster

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/drain"
)

// CacheOptions limits the manager's cache to what the controllers read. A cluster has far more pods than nodes, and every replica caches them.
// own is the pod of this process; empty if it does not run in a pod. The cache has what decides on which nodes this pod can run.
func CacheOptions(own client.ObjectKey) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:               {Transform: func(o any) (any, error) { return reducePod(o, own), nil }},
			&configv1.ClusterOperator{}: {Field: fields.OneTermEqualSelector("metadata.name", api.MachineConfigOperator)},
		},
	}
}

// reducePod returns the parts of a pod that decide about its eviction, and on which nodes the own pod can run. The tombstone of a pod stays the
// same, because it has a reduced pod.
func reducePod(object any, own client.ObjectKey) any {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object
	}
	reduced := drain.Reduce(pod)
	if client.ObjectKeyFromObject(pod) == own {
		reduced.Spec.NodeSelector, reduced.Spec.Affinity, reduced.Spec.Tolerations = pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations
	}
	return reduced
}

// NewCatchUp returns what delays the controllers of a new leader while its cache is late, and has mgr run it. The kinds decide which config a node
// gets, how many nodes stage and get it, which nodes are drained, and which MachineConfigs are deleted.
func NewCatchUp(mgr manager.Manager) (*watch.CatchUp, error) {
	c := watch.NewCatchUp(mgr.GetClient(), mgr.GetAPIReader(),
		&corev1.NodeList{}, &mcfgv1.MachineConfigPoolList{}, &mcfgv1.MachineConfigList{}, &mcfgv1.MachineConfigNodeList{},
		&mcfgv1.KubeletConfigList{}, &mcfgv1.ControllerConfigList{}, &api.NodeRolloutPolicyList{})
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("comparing the cache: %w", err)
	}
	return c, nil
}
