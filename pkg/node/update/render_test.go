package update

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/kubelet"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// memory is a client of objects in memory. It accepts every write, and stores created MachineConfigs and changes of pools.
type memory struct {
	client.Client
	pools   []mcfgv1.MachineConfigPool
	configs []mcfgv1.MachineConfig
	kubelet []mcfgv1.KubeletConfig
	nodes   []corev1.Node
	// policies are listed, and their status is stored.
	policies []api.NodeRolloutPolicy
	// machines are the MachineConfigNodes. If it is nil, each node has staged the config of its pool.
	machines []mcfgv1.MachineConfigNode
	// requested has the names of nodes that got a request to stage a config.
	requested []string
	// release is the one that the ControllerConfig names.
	release string
	// version is the last resource version.
	version int
	// refused is the error of the next write to a Node, and refusedRoles of each write to a ClusterRole, by name.
	refused      error
	refusedRoles map[string]error
	// attempts counts the writes to each ClusterRole.
	attempts map[string]int
	// readable has the names of the configs in each ClusterRole. unreadable has the configs that a Node got before they were in a role.
	readable   map[string][]string
	unreadable []string
	// onBudgets runs when budgets are listed.
	onBudgets func()
}

func (m *memory) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *mcfgv1.MachineConfigPoolList:
		for i := range m.pools {
			l.Items = append(l.Items, *m.pools[i].DeepCopy())
		}
	case *mcfgv1.MachineConfigList:
		l.Items = m.configs
	case *mcfgv1.KubeletConfigList:
		l.Items = m.kubelet
	case *corev1.NodeList:
		l.Items = m.nodes
	case *api.NodeRolloutPolicyList:
		l.Items = m.policies
	case *mcfgv1.MachineConfigNodeList:
		if l.Items = m.machines; l.Items == nil {
			l.Items = m.allStaged()
		}
	case *policyv1.PodDisruptionBudgetList:
		if m.onBudgets != nil {
			m.onBudgets()
		}
	}
	return nil
}

// allStaged returns MachineConfigNodes of nodes that have staged the config of their pool.
func (m *memory) allStaged() (machines []mcfgv1.MachineConfigNode) {
	for name, nodes := range pool.Assign(pointers.To(m.pools), pointers.To(m.nodes)).Nodes {
		i := slices.IndexFunc(m.pools, func(p mcfgv1.MachineConfigPool) bool { return p.Name == name })
		for _, n := range nodes {
			machines = append(machines, newMachine(n.Name, m.pools[i].Spec.Configuration.Name))
			pool.SetStaged(&machines[len(machines)-1].Status.Conditions, m.pools[i].Spec.Configuration.Name, "", time.Now())
		}
	}
	return machines
}

// newMachine returns a MachineConfigNode with the request to stage a config.
func newMachine(name, config string) mcfgv1.MachineConfigNode {
	return mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{api.StageAnnotation: config}}}
}

func (m *memory) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	m.set(o)
	o.SetCreationTimestamp(metav1.Now())
	if mc, ok := o.(*mcfgv1.MachineConfig); ok {
		m.configs = append(m.configs, *mc.DeepCopy())
	}
	return nil
}

func (m *memory) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	m.set(o)
	switch o := o.(type) {
	case *rbacv1.ClusterRole:
		m.attempts[o.Name]++
		if err := m.refusedRoles[o.Name]; err != nil {
			return err
		}
		data, err := patch.Data(o)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, o); err != nil {
			return err
		}
		m.readable[o.Name] = nil
		for _, rule := range o.Rules {
			m.readable[o.Name] = append(m.readable[o.Name], rule.ResourceNames...)
		}
	case *mcfgv1.MachineConfigNode:
		data, err := patch.Data(o)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, o); err != nil {
			return err
		}
		m.requested = append(m.requested, o.Name)
	case *mcfgv1.MachineConfigPool:
		for i := range m.pools {
			if m.pools[i].Name == o.Name {
				m.pools[i] = *o.DeepCopy()
			}
		}
	case *api.NodeRolloutPolicy:
		for i := range m.policies {
			if m.policies[i].Name == o.Name {
				m.policies[i] = *o.DeepCopy()
			}
		}
	case *corev1.Node:
		if err := m.refused; err != nil {
			m.refused = nil
			return err
		}
		desired := o.Annotations[api.DesiredConfigAnnotation]
		if desired != "" && !slices.Contains(slices.Concat(slices.Collect(maps.Values(m.readable))...), desired) {
			m.unreadable = append(m.unreadable, desired)
		}
		for i := range m.nodes {
			if m.nodes[i].Name == o.Name {
				m.nodes[i] = *o.DeepCopy()
			}
		}
	}
	return nil
}

