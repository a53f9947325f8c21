package evict

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/controlplane"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

const (
	// refusedRetry is the delay before a refused eviction is requested again, unless its budget or pod changes earlier.
	refusedRetry = 30 * time.Second
	// drainWorkers is the number of nodes outside the control plane that are reconciled at the same time. A slow eviction then delays only its node.
	drainWorkers = 10
	// blockerText is the maximum length of the text about a blocked drain, in bytes. An event has room for it.
	blockerText = 1000
)

// drains cordons, drains and releases nodes at the request of their daemons. It is one of two queues.
type drains struct {
	// isControlPlane is true in the queue of the control plane. The other queue has all other nodes.
	isControlPlane bool
	client         client.Client
	// server lists the pods of a node before the answer to its request: the cache may be late.
	server client.Reader
	// core sends evictions. The client would repeat a refused request itself, up to ten times.
	core     rest.Interface
	guard    *controlplane.Guard
	clock    clock.PassiveClock
	recorder record.EventRecorder
	pace     *pace
	// pod is the pod of this process, or empty.
	pod client.ObjectKey

	mutex sync.Mutex
	// requested holds, for each node, the pods whose eviction was requested, until the node is drained. A restart forgets them, which costs one
	// request each.
	requested map[string]map[types.UID]eviction
	// waiting has the nodes whose drain waits for a slot.
	waiting map[string]bool
	// slots is held by the drain that begins, if the number of drains is limited here.
	slots sync.Mutex
	// written are versions of nodes that the cache may not show yet.
	written watch.Written[*corev1.Node]
}

// eviction is a requested eviction.
type eviction struct {
	answer drain.Answer
	// namespace, labels and status are those of the pod at the request. They decide whether and which budgets protect it.
	namespace string
	labels    map[string]string
	status    corev1.PodStatus
	// again is the time of the next request. The cache shows the deletion of an evicted pod before that.
	again time.Time
	// refusedSince is the time of the first of the refusals without an acceptance between them; zero if the last request was accepted.
	refusedSince time.Time
	// isRunning reports whether the server has not answered yet, and isFreed whether a budget has changed since the request began.
	isRunning, isFreed bool
}

// isRefused reports whether the pod stays until something else changes.
func (e eviction) isRefused() bool {
	return !e.isRunning && isRefusal(e.answer)
}

func isRefusal(a drain.Answer) bool { return a.Meaning == drain.Budget || a.Meaning == drain.Refused }

// isOutdated reports whether the eviction was refused and the pod has changed since.
func (e eviction) isOutdated(pod *corev1.Pod) bool {
	return e.isRefused() && (!maps.Equal(e.labels, pod.Labels) || !equality.Semantic.DeepEqual(e.status, pod.Status))
}

// newDrains returns the queue of the control plane, or the one of all other nodes.
func newDrains(
	isControlPlane bool, c client.Client, server client.Reader, core rest.Interface, guard *controlplane.Guard, clk clock.PassiveClock,
	recorder record.EventRecorder, pace *pace, pod client.ObjectKey,
) *drains {
	return &drains{
		isControlPlane: isControlPlane, client: c, server: server, core: core, guard: guard, clock: clk, recorder: recorder, pace: pace, pod: pod,
		requested: map[string]map[types.UID]eviction{}, waiting: map[string]bool{},
	}
}

func requestFor(node string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: node}}}
}

// Reconcile implements reconcile.Reconciler. It answers a node's latest request and shows the progress in the node's conditions.
func (r *drains) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	n, err := r.node(ctx, request.Name)
	var p progress
	if err == nil {
		n, p, err = r.answer(ctx, n)
	}
	if err == nil {
		var after time.Duration
		after, err = r.show(ctx, n, p.blocker())
		p.within(after)
	}
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: cluster.ConflictRetry}, nil
	case apierrors.IsNotFound(err):
		r.forget(request.Name)
		r.written.Forget(request.Name)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.wait}, nil
}

// node returns a node in the newest version that this process knows, even if the cache does not show it yet.
func (r *drains) node(ctx context.Context, name string) (*corev1.Node, error) {
	cached := &corev1.Node{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, cached); err != nil {
		return nil, err
	}
	return r.written.Newest(cached), nil
}

