package pool

import (
	"maps"
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
)

// keepFor is the age until which a rendered config is kept although nothing uses it: its pool may not refer to a new config yet.
const keepFor = time.Hour

// IsRendered reports whether the node stage has rendered a MachineConfig for a pool.
func IsRendered(mc *mcfgv1.MachineConfig) bool {
	owner := metav1.GetControllerOf(mc)
	return owner != nil && owner.Kind == "MachineConfigPool"
}

// InUse returns the names of the rendered MachineConfigs in use, sorted: those of pools of the control plane, and the others. nodes are all nodes
// of the cluster.
func InUse(configs []mcfgv1.MachineConfig, pools []*mcfgv1.MachineConfigPool, nodes []*corev1.Node) (controlPlane, others []string) {
	used := usedNames(pools, nodes)
	owners := map[string]string{}
	for i := range configs {
		if mc := &configs[i]; IsRendered(mc) && used.Has(mc.Name) {
			owners[mc.Name] = metav1.GetControllerOf(mc).Name
		}
	}
	for _, p := range pools { // a cache may not show the newest config yet
		owners[p.Spec.Configuration.Name] = p.Name
	}
	delete(owners, "")
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		if IsOfControlPlane(owners[name]) {
			controlPlane = append(controlPlane, name)
		} else {
			others = append(others, name)
		}
	}
	return controlPlane, others
}

func usedNames(pools []*mcfgv1.MachineConfigPool, nodes []*corev1.Node) sets.Set[string] {
	used := sets.New[string]()
	for _, p := range pools {
		used.Insert(p.Spec.Configuration.Name, p.Status.Configuration.Name)
	}
	for _, n := range nodes {
		used.Insert(n.Annotations[api.CurrentConfigAnnotation], n.Annotations[api.DesiredConfigAnnotation])
	}
	return used
}

// Unused returns the rendered MachineConfigs that no pool and no node uses, and that are older than an hour. The same content can be rendered
// again. nodes are all nodes of the cluster.
func Unused(configs []mcfgv1.MachineConfig, pools []*mcfgv1.MachineConfigPool, nodes []*corev1.Node, now time.Time) []*mcfgv1.MachineConfig {
	used := usedNames(pools, nodes)
	var unused []*mcfgv1.MachineConfig
	for i := range configs {
		if mc := &configs[i]; IsRendered(mc) && !used.Has(mc.Name) && now.Sub(mc.CreationTimestamp.Time) > keepFor {
			unused = append(unused, mc)
		}
	}
	return unused
}
