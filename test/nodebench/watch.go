//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// nodeState is the part of a Node that shows its update.
type nodeState struct {
	node, desired, current, state string
	isCordoned                    bool
}

// change is a new state of a node, at the time at which its watch event arrived.
type change struct {
	nodeState
	at time.Time
}

// isUpdated reports whether the node has finished its update to a config.
func (s nodeState) isUpdated(config string) bool {
	return s.state == api.NodeDone && s.current == config && s.desired == config && !s.isCordoned
}

// timeline records the changes of all nodes, and when the stage reported a reason why a slot of the pool stayed empty.
type timeline struct {
	mu      sync.Mutex
	latest  map[string]nodeState
	changes []change
	waits   []wait
}

// wait is a time during which the pool reported such a reason. The last one may have no end.
type wait struct{ begun, ended time.Time }

// observePool records an event of a watch.
func (t *timeline) observePool(at time.Time, p *mcfgv1.MachineConfigPool) {
	if p.Name != api.WorkerPool {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.waits) - 1
	switch wasWaiting := last >= 0 && t.waits[last].ended.IsZero(); {
	case wasWaiting == (pool.Message(p, pool.NodesWaiting) != ""):
	case wasWaiting:
		t.waits[last].ended = at
	default:
		t.waits = append(t.waits, wait{begun: at})
	}
}

func newTimeline() *timeline { return &timeline{latest: map[string]nodeState{}} }

// observe records an event of a watch.
func (t *timeline) observe(at time.Time, n *corev1.Node) {
	s := nodeState{
		node: n.Name, desired: n.Annotations[api.DesiredConfigAnnotation], current: n.Annotations[api.CurrentConfigAnnotation],
		state: n.Annotations[api.NodeStateAnnotation], isCordoned: n.Spec.Unschedulable,
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest[n.Name] != s {
		t.latest[n.Name] = s
		t.changes = append(t.changes, change{s, at})
	}
}

// updated returns the number of nodes that have finished their update to a config.
func (t *timeline) updated(config string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.latest {
		if s.isUpdated(config) {
			n++
		}
	}
	return n
}

// since returns the changes since a time.
func (t *timeline) since(begun time.Time) []change {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, _ := slices.BinarySearchFunc(t.changes, begun, func(c change, at time.Time) int { return c.at.Compare(at) })
	return slices.Clone(t.changes[i:])
}

// durations returns for each node the time from its desired config until it has finished the update.
func durations(changes []change, config string) (list []time.Duration) {
	assigned, done := map[string]time.Time{}, map[string]bool{}
	for _, c := range changes {
		if _, isKnown := assigned[c.node]; !isKnown && c.desired == config {
			assigned[c.node] = c.at
		}
		if c.isUpdated(config) && !done[c.node] {
			done[c.node] = true
			list = append(list, c.at.Sub(assigned[c.node]))
		}
	}
	return list
}

// slotGaps returns for each cordon after the first ones, which fill the pool's slots, how long the slot was free. Slots are filled in the order in
// which nodes have freed them. withheld is the number of other slots, for which the pool reported a reason to stay empty. most is the maximum
// number of nodes that had a slot at the same time.
func slotGaps(changes []change, waits []wait, config string, slots int) (gaps []time.Duration, withheld, most int) {
	var freed, cordons []time.Time
	has, was := map[string]bool{}, map[string]bool{}
	for _, c := range changes {
		switch {
		case c.isCordoned && !was[c.node]:
			cordons = append(cordons, c.at)
			has[c.node] = true
		case has[c.node] && c.isUpdated(config):
			freed = append(freed, c.at)
			delete(has, c.node)
		}
		was[c.node] = c.isCordoned
		most = max(most, len(has))
	}
	for i, at := range freed {
		if slots+i >= len(cordons) {
			break
		}
		next := cordons[slots+i]
		if slices.ContainsFunc(waits, func(w wait) bool { return w.begun.Before(next) && (w.ended.IsZero() || w.ended.After(at)) }) {
			withheld++
			continue
		}
		gaps = append(gaps, max(0, next.Sub(at)))
	}
	return gaps, withheld, most
}

// judge counts the healthy pods of each budget.
type judge struct {
	replicas, needed int

	mu      sync.Mutex
	healthy map[types.UID]bool
	apps    map[string]*judged
	// violations says at which times a budget was violated.
	violations []string
	// lowest is the lowest number of healthy pods that a budget had in excess of what it needs.
	lowest int
}

// judged is the state of a budget.
type judged struct {
	healthy int
	// wasComplete reports whether all its pods have been healthy.
	wasComplete bool
}

func newJudge(replicas, allowed int) *judge {
	return &judge{replicas: replicas, needed: replicas - allowed, lowest: allowed, healthy: map[types.UID]bool{}, apps: map[string]*judged{}}
}

// observe records an event of a watch. A pod is healthy as the controller of budgets defines it.
func (j *judge) observe(at time.Time, kind apiwatch.EventType, p *corev1.Pod) {
	app := p.Labels[appLabel]
	if app == "" {
		return
	}
	isHealthy := kind != apiwatch.Deleted && p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.apps[app]
	if a == nil {
		a = &judged{}
		j.apps[app] = a
	}
	switch was := j.healthy[p.UID]; {
	case isHealthy == was:
	case isHealthy:
		j.healthy[p.UID] = true
		a.healthy++
		a.wasComplete = a.wasComplete || a.healthy >= j.replicas
	default:
		delete(j.healthy, p.UID)
		a.healthy--
		if !a.wasComplete {
			return
		}
		j.lowest = min(j.lowest, a.healthy-j.needed)
		if a.healthy < j.needed {
			j.violations = append(j.violations, fmt.Sprintf("%s: %s has %d healthy pods, its budget needs %d", at.UTC().Format(time.RFC3339Nano), app, a.healthy, j.needed))
		}
	}
}

// complete returns the number of budgets whose pods are all healthy.
func (j *judge) complete() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.apps {
		if a.healthy >= j.replicas {
			n++
		}
	}
	return n
}