// progress is the progress of a drain.
type progress struct {
	// left reports whether pods must still leave the node.
	left bool
	// wait is the time until the next attempt; 0 if an event shows when it is due.
	wait time.Duration
	// blockers explain, for each pod that delays the drain, why it does.
	blockers []string
}

// within has the next attempt be due after a time, unless it is due earlier.
func (p *progress) within(after time.Duration) {
	if after > 0 && (p.wait == 0 || after < p.wait) {
		p.wait = after
	}
}

// blocker returns a sentence about the first of the pods that delay the drain, and their number.
func (p *progress) blocker() string {
	if len(p.blockers) == 0 {
		return ""
	}
	return printable.AndOthers(slices.Min(p.blockers), len(p.blockers), "pod")
}

// answer answers a node's latest request. It returns the node with the change that it has written.
func (r *drains) answer(ctx context.Context, n *corev1.Node) (*corev1.Node, progress, error) {
	wanted := n.Annotations[api.DesiredDrainAnnotation]
	if wanted == "" || drain.IsAnswered(n) {
		r.forget(n.Name)
		return n, progress{}, nil
	}
	switch {
	case drain.IsEndRequested(n):
		n, err := r.uncordon(ctx, n, wanted)
		return n, progress{}, err
	case drain.IsRequested(n) && (pool.IsReleased(n) || isReturning(n)):
		r.forget(n.Name) // its daemon has the cordon lifted
		return n, progress{}, nil
	case drain.IsRequested(n):
		return r.drain(ctx, n, wanted)
	}
	return n, progress{}, reconcile.TerminalError(fmt.Errorf("node %s requests %q: expected drain-CONFIG or uncordon-CONFIG", n.Name, wanted))
}

// isReturning reports whether a node has released its slot while it was drained, and its daemon has not ended the drain yet.
func isReturning(n *corev1.Node) bool {
	_, is := pool.SlotReleased(n)
	return is && n.Annotations[api.DesiredDrainAnnotation] != drain.Before(n.Annotations[api.DesiredConfigAnnotation])
}

// show writes the conditions of the node that describe its update. The lock keeps a write that the cache does not show yet. after is the time until
// a message may be written that is too early now; 0 if there is none.
func (r *drains) show(ctx context.Context, n *corev1.Node, blocker string) (after time.Duration, err error) {
	conditions, changed, after := drain.Conditions(n, printable.Excerpt(blocker, blockerText), r.clock.Now())
	if !changed {
		return after, nil
	}
	next := n.DeepCopy()
	next.Status.Conditions = conditions
	if err := r.client.Status().Patch(ctx, next, client.StrategicMergeFrom(n, client.MergeFromWithOptimisticLock{})); err != nil {
		return 0, fmt.Errorf("writing the conditions of node %s: %w", n.Name, err)
	}
	r.written.Add(next)
	if blocker != "" {
		logr.FromContextOrDiscard(ctx).Info("drain blocked", "node", n.Name, "reason", blocker)
		r.recorder.Event(n, corev1.EventTypeWarning, api.EventDrainBlocked, blocker)
	}
	return after, nil
}

// uncordon lifts the cordon if it is ours, and answers the request in the same write.
func (r *drains) uncordon(ctx context.Context, n *corev1.Node, wanted string) (*corev1.Node, error) {
	next, err := r.write(ctx, n, func(n *corev1.Node) {
		if _, ours := n.Annotations[api.CordonAnnotation]; ours {
			n.Spec.Unschedulable = false
			delete(n.Annotations, api.CordonAnnotation)
		}
		n.Annotations[api.AppliedDrainAnnotation] = wanted
	})
	if err == nil {
		logr.FromContextOrDiscard(ctx).Info("node released", "node", next.Name, "schedulable", !next.Spec.Unschedulable)
	}
	return next, err
}

