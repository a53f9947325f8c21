package pool_test

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
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

	unused := pool.NewUsage(configs, []*mcfgv1.MachineConfigPool{p}, parseNodes(t, "a:current→desired")).Unused(epoch)

	assert.Len(t, unused, 1)
	assert.Equal(t, "unused", unused[0].Name)
	assert.Len(t, pool.NewUsage(configs, nil, nil).Unused(epoch), 5)
}

// TestInUseSeparatesTheControlPlane has a node that claims a config of the control plane: a daemon writes the current config of its node.
//
//threat:daemon-claims-config
func TestInUseSeparatesTheControlPlane(t *testing.T) {
	config := func(name, pool string) mcfgv1.MachineConfig {
		mc := mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		mc.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineConfigPool", Name: pool, Controller: new(true)}}
		return mc
	}
	poolAt := func(name, target string) *mcfgv1.MachineConfigPool {
		p := poolAt(target)
		p.Name = name
		return p
	}
	configs := []mcfgv1.MachineConfig{
		config("master", "master"), config("arbiter", "arbiter"), config("old-master", "master"), config("unused-master", "master"),
		config("worker", "worker"), config("old-infra", "infra"), config("unused-worker", "worker"),
		{ObjectMeta: metav1.ObjectMeta{Name: "50-shop"}},
	}
	pools := []*mcfgv1.MachineConfigPool{
		poolAt("master", "master"), poolAt("arbiter", "arbiter"), poolAt("worker", "worker"), poolAt("infra", "not-in-the-cache"), poolAt("new", ""),
	}

	controlPlane, others := pool.NewUsage(configs, pools, parseNodes(t, "a:old-master→50-shop b:old-infra→worker")).Used()

	assert.Equal(t, []string{"arbiter", "master", "old-master"}, controlPlane)
	assert.Equal(t, []string{"not-in-the-cache", "old-infra", "worker"}, others)
	controlPlane, others = pool.NewUsage(nil, nil, nil).Used()
	assert.Empty(t, controlPlane)
	assert.Empty(t, others)
}