// Delete finds nothing.
func (m *memory) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	return apierrors.NewNotFound(mcfgv1.Resource("machineconfigs"), o.GetName())
}

func (m *memory) Status() client.SubResourceWriter { return poolStatus{memory: m} }

func (m *memory) set(o client.Object) {
	m.version++
	o.SetResourceVersion(fmt.Sprint(m.version))
}

// poolStatus writes the status of pools.
type poolStatus struct {
	client.SubResourceWriter
	memory *memory
}

func (s poolStatus) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.memory.Patch(ctx, o, p)
}

// Get finds only the ControllerConfig.
func (m *memory) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if cc, ok := o.(*mcfgv1.ControllerConfig); ok {
		cc.Name, cc.Annotations = api.MachineConfigController, map[string]string{api.ReleaseAnnotation: m.release}
		return nil
	}
	return apierrors.NewNotFound(corev1.Resource("objects"), o.GetName())
}

// newMemory returns a cluster whose workers have reported. Their pool is paused, so that no Node is written.
func newMemory(nodes int) *memory {
	m := &memory{version: 1000, attempts: map[string]int{}, readable: map[string][]string{}}
	for i := range nodes {
		m.nodes = append(m.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("n%d", i), ResourceVersion: fmt.Sprint(i + 1), Labels: map[string]string{"node-role.kubernetes.io/worker": ""},
			Annotations: map[string]string{api.NodeStateAnnotation: api.NodeDone},
		}})
	}
	controlPlane, worker := pool.BuiltIn([]*corev1.Node{&m.nodes[0]})
	worker.Spec.Paused = true
	m.pools = []mcfgv1.MachineConfigPool{*controlPlane, *worker}
	for i := range 10 {
		m.configs = append(m.configs, newConfig(fmt.Sprintf("%d0-worker", i), fmt.Sprintf("/etc/example/%d", i), strings.Repeat("x", 10000)))
	}
	return m
}

// newConfig returns a MachineConfig of the workers with one file.
func newConfig(name, path, text string) mcfgv1.MachineConfig {
	mc := mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: "1", Labels: map[string]string{api.MachineConfigRoleLabel: "worker"},
	}}
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":%q,"contents":{"source":"data:,%s"}}]}}`, path, text)
	return mc
}

func (m *memory) controller() *pools {
	r := newPools(m, nil, clocktesting.NewFakePassiveClock(time.Now()), &record.FakeRecorder{}, Options{})
	r.planner.hasSynced = func() bool { return true }
	return r
}

func TestOnlyChangesOfMachineConfigsRenderThem(t *testing.T) {
	m := newMemory(500)
	r := m.controller()
	config := func() string {
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		return m.pools[1].Spec.Configuration.Name
	}
	first := config()
	require.NotEmpty(t, first)

	m.configs[9] = newConfig("90-worker", "/etc/example/9", "changed")
	m.nodes[0].Labels["changed"] = ""
	assert.Equal(t, first, config(), "a change of a Node renders nothing")

	m.configs[9].ResourceVersion = "2"
	second := config()
	assert.NotEqual(t, first, second)

	m.pools[1].Spec.Configuration.Name = first
	assert.Equal(t, second, config(), "the change of the pool is undone")

	last := len(m.configs) - 1
	require.Equal(t, second, m.configs[last].Name)
	m.configs = m.configs[:last]
	config()
	assert.Equal(t, second, m.configs[last].Name, "a deleted MachineConfig is rendered again")

	m.configs[0].Spec.KernelType, m.configs[0].ResourceVersion = "unknown", "3"
	config()
	assert.Contains(t, pool.Message(&m.pools[1], mcfgv1.MachineConfigPoolRenderDegraded), "unknown")
	m.configs[0].Spec.KernelType = "default"
	config()
	assert.NotEmpty(t, pool.Message(&m.pools[1], mcfgv1.MachineConfigPoolRenderDegraded), "a change of a Node renders nothing")
	m.configs[0].ResourceVersion = "4"
	assert.Equal(t, second, config())
	assert.Empty(t, pool.Message(&m.pools[1], mcfgv1.MachineConfigPoolRenderDegraded))
}

