package nodesim_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
)

// The scenario of §13.4: every application is in one pool, and its pods are on nodes of that pool drawn uniformly.
const (
	poolCount    = 5
	nodesPerPool = 400
	appsPerPool  = 600
	replicas     = 20
	slots        = nodesPerPool / 10
)

// Durations of the scenario. The termination of a pod is uniform between two of them.
const (
	minTermination = 2 * time.Second
	maxTermination = 30 * time.Second
	// startup is the time from the end of a pod until its replacement is ready.
	startup = 10 * time.Second
	// reboot is the time from the end of the last pod until the node is updated and ready.
	reboot = 90 * time.Second
	// settle is the time after which a change of a budget causes another plan.
	settle = time.Second
)

// Names of the configs before and after the update.
const before, after = "rendered-before", "rendered-after"

// namespace has all pods.
const namespace = "shop"

// epoch is the beginning of the update.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// cluster has everything that exists in a simulation.
type cluster struct {
	pools []*nodePool
	index *plan.Index
	clock
	// plans is the number of plans, and refused that of the evictions that a budget refused.
	plans, refused int
	// violations are broken rules: an application with too few healthy pods, or a pool with too many unavailable nodes.
	violations []string
	// perSecond limits the evictions of all nodes together; 0 for no limit. nextRequest is the time of the next one.
	perSecond   int
	nextRequest time.Time
	// byPoolAlone leaves budgets out of the order of nodes.
	byPoolAlone bool
}

type nodePool struct {
	object *mcfgv1.MachineConfigPool
	nodes  []*node
	// objects are the objects of nodes.
	objects []*corev1.Node
	byName  map[string]*node
	// hasIdle reports whether the last plan left a slot empty.
	hasIdle bool
	// isDue reports whether another plan follows within settle.
	isDue bool
	// updated is the number of updated nodes, and finished the time at which the last one was.
	updated  int
	finished time.Time
}

type node struct {
	object *corev1.Node
	pool   *nodePool
	pods   []*pod
	// left is the number of pods on the node once its drain has begun.
	left int
}

type pod struct {
	object      *corev1.Pod
	node        *node
	app         *application
	termination time.Duration
}

type application struct {
	pool *nodePool
	// budget is nil if the application has none.
	budget *policyv1.PodDisruptionBudget
	// healthy is the number of healthy pods, and needed the number that the budget requires.
	healthy, needed int
	// refused has the pods whose eviction was refused, in the order of their first attempt.
	refused []*pod
}

// newCluster returns the cluster of the scenario. atOnce returns how many pods of an application may be disrupted at the same time; it is nil
// if the applications have no budgets.
func newCluster(seed uint64, atOnce func(*rand.Rand) int) *cluster {
	random := rand.New(rand.NewPCG(seed, 0))
	c := &cluster{clock: clock{now: epoch}}
	var budgets []policyv1.PodDisruptionBudget
	var pods []*corev1.Pod
	for i := range poolCount {
		p := newPool(i)
		for j := range appsPerPool {
			name := fmt.Sprintf("app-%d-%d", i, j)
			app := &application{pool: p, healthy: replicas}
			if atOnce != nil {
				app.needed = replicas - atOnce(random)
				app.budget = newBudget(name, app.needed)
				budgets = append(budgets, *app.budget)
			}
			for k := range replicas {
				n := p.nodes[random.IntN(nodesPerPool)]
				termination := minTermination + time.Duration(random.Int64N(int64(maxTermination-minTermination)))
				q := &pod{object: newPod(name, k, n.object.Name), node: n, app: app, termination: termination}
				n.pods, pods = append(n.pods, q), append(pods, q.object)
			}
		}
		c.pools = append(c.pools, p)
	}
	c.index = plan.NewIndex(budgets)
	for _, q := range pods {
		c.index.AddPod(q)
	}
	return c
}

func newPool(i int) *nodePool {
	p := &nodePool{object: &mcfgv1.MachineConfigPool{}, byName: map[string]*node{}}
	p.object.Name = fmt.Sprintf("pool-%d", i)
	p.object.Spec.MaxUnavailable = new(intstr.FromString("10%"))
	p.object.Spec.Configuration.Name = after
	for j := range nodesPerPool {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d-%d", i, j)}}
		o.Annotations = map[string]string{
			api.CurrentConfigAnnotation: before, api.DesiredConfigAnnotation: before, api.NodeStateAnnotation: api.NodeDone,
		}
		n := &node{object: o, pool: p}
		p.nodes, p.objects, p.byName[o.Name] = append(p.nodes, n), append(p.objects, o), n
	}
	return p
}

func newPod(app string, replica int, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("%s-%d", app, replica), Labels: map[string]string{"app": app},
	}}
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

func newBudget(app string, needed int) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app}}
	b.Spec.MinAvailable = new(intstr.FromInt(needed))
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ExpectedPods: replicas, CurrentHealthy: replicas, DesiredHealthy: int32(needed), DisruptionsAllowed: int32(replicas - needed),
		Conditions: []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue}},
	}
	return b
}

// bound returns the shortest possible makespan: that of the longest pool whose slots are never empty and whose pods never wait, or that of all
// evictions at their limit.
func (c *cluster) bound() time.Duration {
	var bound time.Duration
	if c.perSecond > 0 {
		bound = (poolCount*appsPerPool*replicas-1)*time.Second/time.Duration(c.perSecond) + minTermination + reboot
	}
	for _, p := range c.pools {
		var sum time.Duration
		for _, n := range p.nodes {
			longest := time.Duration(0)
			for _, q := range n.pods {
				longest = max(longest, q.termination)
			}
			sum += longest + reboot
		}
		bound = max(bound, sum/slots)
	}
	return bound
}
