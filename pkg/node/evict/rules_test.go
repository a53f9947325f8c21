package evict

import (
	"context"
	"slices"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// listed is a client with some objects.
type listed struct {
	client.Client
	pods     []corev1.Pod
	nodes    []corev1.Node
	pools    []mcfgv1.MachineConfigPool
	policies []api.NodeRolloutPolicy
	// podLists counts the lists of pods.
	podLists int
}

func (l *listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.PodList:
		l.podLists++
		list.Items = slices.Clone(l.pods)
	case *corev1.NodeList:
		list.Items = l.nodes
	case *mcfgv1.MachineConfigPoolList:
		list.Items = l.pools
	}
	return nil
}

func (l *listed) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	for i := range l.policies {
		if p, ok := o.(*api.NodeRolloutPolicy); ok && l.policies[i].Name == key.Name {
			*p = *l.policies[i].DeepCopy()
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (l *listed) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	for i := range l.nodes {
		if n, ok := o.(*corev1.Node); ok && l.nodes[i].Name == n.Name {
			l.nodes[i] = *n.DeepCopy()
		}
	}
	return nil
}

// worker returns the policy of the workers with rules for the pods of some apps.
func worker(rules map[string]api.DrainRule) *api.NodeRolloutPolicy {
	p := &api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}
	for app, rule := range rules {
		rule.PodSelector.MatchLabels = map[string]string{"app": app}
		p.Spec.DrainRules = append(p.Spec.DrainRules, rule)
	}
	return p
}

// TestPodsLeaveAsTheRulesSay has a pod that must complete, another one with the same order, and one with a higher order.
func TestPodsLeaveAsTheRulesSay(t *testing.T) {
	server, clk := &answers{}, clocktesting.NewFakePassiveClock(time.Now())
	r := server.queue(t, false, clk, newPace(Options{}.limiter()))
	rules, err := drain.NewRules(worker(map[string]api.DrainRule{"batch": {Action: api.DrainWaitForCompletion}, "db": {Order: 5}, "agent": {Action: api.DrainSkip, Order: -1}}))
	require.NoError(t, err)
	batch, web, db, agent := *podNamed("batch"), *podNamed("web"), *podNamed("db"), *podNamed("agent")
	completed := batch
	completed.Status.Phase = corev1.PodSucceeded
	deleted := completed
	deleted.DeletionTimestamp = &metav1.Time{Time: clk.Now()}
	for _, tt := range []struct {
		name      string
		pods      []corev1.Pod
		requested []string
		blocker   string
	}{
		{"evicts pods of the lowest order, but for one that must complete", []corev1.Pod{db, batch, web}, []string{"web"}, "Pod shop/batch stays: NodeRolloutPolicy worker waits for its completion"},
		{"waits for the completion", []corev1.Pod{db, batch}, []string{"web"}, "Pod shop/batch stays: NodeRolloutPolicy worker waits for its completion"},
		{"evicts the completed pod", []corev1.Pod{db, completed}, []string{"web", "batch"}, ""},
		{"waits for its end", []corev1.Pod{db, deleted}, []string{"web", "batch"}, ""},
		{"evicts the next order", []corev1.Pod{db}, []string{"web", "batch", "db"}, ""},
		{"is done", nil, []string{"web", "batch", "db"}, ""},
	} {
		r.client = &listed{pods: append(tt.pods, agent)}
		p, err := r.evict(t.Context(), r.client, nodeNamed("n"), rules)
		require.NoError(t, err, tt.name)
		assert.Equal(t, tt.requested, server.names(), tt.name)
		assert.Equal(t, tt.blocker, p.blocker(), tt.name)
		assert.Equal(t, len(tt.pods) > 0, p.left, tt.name)
	}
}

// TestRulesAreThoseOfTheNodesPool has a policy for another pool, and one with an invalid rule.
func TestRulesAreThoseOfTheNodesPool(t *testing.T) {
	_, workers := pool.BuiltIn(nil)
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"node-role.kubernetes.io/worker": ""}, Annotations: map[string]string{
		api.DesiredConfigAnnotation: "new", api.DesiredDrainAnnotation: "drain-new",
	}}}
	n.Spec.Unschedulable = true
	own := worker(map[string]api.DrainRule{"web": {Order: 3}})
	other := own.DeepCopy()
	other.Name = "infra"
	c := &listed{pools: []mcfgv1.MachineConfigPool{*workers}, policies: []api.NodeRolloutPolicy{*other}, pods: []corev1.Pod{*podNamed("web")}, nodes: []corev1.Node{n}}
	server := &answers{}
	r := server.queue(t, false, clocktesting.NewFakePassiveClock(time.Now()), newPace(Options{}.limiter()))
	r.client = c
	order := func() int32 {
		rules, invalid, err := r.rules(t.Context(), &n)
		require.NoError(t, err)
		require.Empty(t, invalid)
		return rules.Order(podNamed("web"))
	}
	assert.Zero(t, order())
	c.policies = append(c.policies, *own)
	assert.EqualValues(t, 3, order())

	assert.Equal(t, requestFor("n"), r.policyChanged(t.Context(), own))
	c.nodes[0].Annotations[api.AppliedDrainAnnotation] = "drain-new"
	assert.Empty(t, r.policyChanged(t.Context(), own))

	c.policies[1].Spec.DrainRules[0].PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
	_, p, err := r.drain(t.Context(), &n, "drain-new")
	require.NoError(t, err)
	assert.Equal(t, `The drain waits, because NodeRolloutPolicy worker is invalid: spec.drainRules[0].podSelector is invalid: "Like" is not a valid label selector operator`, p.blocker())
	assert.Empty(t, server.names())
}