// drain cordons the node, evicts its pods and, once they are gone, answers the request. If another client uncordons the node meanwhile, the
// answer fails and the node is cordoned again. If its pods could run nowhere else, drain answers at once and changes nothing.
func (r *drains) drain(ctx context.Context, n *corev1.Node, wanted string) (*corev1.Node, progress, error) {
	n, p, isCordoned, err := r.begin(ctx, n, wanted)
	if !isCordoned || err != nil {
		return n, p, err // the written cordon is an event
	}
	rules, invalid, err := r.rules(ctx, n)
	if err != nil {
		return n, progress{}, err
	}
	if invalid != "" {
		return n, progress{blockers: []string{invalid}}, nil
	}
	p, err = r.evict(ctx, r.client, n, rules)
	if err == nil && !p.left {
		p, err = r.evict(ctx, r.server, n, rules) // the cache may lack a pod that has started just before the cordon
	}
	if err != nil || p.left {
		return n, p, err // the end of a pod is an event
	}
	n, err = r.write(ctx, n, func(n *corev1.Node) { n.Annotations[api.AppliedDrainAnnotation] = wanted })
	if err == nil {
		logr.FromContextOrDiscard(ctx).Info("node drained", "node", n.Name)
	}
	return n, p, err
}

// begin cordons the node. isCordoned is true if it was already. A drain that has begun continues. Another one begins only while refusal allows it: the
// consent to the update of a node may be old, because a daemon tries again by itself, and a node whose content is restored has none.
func (r *drains) begin(ctx context.Context, n *corev1.Node, wanted string) (next *corev1.Node, p progress, isCordoned bool, err error) {
	if !r.hasBegun(n) && (pool.IsControlPlaneNode(n) || pool.IsRestoring(n) || pool.IsRetry(n)) {
		r.slots.Lock() // until the cordon is written, so that no other node gets the same slot
		defer r.slots.Unlock()
		nodes, err := r.nodes(ctx)
		if err != nil {
			return n, progress{}, false, err
		}
		why, wait, err := r.refusal(ctx, n, nodes)
		if why != "" || err != nil {
			return n, progress{wait: cmp.Or(wait, refusedRetry), blockers: []string{"The drain " + why}}, false, err
		}
		if pool.IsControlPlaneNode(n) && pool.IsStranded(n, nodes) {
			n, err := r.write(ctx, n, func(n *corev1.Node) { n.Annotations[api.AppliedDrainAnnotation] = wanted })
			if err == nil {
				logr.FromContextOrDiscard(ctx).Info("node not drained: its pods could run nowhere else", "node", n.Name)
			}
			return n, progress{}, false, err
		}
	}
	if n.Spec.Unschedulable {
		return n, progress{}, true, nil
	}
	next, err = r.write(ctx, n, func(n *corev1.Node) {
		attempt, _ := strconv.Atoi(n.Annotations[api.CordonAnnotation])
		n.Spec.Unschedulable = true
		n.Annotations[api.CordonAnnotation] = strconv.Itoa(attempt + 1)
	})
	if err == nil {
		logr.FromContextOrDiscard(ctx).Info("node cordoned", "node", next.Name, "attempt", next.Annotations[api.CordonAnnotation])
	}
	return next, progress{}, false, err
}