// TestHeldImageOfTheOperatingSystemStays has a policy that holds the image while a release brings another one and a MachineConfig changes.
func TestHeldImageOfTheOperatingSystemStays(t *testing.T) {
	m := newMemory(1)
	rendered := func(r *pools) (name, image string) {
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		name = m.pools[1].Spec.Configuration.Name
		return name, find(m.configs, name).Spec.OSImageURL
	}
	r := m.controller()
	r.options.OSImage = "registry.example/os@sha256:1"
	first, image := rendered(r)
	require.Equal(t, r.options.OSImage, image)

	m.policies = []api.NodeRolloutPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: api.NodeRolloutPolicySpec{HoldOSImage: true}}}
	r = m.controller() // of the next release
	r.options.OSImage = "registry.example/os@sha256:2"
	second, _ := rendered(r)
	assert.Equal(t, first, second)
	m.configs[9] = newConfig("90-worker", "/etc/example/9", "changed")
	m.configs[9].ResourceVersion = "2"
	third, image := rendered(r)
	assert.NotEqual(t, first, third, "other changes continue")
	assert.Equal(t, "registry.example/os@sha256:1", image)

	// The held image is known although the config is deleted, except after a restart.
	m.configs = slices.DeleteFunc(m.configs, func(mc mcfgv1.MachineConfig) bool { return mc.Name == third })
	fourth, image := rendered(r)
	assert.Equal(t, third, fourth)
	assert.Equal(t, "registry.example/os@sha256:1", image)
	m.configs = slices.DeleteFunc(m.configs, func(mc mcfgv1.MachineConfig) bool { return mc.Name == third })
	r = m.controller()
	r.options.OSImage = "registry.example/os@sha256:2"
	_, err := r.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Equal(t, third, m.pools[1].Spec.Configuration.Name)
	assert.Contains(t, pool.Message(&m.pools[1], mcfgv1.MachineConfigPoolRenderDegraded), "set its spec.holdOSImage to false")

	m.policies[0].Spec.HoldOSImage = false
	_, image = rendered(r)
	assert.Equal(t, "registry.example/os@sha256:2", image)
}

func TestControllerOfAnotherReleaseWaits(t *testing.T) {
	m := newMemory(1)
	m.pools[1].Spec.Paused = false
	r := m.controller()
	reconcilePools := func() {
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
	}
	m.release = "1.1.0"
	reconcilePools()
	assert.Empty(t, m.pools[1].Spec.Configuration.Name)
	assert.EqualValues(t, 1, m.pools[1].Status.MachineCount)

	m.release, m.pools[1].Spec.Paused = "", true
	reconcilePools()
	assert.NotEmpty(t, m.pools[1].Spec.Configuration.Name)

	m.release, m.pools[1].Spec.Paused = "1.1.0", false
	reconcilePools()
	assert.Empty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
	assert.Equal(t, `Node n0 waits for the controller of release "1.1.0", which ControllerConfig machine-config-controller names; the running one is of ""`,
		pool.Message(&m.pools[1], pool.NodesWaiting))

	m.release = ""
	r.nextPlan = time.Time{}
	reconcilePools()
	assert.NotEmpty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
	assert.Empty(t, pool.Message(&m.pools[1], pool.NodesWaiting))
}

func TestPoolsWaitForTheirKubeletConfigs(t *testing.T) {
	m := newMemory(1)
	r := m.controller()
	kc := mcfgv1.KubeletConfig{ObjectMeta: metav1.ObjectMeta{Name: "limits", Generation: 1}}
	kc.Spec.MachineConfigPoolSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.PoolLabelPrefix + "worker": ""}}
	m.kubelet = []mcfgv1.KubeletConfig{kc}
	config := func() string {
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		return m.pools[1].Spec.Configuration.Name
	}
	assert.Empty(t, config())

	m.kubelet[0].Status.ObservedGeneration = 1
	assert.NotEmpty(t, config())
}

