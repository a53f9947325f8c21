package collect

import (
	"context"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

// Nodes reads the state of the updates of nodes: three lists, page by page. The error is ErrAbsent if the cluster has no MachineConfigPools.
func Nodes(ctx context.Context, c client.Reader, now time.Time) (nodes.Cluster, error) {
	cluster := nodes.Cluster{At: now}
	pools, err := listed[mcfgv1.MachineConfigPool](ctx, c, &mcfgv1.MachineConfigPoolList{})
	if err != nil {
		return cluster, explain("MachineConfigPools", err)
	}
	found, err := listed[corev1.Node](ctx, c, &corev1.NodeList{})
	if err != nil {
		return cluster, explain("nodes", err)
	}
	machines, err := listed[mcfgv1.MachineConfigNode](ctx, c, &mcfgv1.MachineConfigNodeList{})
	if err != nil && !meta.IsNoMatchError(err) {
		return cluster, explain("MachineConfigNodes", err)
	}
	cluster.Pools, cluster.Nodes, cluster.Machines = pointers.To(pools), pointers.To(found), map[string]*mcfgv1.MachineConfigNode{}
	for i := range machines {
		cluster.Machines[machines[i].Name] = &machines[i]
	}
	return cluster, nil
}

// Configs reads all MachineConfigs, the ControllerConfig, the NodeRolloutPolicies and the policies for changes of nodes.
func Configs(ctx context.Context, c client.Reader) (nodes.Configs, error) {
	var configs nodes.Configs
	found, err := listed[mcfgv1.MachineConfig](ctx, c, &mcfgv1.MachineConfigList{})
	if err != nil {
		return configs, explain("MachineConfigs", err)
	}
	configs.Stored = pointers.To(found)
	configs.Controller = &mcfgv1.ControllerConfig{}
	err = c.Get(ctx, client.ObjectKey{Name: api.MachineConfigController}, configs.Controller)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		configs.Controller = nil
	case err != nil:
		return configs, explain("ControllerConfig "+api.MachineConfigController, err)
	}
	policies, err := listed[api.NodeRolloutPolicy](ctx, c, &api.NodeRolloutPolicyList{})
	if err != nil && !meta.IsNoMatchError(err) {
		return configs, explain("NodeRolloutPolicies", err)
	}
	configs.RolloutPolicies = map[string]*api.NodeRolloutPolicy{}
	for i := range policies {
		configs.RolloutPolicies[policies[i].Name] = &policies[i]
	}
	var settings operatorv1.MachineConfiguration
	err = c.Get(ctx, client.ObjectKey{Name: "cluster"}, &settings)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return configs, explain("MachineConfiguration cluster", err)
	}
	configs.Policies = disruption.Policies(settings.Spec.NodeDisruptionPolicy) // the defaults if it does not exist
	return configs, nil
}

// Workload reads all pods on nodes, and all PodDisruptionBudgets. It does not know the leader. A cluster has many pods, so Workload keeps only the
// parts that matter to drains.
func Workload(ctx context.Context, c client.Reader) (nodes.Workload, error) {
	var w nodes.Workload
	var err error
	if w.Budgets, err = listed[policyv1.PodDisruptionBudget](ctx, c, &policyv1.PodDisruptionBudgetList{}); err != nil {
		return w, explain("PodDisruptionBudgets", err)
	}
	onNodes := client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("spec.nodeName", "")}
	err = each(ctx, c, &corev1.PodList{}, func(pod *corev1.Pod) { w.Pods = append(w.Pods, reducePod(pod)) }, onNodes)
	return w, explain("pods", err)
}

// reducePod returns the parts of a pod that matter to a drain, and the volumes whose data it deletes.
func reducePod(pod *corev1.Pod) *corev1.Pod {
	reduced := drain.Reduce(pod)
	for _, volume := range pod.Spec.Volumes {
		if volume.EmptyDir != nil {
			reduced.Spec.Volumes = append(reduced.Spec.Volumes, volume)
		}
	}
	return reduced
}
