package pool_test

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/node/pool"
)

func TestUnusedKeepsConfigsInUse(t *testing.T) {
	config := func(name string, age time.Duration, owner string) mcfgv1.MachineConfig {
		mc := mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(epoch.Add(-age))}}
		if owner != "" {
			mc.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "worker", Controller: new(true)}}
		}
		return mc
	}
	const old = 2 * time.Hour
	p := poolAt("target")
	p.Status.Configuration.Name = "last"
	configs := []mcfgv1.MachineConfig{
		config("target", old, "MachineConfigPool"), config("last", old, "MachineConfigPool"), config("current", old, "MachineConfigPool"),
		config("desired", old, "MachineConfigPool"), config("young", 59*time.Minute, "MachineConfigPool"), config("50-shop", old, ""),
		config("99-kubelet", old, "KubeletConfig"), config("unused", old, "MachineConfigPool"),
	}

	unused := pool.Unused(configs, []*mcfgv1.MachineConfigPool{p}, parseNodes(t, "a:current→desired"), epoch)

	assert.Len(t, unused, 1)
	assert.Equal(t, "unused", unused[0].Name)
	assert.Len(t, pool.Unused(configs, nil, []*corev1.Node{}, epoch), 5)
}