// follow calls observe with each event of a kind until ctx ends. It fails if an event may be lost.
func follow(ctx context.Context, w toolscache.WatcherWithContext, from string, observe func(apiwatch.Event)) error {
	watch, err := watchtools.NewRetryWatcherWithContext(ctx, from, w)
	if err != nil {
		return err
	}
	defer watch.Stop()
	for e := range watch.ResultChan() {
		if e.Type == apiwatch.Error {
			return fmt.Errorf("the watch has lost events: %v", e.Object)
		}
		observe(e)
	}
	if ctx.Err() == nil {
		return errors.New("the watch has ended")
	}
	return nil
}

// watchPods lets the judge see all pods until ctx ends.
func (c *testCluster) watchPods(ctx context.Context, j *judge) error {
	set, err := kubernetes.NewForConfig(c.env.Config(agent + "-judge"))
	if err != nil {
		return err
	}
	pods := set.CoreV1().Pods(metav1.NamespaceAll)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		j.observe(time.Now(), apiwatch.Added, &list.Items[i])
	}
	w := &toolscache.ListWatch{WatchFuncWithContext: pods.Watch}
	return follow(ctx, w, list.ResourceVersion, func(e apiwatch.Event) {
		if p, ok := e.Object.(*corev1.Pod); ok {
			j.observe(time.Now(), e.Type, p)
		}
	})
}

// watchNodes records the states of all nodes until ctx ends.
func (c *testCluster) watchNodes(ctx context.Context, t *timeline) error {
	set, err := kubernetes.NewForConfig(c.env.Config(agent + "-nodes"))
	if err != nil {
		return err
	}
	nodes := set.CoreV1().Nodes()
	list, err := nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		t.observe(time.Now(), &list.Items[i])
	}
	w := &toolscache.ListWatch{WatchFuncWithContext: nodes.Watch}
	return follow(ctx, w, list.ResourceVersion, func(e apiwatch.Event) {
		if n, ok := e.Object.(*corev1.Node); ok && e.Type != apiwatch.Deleted {
			t.observe(time.Now(), n)
		}
	})
}

// watchPools records why slots stay empty until ctx ends.
func (c *testCluster) watchPools(ctx context.Context, t *timeline) error {
	list := &mcfgv1.MachineConfigPoolList{}
	if err := c.client.List(ctx, list); err != nil {
		return err
	}
	w := &toolscache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
		return c.client.Watch(ctx, &mcfgv1.MachineConfigPoolList{}, &client.ListOptions{Raw: &o})
	}}
	return follow(ctx, w, list.ResourceVersion, func(e apiwatch.Event) {
		if p, ok := e.Object.(*mcfgv1.MachineConfigPool); ok {
			t.observePool(time.Now(), p)
		}
	})
}