// refusal returns why the drain of a node must not begin now, as a sentence without subject and period; empty if it may. nodes are those of the
// cluster. wait is the time until the next attempt; 0 if the change of an object may end it.
func (r *drains) refusal(ctx context.Context, n *corev1.Node, nodes []*corev1.Node) (why string, wait time.Duration, err error) {
	why, err = r.slotRefusal(ctx, n, nodes)
	r.setWaiting(n.Name, why != "")
	if why != "" || err != nil {
		return why, 0, err
	}
	if !pool.IsControlPlaneNode(n) {
		return "", 0, nil
	}
	var budgets policyv1.PodDisruptionBudgetList
	if err := r.client.List(ctx, &budgets, client.UnsafeDisableDeepCopy); err != nil {
		return "", 0, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	why, wait = r.guard.Refusal(ctx, n, nodes, budgets.Items)
	return why, wait, nil
}

// slotRefusal returns pool.SlotRefusal for the node's pool; empty without a pool.
func (r *drains) slotRefusal(ctx context.Context, n *corev1.Node, nodes []*corev1.Node) (string, error) {
	all, err := r.pools(ctx)
	if err != nil {
		return "", err
	}
	members := pool.Assign(all, nodes)
	name, _ := members.Pool(n)
	i := slices.IndexFunc(all, func(p *mcfgv1.MachineConfigPool) bool { return p.Name == name })
	if i < 0 {
		return "", nil
	}
	p, err := r.policy(ctx, name)
	if err != nil {
		return "", err
	}
	perZone := 0
	if p != nil {
		perZone = int(p.Spec.MaxUnavailablePerZone)
	}
	return pool.SlotRefusal(all[i], members.Nodes[name], n, perZone), nil
}

// hasBegun reports whether the drain of a node has begun: it has our cordon, or evictions if the cordon is another client's.
func (r *drains) hasBegun(n *corev1.Node) bool {
	if _, ours := n.Annotations[api.CordonAnnotation]; ours {
		return true
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.requested[n.Name]) > 0
}

// evict requests the eviction of each pod that must leave the node now by the rules. It lists the pods by reader.
func (r *drains) evict(ctx context.Context, reader client.Reader, n *corev1.Node, rules drain.Rules) (progress, error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.MatchingFields{nodeName: n.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return progress{}, fmt.Errorf("listing the pods of node %s: %w", n.Name, err)
	}
	hasDaemonSet := func(namespace, name string) bool {
		return !apierrors.IsNotFound(r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &appsv1.DaemonSet{}))
	}
	kept, err := r.kept(ctx, n.Name)
	if err != nil {
		return progress{}, err
	}
	actions := map[*corev1.Pod]drain.Action{}
	first := int32(math.MaxInt32)
	for i := range pods.Items {
		pod := &pods.Items[i]
		action := drain.ActionFor(pod, hasDaemonSet)
		if action == drain.Keep || action == drain.Evict && (rules.Skips(pod) || kept != nil && drain.IsReplica(pod, kept)) {
			continue
		}
		actions[pod] = action
		first = min(first, rules.Order(pod))
	}
	p := progress{left: len(actions) > 0}
	for i := range pods.Items {
		pod := &pods.Items[i]
		action, leaves := actions[pod]
		if !leaves || rules.Order(pod) > first {
			continue
		}
		why, after := rules.Delay(pod), time.Duration(0)
		if action == drain.Wait {
			why, after = drain.Overdue(pod, r.clock.Now())
		} else if why == "" {
			var err error
			if why, after, err = r.evictPod(ctx, n, rules, pod); err != nil {
				return p, err
			}
		}
		p.within(after)
		if why != "" {
			p.blockers = append(p.blockers, fmt.Sprintf("Pod %s/%s stays: %s", pod.Namespace, pod.Name, why))
		}
	}
	return p, nil
}

// kept returns the pod of this process if it runs on the node and could run on no other, and nil otherwise.
func (r *drains) kept(ctx context.Context, node string) (*corev1.Pod, error) {
	if r.pod.Name == "" {
		return nil, nil
	}
	own := &corev1.Pod{}
	if err := r.client.Get(ctx, r.pod, own); err != nil || own.Spec.NodeName != node {
		return nil, client.IgnoreNotFound(err)
	}
	nodes, err := r.nodes(ctx)
	if err != nil || pool.CanMove(own, nodes) {
		return nil, err
	}
	return own, nil
}

func (r *drains) nodes(ctx context.Context) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return r.written.All(pointers.To(list.Items)), nil
}