// TestConflictIsRetried has a write that meets a change of the Node, such as one by the kubelet, whose event does not matter to pools.
func TestConflictIsRetried(t *testing.T) {
	m := newMemory(1)
	m.pools[1].Spec.Paused = false
	r := m.controller()
	m.refused = apierrors.NewConflict(corev1.Resource("nodes"), "n0", nil)

	result, err := r.Reconcile(t.Context(), reconcile.Request{})

	require.NoError(t, err)
	assert.Equal(t, cluster.ConflictRetry, result.RequeueAfter)
	result, err = r.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Zero(t, result)
	assert.NotEmpty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
}

func TestPoolsLogEachChangeOnce(t *testing.T) {
	m := newMemory(1)
	m.pools[1].Spec.Paused = false
	r := m.controller()
	var lines []string
	reconcilePools := func() []string {
		lines = nil
		_, err := r.Reconcile(logTo(t.Context(), &lines), reconcile.Request{})
		require.NoError(t, err)
		return lines
	}
	got := strings.Join(reconcilePools(), "\n")
	name := m.pools[1].Spec.Configuration.Name
	assert.Contains(t, got, `"msg"="MachineConfig rendered" "pool"="worker" "config"="`+name+`"`)
	assert.Contains(t, got, `"msg"="config assigned" "pool"="worker" "node"="n0" "config"="`+name+`"`)
	assert.Contains(t, got, `"msg"="condition changed" "pool"="worker" "condition"="Updating" "status"="True"`)
	assert.Empty(t, reconcilePools())
	old := newConfig("rendered-worker-old", "/etc/a", "a")
	old.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineConfigPool", Name: "worker", Controller: new(true)}}
	m.configs = append(m.configs, old)
	assert.Empty(t, reconcilePools(), "another client has deleted it")

	m.configs[0].Spec.KernelType, m.configs[0].ResourceVersion = "unknown", "2"
	got = strings.Join(reconcilePools(), "\n")
	assert.Contains(t, got, `"condition"="RenderDegraded" "status"="True" "message"="MachineConfig 00-worker is invalid`)
	assert.Empty(t, reconcilePools())
}

// logTo returns a context whose logger appends the messages of level 0 to lines.
func logTo(ctx context.Context, lines *[]string) context.Context {
	return logr.NewContext(ctx, funcr.New(func(_, line string) { *lines = append(*lines, line) }, funcr.Options{}))
}

// BenchmarkNodeChange reconciles the pools of 500 nodes after a change of one. With KubeletConfigs, there are ten more pools, each with as many of
// them.
func BenchmarkNodeChange(b *testing.B) {
	for _, each := range []int{0, kubelet.Most} {
		b.Run(fmt.Sprintf("%d KubeletConfigs", each), func(b *testing.B) {
			m := newMemory(500)
			for i := range 10 * each {
				m.addKubeletConfig(fmt.Sprintf("custom-%d", i/each), fmt.Sprintf("kubelet-%d", i))
			}
			r := m.controller()
			_, err := r.Reconcile(b.Context(), reconcile.Request{}) // it renders, which a change of a Node does not
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Reconcile(b.Context(), reconcile.Request{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// addKubeletConfig adds a KubeletConfig of a custom pool with its MachineConfig, and the pool if it does not exist.
func (m *memory) addKubeletConfig(custom, name string) {
	if !slices.ContainsFunc(m.pools, func(p mcfgv1.MachineConfigPool) bool { return p.Name == custom }) {
		p := *m.pools[1].DeepCopy()
		p.Name, p.Labels = custom, map[string]string{api.PoolLabelPrefix + custom: ""}
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{custom: ""}}
		m.pools = append(m.pools, p)
	}
	kc := mcfgv1.KubeletConfig{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1}}
	kc.Spec.MachineConfigPoolSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.PoolLabelPrefix + custom: ""}}
	kc.Status.ObservedGeneration = 1
	kc.Status.Conditions = []mcfgv1.KubeletConfigCondition{{Type: kubelet.Accepted, Status: corev1.ConditionTrue}}
	m.kubelet = append(m.kubelet, kc)
	mc := newConfig("99-"+name, "/etc/"+name, "x")
	mc.Labels[api.MachineConfigRoleLabel] = custom
	mc.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&kc, mcfgv1.GroupVersion.WithKind("KubeletConfig"))}
	m.configs = append(m.configs, mc)
}