// TestRetriesOfAnObsoleteConfigUseFreeSlots has two nodes whose daemons try a config again that the pool no longer has, and one that is being updated.
func TestRetriesOfAnObsoleteConfigUseFreeSlots(t *testing.T) {
	_, workers := pool.BuiltIn(nil)
	workers.Spec.Configuration.Name = "v2"
	c := &listed{pools: []mcfgv1.MachineConfigPool{*workers}, pods: []corev1.Pod{*podNamed("web")}}
	for _, name := range []string{"a", "b", "c"} {
		n := nodeNamed(name)
		n.Labels = map[string]string{"node-role.kubernetes.io/worker": ""}
		n.Annotations = map[string]string{
			api.CurrentConfigAnnotation: "v0", api.DesiredConfigAnnotation: "v1", api.NodeStateAnnotation: api.NodeWorking,
			api.NodeReasonAnnotation: "failed", api.DesiredDrainAnnotation: "drain-v1", api.AppliedDrainAnnotation: "uncordon-v1",
		}
		c.nodes = append(c.nodes, *n)
	}
	updating := c.nodes[2].Annotations
	updating[api.DesiredConfigAnnotation], updating[api.DesiredDrainAnnotation] = "v2", "uncordon-v1"
	delete(updating, api.NodeReasonAnnotation)
	server := &answers{}
	r := server.queue(t, false, clocktesting.NewFakePassiveClock(time.Now()), newPace(Options{}.limiter()))
	r.client = c
	drain := func(i int) (isCordoned bool, blocker string) {
		n, p, err := r.answer(t.Context(), &c.nodes[i])
		require.NoError(t, err)
		return n.Spec.Unschedulable, p.blocker()
	}

	isCordoned, blocker := drain(0)
	assert.False(t, isCordoned)
	assert.Equal(t, "The drain waits for a slot: 1 node of MachineConfigPool worker may be unavailable at the same time, and c is", blocker)
	assert.Equal(t, requestFor("a"), r.ofWaiting(t.Context(), nil))

	updating[api.CurrentConfigAnnotation], updating[api.NodeStateAnnotation] = "v2", api.NodeDone
	isCordoned, blocker = drain(0)
	assert.True(t, isCordoned, "the other one only waits, too: %s", blocker)
	isCordoned, blocker = drain(1)
	assert.False(t, isCordoned)
	assert.Contains(t, blocker, "and a is")

	c.pools[0].Spec.Configuration.Name = "v1"
	isCordoned, _ = drain(1)
	assert.True(t, isCordoned, "a node that failed with the config of its pool has kept its slot")
}

// TestDrainIsCompleteOnceTheServerHasNoPods has a cache that does not show a pod yet, which may have started just before the cordon.
func TestDrainIsCompleteOnceTheServerHasNoPods(t *testing.T) {
	n := nodeNamed("n")
	n.Annotations = map[string]string{api.DesiredConfigAnnotation: "new", api.DesiredDrainAnnotation: "drain-new", api.CordonAnnotation: "1"}
	n.Spec.Unschedulable = true
	cache, server := &listed{pods: []corev1.Pod{*podNamed("web")}}, &listed{pods: []corev1.Pod{*podNamed("web"), *podNamed("late")}}
	evictions := &answers{}
	r := evictions.queue(t, false, clocktesting.NewFakePassiveClock(time.Now()), newPace(Options{}.limiter()))
	r.client, r.server = cache, server
	drain := func() (isAnswered bool) {
		answered, p, err := r.answer(t.Context(), n)
		require.NoError(t, err)
		isAnswered = answered.Annotations[api.AppliedDrainAnnotation] == "drain-new"
		assert.Equal(t, !isAnswered, p.left)
		return isAnswered
	}
	assert.False(t, drain())
	assert.Equal(t, []string{"web"}, evictions.names())
	assert.Zero(t, server.podLists, "the cache shows that the drain lasts")
	cache.pods, server.pods = nil, server.pods[1:]
	assert.False(t, drain())
	assert.Equal(t, []string{"web", "late"}, evictions.names())
	server.pods = nil
	assert.True(t, drain())
	assert.Equal(t, 2, server.podLists)
}