// evictPod requests the eviction of a pod, unless it was requested and the next request is not due. It deletes the pod if that is refused and the rules
// allow it now. It returns why the pod stays, empty if the server deletes it, and the time until the next attempt.
func (r *drains) evictPod(ctx context.Context, n *corev1.Node, rules drain.Rules, pod *corev1.Pod) (why string, after time.Duration, err error) {
	r.mutex.Lock()
	earlier, wasRequested := r.requested[n.Name][pod.UID]
	r.mutex.Unlock()
	if wasRequested && !earlier.isOutdated(pod) {
		if after := earlier.again.Sub(r.clock.Now()); after > 0 {
			return earlier.answer.Message, after, nil
		}
	}
	if err := r.pace.wait(ctx, r.isControlPlane); err != nil {
		return "", 0, fmt.Errorf("waiting to evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	request := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	}
	e := eviction{namespace: pod.Namespace, labels: pod.Labels, status: pod.Status, refusedSince: earlier.refusedSince, isRunning: true}
	r.set(n.Name, pod.UID, e)
	answer := drain.Read(r.core.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction").
		Body(request).MaxRetries(0).Do(ctx).Error())
	if ctx.Err() != nil {
		return "", 0, ctx.Err()
	}
	after = max(answer.After, time.Second)
	if answer.Meaning != drain.Busy && answer.After == 0 {
		after = refusedRetry
	}
	now := r.clock.Now()
	switch {
	case answer.IsUnknown: // no server has refused the eviction for that time
		e.refusedSince = time.Time{}
	case isRefusal(answer):
		if e.refusedSince.IsZero() {
			e.refusedSince = now
		}
		if deletion := rules.Deletion(e.refusedSince); deletion.After(now) {
			after = min(after, deletion.Sub(now))
		} else if !deletion.IsZero() {
			answer = r.deletePod(ctx, n, rules, pod, answer.Message)
		}
	case answer.Meaning != drain.Busy:
		e.refusedSince = time.Time{}
	}
	e.answer, e.isRunning, e.again = answer, false, now.Add(after)
	r.set(n.Name, pod.UID, e)
	return answer.Message, after, nil
}

// deletePod deletes a pod with its own grace period, although its eviction is refused for a reason. It returns the server's answer.
func (r *drains) deletePod(ctx context.Context, n *corev1.Node, rules drain.Rules, pod *corev1.Pod, reason string) drain.Answer {
	answer := drain.Read(r.core.Delete().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}).MaxRetries(0).Do(ctx).Error())
	if answer.Meaning != drain.Accepted {
		return answer
	}
	logr.FromContextOrDiscard(ctx).Info("pod deleted", "node", n.Name, "pod", pod.Namespace+"/"+pod.Name, "reason", reason)
	r.recorder.Eventf(n, corev1.EventTypeWarning, api.EventPodDeleted, "Deleted pod %s/%s by %s, because its eviction was refused: %s",
		pod.Namespace, pod.Name, rules.DeletionReason(), printable.Excerpt(reason, blockerText))
	return answer
}

// set records an eviction. If a budget has changed since its request began, the next one is due.
func (r *drains) set(node string, uid types.UID, e eviction) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.requested[node] == nil {
		r.requested[node] = map[types.UID]eviction{}
	}
	if e.isRefused() && r.requested[node][uid].isFreed {
		e.again = time.Time{}
	}
	r.requested[node][uid] = e
}

// budgetChanged makes the next attempt due for the budget's pods whose eviction was refused, or is refused by an answer that is on its way. Of a
// changed budget, it gets the earlier version as well, which may have another selector.
func (r *drains) budgetChanged(_ context.Context, o client.Object) []reconcile.Request {
	budget, ok := o.(*policyv1.PodDisruptionBudget)
	if !ok {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector) // of nil, it selects nothing
	if err != nil {
		return nil // it protects no pod
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var requests []reconcile.Request
	for node, evictions := range r.requested {
		isDue := false
		for uid, e := range evictions {
			if (e.isRunning || e.isRefused()) && e.namespace == budget.Namespace && selector.Matches(labels.Set(e.labels)) {
				e.again, e.isFreed, isDue = time.Time{}, true, true
				evictions[uid] = e
			}
		}
		if isDue {
			requests = append(requests, requestFor(node)...)
		}
	}
	return requests
}

// forget drops what is known about a node that is drained or gone.
func (r *drains) forget(node string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.requested, node)
	delete(r.waiting, node)
}

func (r *drains) setWaiting(node string, waits bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if waits {
		r.waiting[node] = true
	} else {
		delete(r.waiting, node)
	}
}

// ofWaiting requests the nodes whose drain waits for a slot, which any node may have freed.
func (r *drains) ofWaiting(context.Context, client.Object) []reconcile.Request {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var requests []reconcile.Request
	for node := range r.waiting {
		requests = append(requests, requestFor(node)...)
	}
	return requests
}

// write changes a node unless it has changed since it was read, and returns it.
func (r *drains) write(ctx context.Context, n *corev1.Node, change func(*corev1.Node)) (*corev1.Node, error) {
	next := n.DeepCopy()
	change(next)
	if err := r.client.Patch(ctx, next, client.MergeFromWithOptions(n, client.MergeFromWithOptimisticLock{})); err != nil {
		return n, fmt.Errorf("writing node %s: %w", n.Name, err)
	}
	r.written.Add(next)
	return next, nil
}
