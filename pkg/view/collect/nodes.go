package collect

import (
	"context"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/view/nodes"
)

// Nodes reads the state of the updates of nodes: two lists, page by page. The error is ErrAbsent if the cluster has no MachineConfigPools.
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
	cluster.Pools, cluster.Nodes = pointers(pools), pointers(found)
	return cluster, nil
}

// pointers returns a pointer to each element.
func pointers[T any](values []T) []*T {
	out := make([]*T, len(values))
	for i := range values {
		out[i] = &values[i]
	}
	return out
}
