package update

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
)

// evictionsPerSecond limits the evictions of all nodes together.
const evictionsPerSecond = 50

// drains cordons, drains and releases nodes at the request of their daemons.
type drains struct {
	client  client.Client
	clock   clock.PassiveClock
	options Options
	limit   flowcontrol.RateLimiter

	mutex sync.Mutex
	// refused holds the pods whose eviction was refused, by UID. A restart forgets them, which costs one request each.
	refused map[types.UID]refusal
}

// refusal is a refused eviction.
type refusal struct {
	node, namespace string
	answer          drain.Answer
	// again is the time of the next attempt.
	again time.Time
}

func newDrains(c client.Client, clk clock.PassiveClock, o Options) *drains {
	return &drains{
		client: c, clock: clk, options: o, refused: map[types.UID]refusal{},
		limit: flowcontrol.NewTokenBucketRateLimiter(evictionsPerSecond, evictionsPerSecond),
	}
}

func requestFor(node string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: node}}}
}

// Reconcile implements reconcile.Reconciler. It answers a node's latest request.
func (r *drains) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	n := &corev1.Node{}
	if err := r.client.Get(ctx, request.NamespacedName, n); err != nil {
		r.forget(request.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	wanted := n.Annotations[api.DesiredDrainAnnotation]
	if wanted == "" || wanted == n.Annotations[api.AppliedDrainAnnotation] {
		r.forget(n.Name)
		return reconcile.Result{}, nil
	}
	verb, _, _ := strings.Cut(wanted, "-")
	switch verb {
	case "uncordon":
		return reconcile.Result{}, r.uncordon(ctx, n, wanted)
	case "drain":
		return r.drain(ctx, n, wanted)
	}
	return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("node %s requests %q: expected drain-CONFIG or uncordon-CONFIG", n.Name, wanted))
}

// uncordon lifts the cordon if it is ours, and answers the request in the same write.
func (r *drains) uncordon(ctx context.Context, n *corev1.Node, wanted string) error {
	return r.write(ctx, n, func(n *corev1.Node) {
		if _, ours := n.Annotations[api.CordonAnnotation]; ours {
			n.Spec.Unschedulable = false
			delete(n.Annotations, api.CordonAnnotation)
		}
		n.Annotations[api.AppliedDrainAnnotation] = wanted
	})
}

// drain cordons the node, evicts its pods and, once they are gone, answers the request. If another client uncordons the node meanwhile, the
// answer fails and the node is cordoned again.
func (r *drains) drain(ctx context.Context, n *corev1.Node, wanted string) (reconcile.Result, error) {
	if !n.Spec.Unschedulable {
		return reconcile.Result{}, r.write(ctx, n, func(n *corev1.Node) {
			attempt, _ := strconv.Atoi(n.Annotations[api.CordonAnnotation])
			n.Spec.Unschedulable = true
			n.Annotations[api.CordonAnnotation] = strconv.Itoa(attempt + 1)
		})
	}
	wait, left, err := r.evict(ctx, n.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if left {
		return reconcile.Result{RequeueAfter: wait}, nil // the end of a pod is an event
	}
	return reconcile.Result{}, r.write(ctx, n, func(n *corev1.Node) { n.Annotations[api.AppliedDrainAnnotation] = wanted })
}

// evict requests the eviction of each pod that must leave the node. left reports whether there are any, and wait is the time until the next
// attempt for a refused one, or 0.
func (r *drains) evict(ctx context.Context, node string) (wait time.Duration, left bool, err error) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingFields{nodeName: node}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, false, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	hasDaemonSet := func(namespace, name string) bool {
		return !apierrors.IsNotFound(r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &appsv1.DaemonSet{}))
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		action := drain.ActionFor(pod, hasDaemonSet)
		if action == drain.Keep {
			continue
		}
		left = true
		if action != drain.Evict {
			continue
		}
		after, err := r.evictPod(ctx, node, pod)
		if err != nil {
			return 0, true, err
		}
		if after > 0 && (wait == 0 || after < wait) {
			wait = after
		}
	}
	return wait, left, nil
}

// evictPod requests the eviction of a pod, unless an earlier request was refused and its next attempt is not due.
func (r *drains) evictPod(ctx context.Context, node string, pod *corev1.Pod) (after time.Duration, err error) {
	r.mutex.Lock()
	earlier, wasRefused := r.refused[pod.UID]
	r.mutex.Unlock()
	if wasRefused {
		if after := earlier.again.Sub(r.clock.Now()); after > 0 {
			return after, nil
		}
	}
	if err := r.limit.Wait(ctx); err != nil {
		return 0, fmt.Errorf("waiting to evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	}
	answer := drain.Read(r.client.SubResource("eviction").Create(ctx, pod, eviction))
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if answer.Meaning == drain.Accepted || answer.Meaning == drain.Gone {
		delete(r.refused, pod.UID)
		return 0, nil
	}
	after = max(answer.After, time.Second)
	if answer.Meaning != drain.Busy && answer.After == 0 {
		after = r.options.Retry
	}
	r.refused[pod.UID] = refusal{node, pod.Namespace, answer, r.clock.Now().Add(after)}
	return after, nil
}

// budgetChanged makes the next attempt due for pods in the budget's namespace whose budget refused the eviction.
func (r *drains) budgetChanged(_ context.Context, budget client.Object) []reconcile.Request {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var requests []reconcile.Request
	for uid, refused := range r.refused {
		if refused.namespace == budget.GetNamespace() && refused.answer.Meaning == drain.Budget {
			refused.again = time.Time{}
			r.refused[uid] = refused
			requests = append(requests, requestFor(refused.node)...)
		}
	}
	return requests
}

// forget drops the refusals of a node's pods.
func (r *drains) forget(node string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	maps.DeleteFunc(r.refused, func(_ types.UID, refused refusal) bool { return refused.node == node })
}

// write changes a node unless it has changed since it was read. A change of the node is an event, so the next reconcile follows.
func (r *drains) write(ctx context.Context, n *corev1.Node, change func(*corev1.Node)) error {
	next := n.DeepCopy()
	change(next)
	err := r.client.Patch(ctx, next, client.MergeFromWithOptions(n, client.MergeFromWithOptimisticLock{}))
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("writing node %s: %w", n.Name, err)
}
