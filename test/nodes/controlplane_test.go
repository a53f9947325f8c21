//go:build linux

package nodes_test

import (
	"context"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// podWith creates a pod on a node, with a change. It is deleted at the end of the test.
func (s *stage) podWith(namespace, name, node string, change func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](0), Containers: []corev1.Container{{Name: "app", Image: "app"}},
		},
	}
	change(p)
	require.NoError(s.t, s.client.Create(s.t.Context(), p))
	s.t.Cleanup(func() { _ = s.client.Delete(context.WithoutCancel(s.t.Context()), p) })
	return p
}

func (s *stage) exists(p *corev1.Pod) bool {
	s.t.Helper()
	current := &corev1.Pod{}
	err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(p), current)
	require.NoError(s.t, client.IgnoreNotFound(err))
	return err == nil && current.DeletionTimestamp == nil
}

// pinned makes a pod run only on control-plane nodes, as one of several of a ReplicaSet. It tolerates the cordon's taint.
func pinned(p *corev1.Pod) {
	term := func(role string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "node-role.kubernetes.io/" + role, Operator: corev1.NodeSelectorOpExists},
		}}
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{term("control-plane"), term("master")},
	}}}
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "controller", UID: "1", Controller: new(true)}}
}

// TestOnlyNodeIsUpdatedWithoutADrain has one control-plane node and no worker.
func TestOnlyNodeIsUpdatedWithoutADrain(t *testing.T) {
	s := start(t, "m0")
	s.configFor(api.ControlPlanePool, "00-master", nil)
	before := s.updatedPool(api.ControlPlanePool, "", 1)
	app := s.podWith("default", "app", "m0", func(*corev1.Pod) {})
	begun := time.Now()

	s.configFor(api.ControlPlanePool, "50-motd", map[string]string{"/etc/motd": "hello"})

	s.updatedPool(api.ControlPlanePool, before, 1)
	assert.FileExists(t, s.hosts["m0"]+"/etc/motd")
	assert.True(t, s.exists(app))
	n := s.node("m0")
	assert.NotContains(t, n.Annotations, api.CordonAnnotation)
	assert.False(t, n.Spec.Unschedulable)
	for _, r := range s.requests(begun) {
		assert.NotEqual(t, "eviction", r.Object.Subresource)
	}
}

// TestOnlyControlPlaneNodeKeepsItsController has one control-plane node and three workers.
func TestOnlyControlPlaneNodeKeepsItsController(t *testing.T) {
	s := start(t, "m0", "w1", "w2", "w3")
	s.configFor(api.ControlPlanePool, "00-master", nil)
	s.config("00-worker", nil)
	master, worker := s.updatedPool(api.ControlPlanePool, "", 1), s.updatedPool(api.WorkerPool, "", 3)
	controller := s.podWith(api.MachineConfigNamespace, controllerPod, "m0", pinned)
	standby := s.podWith(api.MachineConfigNamespace, "standby", "m0", pinned)
	app := s.podWith("default", "app", "m0", func(*corev1.Pod) {})
	onWorker := s.podWith("default", "app-on-worker", "w1", func(*corev1.Pod) {})

	s.configFor(api.ControlPlanePool, "50-motd", map[string]string{"/etc/motd": "hello"})
	s.updatedPool(api.ControlPlanePool, master, 1)

	assert.Empty(t, s.cordoned())
	assert.False(t, s.exists(app), "it can run on a worker")
	assert.True(t, s.exists(controller))
	assert.True(t, s.exists(standby))
	s.config("50-motd-on-workers", map[string]string{"/etc/motd": "hello"})
	s.updatedPool(api.WorkerPool, worker, 3)
	assert.False(t, s.exists(onWorker), "workers are drained")
}

// TestControlPlaneNodesAreUpdatedSequentially has three control-plane nodes and three workers. The ends of pods decide when a node is drained.
func TestControlPlaneNodesAreUpdatedSequentially(t *testing.T) {
	s := start(t, "m0", "m1", "m2", "w1", "w2", "w3")
	s.configFor(api.ControlPlanePool, "00-master", nil)
	s.config("00-worker", nil)
	master, worker := s.updatedPool(api.ControlPlanePool, "", 3), s.updatedPool(api.WorkerPool, "", 3)
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: api.ControlPlanePool}}
	three := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"maxUnavailable":3}}`))
	require.NoError(t, s.client.Patch(t.Context(), p, three))
	controller := s.podWith(api.MachineConfigNamespace, controllerPod, "m0", pinned)
	end := map[string]func(){}
	etcd := map[string]*corev1.Pod{}
	for _, name := range []string{"m0", "m1", "m2"} {
		end[name] = s.pod("app-on-"+name, name)
		etcd[name] = s.podWith(metav1.NamespaceSystem, "etcd-"+name, name, func(p *corev1.Pod) {
			p.Labels = map[string]string{"component": "etcd"}
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		})
	}
	setReady := func(name string, is corev1.ConditionStatus) {
		etcd[name].Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}}
		require.NoError(t, s.client.Status().Update(t.Context(), etcd[name]))
	}
	setReady("m0", corev1.ConditionTrue)
	setReady("m1", corev1.ConditionTrue)
	setReady("m2", corev1.ConditionFalse)
	s.restart() // so that the controller has seen the pods

	begun := time.Now()
	s.configFor(api.ControlPlanePool, "50-motd", map[string]string{"/etc/motd": "hello"})

	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(p), p))
		assert.Equal(c, "Node m1 waits for the etcd member on node m2: pod kube-system/etcd-m2 is not ready (and 2 other nodes)",
			pool.Message(p, pool.NodesWaiting))
	})
	assert.Empty(t, s.cordoned())
	plan := s.planOf(api.ControlPlanePool, "")
	assert.Equal(t, []string{"m1 Wait", "m2 Wait", "m0 Wait"}, turns(plan), "the leader's node is the last")
	assert.Equal(t, "waits for the etcd member on node m2: pod kube-system/etcd-m2 is not ready", plan.Nodes[0].Why)
	s.config("50-motd-on-workers", map[string]string{"/etc/motd": "hello"})
	s.updatedPool(api.WorkerPool, worker, 3) // workers do not wait for etcd
	assert.Empty(t, s.cordoned())
	setReady("m2", corev1.ConditionTrue)
	for _, name := range []string{"m1", "m2", "m0"} {
		s.eventuallyDeleted("app-on-" + name)
		assert.Equal(t, []string{name}, s.cordoned())
		assert.True(t, name == "m0" || s.exists(controller), name)
		end[name]()
	}
	s.updatedPool(api.ControlPlanePool, master, 3)
	assert.False(t, s.exists(controller), "it can run on other nodes")
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	assert.Empty(t, pool.Message(p, pool.NodesWaiting))
	lookups := 0
	for _, r := range s.requests(begun) {
		if r.Object.Resource == "endpointslices" {
			lookups++
		}
	}
	assert.GreaterOrEqual(t, lookups, 3, "one for each start")
}
