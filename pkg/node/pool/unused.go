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
	owner := metav1.GetControllerOfNoCopy(mc)
	return owner != nil && owner.Kind == "MachineConfigPool"
}

// Usage is the use of the rendered MachineConfigs of a cluster.
type Usage struct {
	pools    []*mcfgv1.MachineConfigPool
	rendered []*mcfgv1.MachineConfig
	used     sets.Set[string]
}

// NewUsage returns the use of the rendered ones among configs. pools and nodes are all of the cluster.
func NewUsage(configs []mcfgv1.MachineConfig, pools []*mcfgv1.MachineConfigPool, nodes []*corev1.Node) Usage {
	u := Usage{pools: pools, used: sets.New[string]()}
	for i := range configs {
		if IsRendered(&configs[i]) {
			u.rendered = append(u.rendered, &configs[i])
		}
	}
	for _, p := range pools {
		u.used.Insert(p.Spec.Configuration.Name, p.Status.Configuration.Name)
	}
	for _, n := range nodes {
		u.used.Insert(n.Annotations[api.CurrentConfigAnnotation], n.Annotations[api.DesiredConfigAnnotation])
	}
	return u
}

// Used returns the names of the rendered MachineConfigs in use, sorted: those of pools of the control plane, and the others.
func (u Usage) Used() (controlPlane, others []string) {
	owners := map[string]string{}
	for _, mc := range u.rendered {
		if u.used.Has(mc.Name) {
			owners[mc.Name] = metav1.GetControllerOfNoCopy(mc).Name
		}
	}
	for _, p := range u.pools { // a cache may not show the newest config yet
		owners[p.Spec.Configuration.Name] = p.Name
	}
	delete(owners, "")
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		if IsControlPlanePool(owners[name]) {
			controlPlane = append(controlPlane, name)
		} else {
			others = append(others, name)
		}
	}
	return controlPlane, others
}

// Unused returns the rendered MachineConfigs that no pool and no node uses, and that are older than an hour. The same content can be rendered
// again.
func (u Usage) Unused(now time.Time) []*mcfgv1.MachineConfig {
	var unused []*mcfgv1.MachineConfig
	for _, mc := range u.rendered {
		if !u.used.Has(mc.Name) && now.Sub(mc.CreationTimestamp.Time) > keepFor {
			unused = append(unused, mc)
		}
	}
	return unused
}
