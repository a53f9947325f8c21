package evict

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/controlplane"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/test/env"
)

var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// serve returns the connection to a control plane that serves MachineConfigPools and NodeRolloutPolicies, and a client for it.
func serve(t *testing.T) (*rest.Config, client.Client) {
	t.Helper()
	e := controlPlane.For(t)
	e.Serve(t, "../../../machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_machineconfigpools-CustomNoUpgrade.crd.yaml")
	cfg := e.Config("test")
	_, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{
		ErrorIfPathMissing: true, Paths: []string{"../../../manifests/node/0000_80_machine-config_01_noderolloutpolicies.crd.yaml"},
	})
	require.NoError(t, err)
	scheme, err := cluster.NewScheme()
	require.NoError(t, err)
	server, err := client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return cfg, server
}

// late is a client whose cache may show a node in an earlier version.
type late struct {
	client.Client
	node *corev1.Node
}

func (l *late) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if n, ok := o.(*corev1.Node); ok && l.node != nil {
		l.node.DeepCopyInto(n)
		return nil
	}
	return l.Client.Get(ctx, key, o, options...)
}

// TestControlPlaneNodeIsCordonedOnlyWhileTheOthersAreHealthy has the daemon of the only control-plane node try again while its API server is not ready.
func TestControlPlaneNodeIsCordonedOnlyWhileTheOthersAreHealthy(t *testing.T) {
	cfg, server := serve(t)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "m", Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""},
		Annotations: map[string]string{api.DesiredConfigAnnotation: "new", api.DesiredDrainAnnotation: "drain-new", api.NodeStateAnnotation: api.NodeWorking},
	}}
	require.NoError(t, server.Create(t.Context(), n))
	t.Cleanup(func() { assert.NoError(t, server.Delete(context.WithoutCancel(t.Context()), n)) })
	worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
	require.NoError(t, server.Create(t.Context(), worker))
	t.Cleanup(func() { assert.NoError(t, server.Delete(context.WithoutCancel(t.Context()), worker)) })
	status, requests := http.StatusInternalServerError, 0
	readyz := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(status)
	}))
	defer readyz.Close()
	clk := clocktesting.NewFakePassiveClock(time.Now())
	guard := controlplane.New(server, server, &rest.Config{Host: readyz.URL}, clk)
	core, err := corev1client.NewForConfig(cfg)
	require.NoError(t, err)
	r := newDrains(true, server, server, core.RESTClient(), guard, clk, record.NewFakeRecorder(10), newPace(Options{}.limiter()), client.ObjectKey{})
	reconcileNode := func() time.Duration {
		result, err := r.Reconcile(t.Context(), requestFor("m")[0])
		require.NoError(t, err)
		require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(n), n))
		return result.RequeueAfter
	}
	for range 2 {
		assert.Positive(t, reconcileNode())
		assert.False(t, n.Spec.Unschedulable)
		require.Len(t, n.Status.Conditions, 1)
		assert.Equal(t, corev1.NodeDrainInProgress, n.Status.Conditions[0].Type)
		assert.Contains(t, n.Status.Conditions[0].Message, "The drain waits for the API server: /readyz answers 500")
	}
	assert.Equal(t, 1, requests)
	status = http.StatusOK
	clk.SetTime(clk.Now().Add(time.Minute))
	reconcileNode()
	assert.True(t, n.Spec.Unschedulable)

	// No other control-plane node is cordoned meanwhile, although its API server is ready.
	other := n.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Name: "m2", Labels: n.Labels, Annotations: map[string]string{api.DesiredConfigAnnotation: "new", api.DesiredDrainAnnotation: "drain-new"}}
	other.Spec.Unschedulable, other.Status = false, corev1.NodeStatus{}
	require.NoError(t, server.Create(t.Context(), other))
	t.Cleanup(func() { assert.NoError(t, server.Delete(context.WithoutCancel(t.Context()), other)) })
	result, err := r.Reconcile(t.Context(), requestFor("m2")[0])
	require.NoError(t, err)
	assert.Equal(t, refusedRetry, result.RequeueAfter)
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	assert.False(t, other.Spec.Unschedulable)
	require.Len(t, other.Status.Conditions, 1)
	assert.Contains(t, other.Status.Conditions[0].Message, "The drain waits for control-plane node m, which has a cordon of the node stage")

	// A drain that has begun continues.
	status = http.StatusInternalServerError
	clk.SetTime(clk.Now().Add(time.Minute))
	reconcileNode()
	assert.Equal(t, "drain-new", n.Annotations[api.AppliedDrainAnnotation])
	assert.Equal(t, 2, requests)
}

// TestDrainFollowsItsOwnWrites has a cache that shows no write.
func TestDrainFollowsItsOwnWrites(t *testing.T) {
	cfg, server := serve(t)
	core, err := corev1client.NewForConfig(cfg)
	require.NoError(t, err)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		api.DesiredConfigAnnotation: "new", api.DesiredDrainAnnotation: "drain-new",
	}}}
	require.NoError(t, server.Create(t.Context(), n))
	c := &late{server, n.DeepCopy()}
	r := newDrains(false, c, server, core.RESTClient(), nil, clock.RealClock{}, record.NewFakeRecorder(1), newPace(Options{}.limiter()), client.ObjectKey{})
	var lines []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	reconcileNode := func() reconcile.Result {
		result, err := r.Reconcile(ctx, requestFor("n")[0])
		require.NoError(t, err)
		require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(n), n))
		return result
	}
	conditions := func() (types []corev1.NodeConditionType) {
		for _, c := range n.Status.Conditions {
			types = append(types, c.Type)
		}
		return types
	}

	reconcileNode()
	assert.True(t, n.Spec.Unschedulable)
	assert.Equal(t, []corev1.NodeConditionType{corev1.NodeDrainInProgress}, conditions())
	reconcileNode()
	assert.Equal(t, "drain-new", n.Annotations[api.AppliedDrainAnnotation])
	assert.Equal(t, []corev1.NodeConditionType{corev1.NodeDrained, corev1.NodeMaintenanceInProgress}, conditions())

	c.node = n.DeepCopy()
	n.Annotations[api.DesiredDrainAnnotation] = "uncordon-new"
	require.NoError(t, server.Update(t.Context(), n))
	stale := n.DeepCopy()
	n.Labels = map[string]string{"changed": ""} // by another client
	require.NoError(t, server.Update(t.Context(), n))
	c.node = stale
	assert.Equal(t, reconcile.Result{RequeueAfter: cluster.ConflictRetry}, reconcileNode(), "the event of the label is ignored")
	assert.True(t, n.Spec.Unschedulable)
	c.node = n.DeepCopy()
	reconcileNode()
	assert.False(t, n.Spec.Unschedulable)
	reconcileNode()
	assert.Equal(t, []string{
		`"level"=0 "msg"="node cordoned" "node"="n" "attempt"="1"`,
		`"level"=0 "msg"="node drained" "node"="n"`,
		`"level"=0 "msg"="node released" "node"="n" "schedulable"=true`,
	}, lines)

	require.NoError(t, server.Delete(t.Context(), n))
	c.node = nil
	_, err = r.Reconcile(t.Context(), requestFor("n")[0])
	require.NoError(t, err)
	assert.Same(t, stale, r.written.Newest(stale))
	assert.Empty(t, r.requested)
}

func TestReleasedNodeIsNotDrained(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		api.DesiredConfigAnnotation: "new", api.DesiredDrainAnnotation: "drain-new", api.NodeReleasedAnnotation: "",
	}}}
	r := newDrains(false, &late{node: n}, nil, nil, nil, clock.RealClock{}, record.NewFakeRecorder(1), newPace(Options{}.limiter()), client.ObjectKey{})
	answered, p, err := r.answer(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, progress{}, p)
	assert.Same(t, n, answered)
}

// TestReturningNodeIsNotDrained has a node that has released its slot.
func TestReturningNodeIsNotDrained(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		api.DesiredConfigAnnotation: "old", api.DesiredDrainAnnotation: "drain-new", api.SlotReleasedAnnotation: "2026-01-01T00:00:00Z", api.CordonAnnotation: "1",
	}}}
	n.Spec.Unschedulable = true
	server := &answers{}
	r := server.queue(t, false, clock.RealClock{}, newPace(Options{}.limiter()))
	r.client = &listed{pods: []corev1.Pod{*podNamed("web")}}
	_, p, err := r.answer(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, progress{}, p)
	assert.Empty(t, server.names())

	n.Annotations[api.DesiredDrainAnnotation] = "drain-old"
	_, _, err = r.answer(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, []string{"web"}, server.names(), "it restores its content")
}

func TestLimitOfEvictionsIsAnOption(t *testing.T) {
	assert.Equal(t, DefaultPerSecond, int(Options{}.limiter().QPS()))
	assert.Equal(t, 7, int(Options{PerSecond: 7}.limiter().QPS()))
	unlimited := Options{PerSecond: -1}.limiter()
	for range 10 * DefaultPerSecond {
		require.True(t, unlimited.TryAccept())
	}
}

func TestDrainsIgnoreHeartbeats(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.DesiredConfigAnnotation: "new"}}}
	for _, tt := range []struct {
		name   string
		change func(*corev1.Node)
		want   bool
	}{
		{"a heartbeat", func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		}, false},
		{"a label", func(n *corev1.Node) { n.Labels = map[string]string{"changed": ""} }, false},
		{"a condition of the update", func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDrained}}
		}, true},
		{"a request", func(n *corev1.Node) { n.Annotations[api.DesiredDrainAnnotation] = "drain-new" }, true},
		{"a cordon", func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
	} {
		after := n.DeepCopy()
		tt.change(after)
		assert.Equal(t, tt.want, mattersToDrain(n, after), tt.name)
	}
}

// answers is a connection to an API server that answers each eviction with refusal, or accepts all if refusal is empty.
type answers struct {
	refusal string
	// deletions counts the requests to delete a pod, of which the latest has the body deletion. They are refused with the refusal and this status, or
	// accepted if it is 0.
	deletions       int
	deletion        string
	deletionRefused int
	// before runs before an answer.
	before func()
	mutex  sync.Mutex
	// requested are the names of the pods whose eviction was requested, in order.
	requested []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.before != nil {
		a.before()
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	code, body := http.StatusCreated, `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	if r.Method == http.MethodDelete {
		a.deletions++
		options, err := io.ReadAll(r.Body)
		a.deletion = r.URL.Path + " " + string(options)
		if err != nil || a.deletionRefused != 0 {
			code, body = a.deletionRefused, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"denied by a webhook"}`
		}
	} else {
		a.requested = append(a.requested, strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/shop/pods/"), "/eviction"))
		if a.refusal != "" {
			code, body = http.StatusTooManyRequests, a.refusal
		}
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {"1"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// names returns the names of the pods whose eviction was requested. Its lock orders the accesses: the virtual time of a test does not.
func (a *answers) names() []string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return slices.Clone(a.requested)
}

// queue returns a queue that sends its evictions to the connection.
func (a *answers) queue(t *testing.T, isControlPlane bool, clk clock.PassiveClock, p *pace) *drains {
	core, err := corev1client.NewForConfig(&rest.Config{Host: "http://server", Transport: a, QPS: -1})
	require.NoError(t, err)
	return newDrains(isControlPlane, nil, nil, core.RESTClient(), nil, clk, record.NewFakeRecorder(1), p, client.ObjectKey{})
}

func nodeNamed(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name}}}
}

func TestRefusedEvictionIsRequestedOnce(t *testing.T) {
	server := &answers{
		refusal: `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"busy","reason":"TooManyRequests","details":{"retryAfterSeconds":7},"code":429}`,
	}
	r := server.queue(t, false, clock.RealClock{}, newPace(Options{}.limiter()))

	why, after, err := r.evictPod(t.Context(), nodeNamed("n"), drain.Rules{}, podNamed("web"))

	require.NoError(t, err)
	assert.Equal(t, "busy", why)
	assert.Equal(t, 7*time.Second, after)
	assert.Equal(t, []string{"web"}, server.requested, "the server's delay must not block the drains of other nodes")
}

const refusedByBudget = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests",` +
	`"details":{"causes":[{"reason":"DisruptionBudget","message":"protected"}]},"code":429}`

// TestBudgetMayChangeDuringARequest has the event of a budget that arrives before the refusal.
func TestBudgetMayChangeDuringARequest(t *testing.T) {
	web := podNamed("web")
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: web.Labels}},
	}
	server := &answers{refusal: refusedByBudget}
	r := server.queue(t, false, clocktesting.NewFakePassiveClock(time.Now()), newPace(Options{}.limiter()))
	evict := func() int {
		_, _, err := r.evictPod(t.Context(), nodeNamed("n"), drain.Rules{}, web)
		require.NoError(t, err)
		return len(server.requested)
	}
	server.before = func() { assert.Equal(t, requestFor("n"), r.budgetChanged(t.Context(), budget)) }
	assert.Equal(t, 1, evict())
	server.before, server.refusal = nil, ""
	assert.Equal(t, 2, evict(), "the next request is due")
	assert.Equal(t, 2, evict(), "the pod is evicted")
}

// TestPodsOfOtherNodesCauseNothing has nodes without a pending drain.
func TestPodsOfOtherNodesCauseNothing(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{}}}
	r := newDrains(false, &late{node: n}, nil, nil, nil, clock.RealClock{}, nil, nil, client.ObjectKey{})
	web := podNamed("web")
	web.Spec.NodeName = "n"
	assert.Empty(t, r.ofPod(t.Context(), web))
	n.Annotations[api.DesiredDrainAnnotation] = "drain-new"
	assert.Equal(t, requestFor("n"), r.ofPod(t.Context(), web))
	n.Annotations[api.AppliedDrainAnnotation] = "drain-new"
	assert.Empty(t, r.ofPod(t.Context(), web))
}

func TestRefusedEvictionIsRetriedWhenItsBudgetOrPodChanges(t *testing.T) {
	server := &answers{refusal: refusedByBudget}
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := server.queue(t, false, clk, newPace(Options{}.limiter()))
	web, other := podNamed("web"), podNamed("other")
	requested := func() []string {
		server.requested = nil
		for _, pod := range []*corev1.Pod{web, other} {
			_, _, err := r.evictPod(t.Context(), nodeNamed("node-of-"+pod.Name), drain.Rules{}, pod)
			require.NoError(t, err)
		}
		return server.requested
	}
	budget := func(namespace string, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}}
	}
	ofWeb := &metav1.LabelSelector{MatchLabels: web.Labels}

	assert.Equal(t, []string{"web", "other"}, requested())
	assert.Empty(t, requested())
	assert.Equal(t, requestFor("node-of-web"), r.budgetChanged(t.Context(), budget("shop", ofWeb)))
	assert.Equal(t, []string{"web"}, requested(), "the budget does not select the other pod")
	assert.Empty(t, r.budgetChanged(t.Context(), budget("elsewhere", ofWeb)))
	assert.Empty(t, r.budgetChanged(t.Context(), budget("shop", nil)), "no selector selects nothing")
	assert.Len(t, r.budgetChanged(t.Context(), budget("shop", &metav1.LabelSelector{})), 2, "an empty selector selects every pod")
	assert.Equal(t, []string{"web", "other"}, requested())

	web = web.DeepCopy()
	web.Annotations = map[string]string{"refused-at": "now"} // as a webhook might write
	assert.Empty(t, requested())
	web.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	assert.Equal(t, []string{"web"}, requested(), "a budget may not protect a pod that is not ready")
	web = web.DeepCopy()
	web.Labels = map[string]string{"app": "orphan"}
	assert.Equal(t, []string{"web"}, requested())
	assert.Empty(t, requested())

	clk.SetTime(clk.Now().Add(refusedRetry))
	assert.Equal(t, []string{"web", "other"}, requested())
}

// TestPodIsDeletedOnceItsEvictionIsRefusedForLong has a limit between two attempts, a server that is busy for a while, and a webhook that denies the
// first deletion.
//
//threat:drain-ignores-budgets
func TestPodIsDeletedOnceItsEvictionIsRefusedForLong(t *testing.T) {
	const busy = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"busy","reason":"TooManyRequests","details":{"retryAfterSeconds":5},"code":429}`
	server := &answers{refusal: refusedByBudget, deletionRefused: http.StatusForbidden}
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	events := record.NewFakeRecorder(9)
	r := server.queue(t, false, clk, newPace(Options{}.limiter()))
	r.recorder = events
	p := worker(nil)
	p.Spec.BlockedDrain.DeletePodsAfter.Duration = 70 * time.Second
	rules, err := drain.NewRules(p)
	require.NoError(t, err)
	begun := clk.Now()
	attempt := func(at time.Duration, rules drain.Rules) (why string, after time.Duration) {
		clk.SetTime(begun.Add(at * time.Second))
		why, after, err := r.evictPod(t.Context(), nodeNamed("n"), rules, podNamed("web"))
		require.NoError(t, err)
		return why, after
	}

	_, after := attempt(0, rules)
	assert.Equal(t, refusedRetry, after)
	attempt(30, rules)
	server.refusal = busy
	attempt(60, rules)
	server.refusal = refusedByBudget
	_, after = attempt(66, rules)
	assert.Equal(t, 4*time.Second, after, "the limit ends the wait")
	assert.Zero(t, server.deletions)
	attempt(70, drain.Rules{})
	assert.Zero(t, server.deletions, "only a policy allows it")
	why, after := attempt(100, rules)
	assert.Equal(t, "denied by a webhook", why)
	assert.Equal(t, refusedRetry, after)
	attempt(101, rules)
	assert.Equal(t, 1, server.deletions, "the next attempt is not due")
	assert.Empty(t, events.Events)

	server.deletionRefused = 0
	why, _ = attempt(130, rules)
	assert.Empty(t, why)
	require.Len(t, events.Events, 1)
	assert.Equal(t, 2, server.deletions)
	assert.Equal(t, `/api/v1/namespaces/shop/pods/web {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"web"}}`,
		strings.TrimSpace(server.deletion), "the grace period is the pod's")
	assert.Equal(t, "Warning PodDeleted Deleted pod shop/web by spec.blockedDrain.deletePodsAfter (70s) of NodeRolloutPolicy worker, "+
		"because its eviction was refused: protected", <-events.Events)

	// The time starts again after an accepted eviction, and on another drain.
	server.refusal = ""
	attempt(200, rules)
	server.refusal = refusedByBudget
	attempt(300, rules)
	assert.Equal(t, 2, server.deletions)
	r.forget("n")
	attempt(400, rules)
	assert.Equal(t, 2, server.deletions)
	attempt(470, rules)
	assert.Equal(t, 3, server.deletions)
}

// TestOnlyRefusalsCountForTheDeletion has a server that is not ready between two refusals.
func TestOnlyRefusalsCountForTheDeletion(t *testing.T) {
	const notReady = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"starting","reason":"ServiceUnavailable","code":503}`
	server := &answers{}
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := server.queue(t, false, clk, newPace(Options{}.limiter()))
	r.recorder = record.NewFakeRecorder(9)
	p := worker(nil)
	p.Spec.BlockedDrain.DeletePodsAfter.Duration = 70 * time.Second
	rules, err := drain.NewRules(p)
	require.NoError(t, err)
	begun := clk.Now()
	for _, attempt := range []struct {
		at        time.Duration
		refusal   string
		deletions int
	}{{0, refusedByBudget, 0}, {30, notReady, 0}, {60, refusedByBudget, 0}, {100, refusedByBudget, 0}, {130, refusedByBudget, 1}} {
		server.refusal = attempt.refusal
		clk.SetTime(begun.Add(attempt.at * time.Second))
		_, _, err := r.evictPod(t.Context(), nodeNamed("n"), rules, podNamed("web"))
		require.NoError(t, err)
		assert.Equal(t, attempt.deletions, server.deletions, "after %d s", attempt.at)
	}
}

// TestControlPlaneGetsTheNextEviction exhausts the limit with other nodes.
func TestControlPlaneGetsTheNextEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, shared := &answers{}, newPace(Options{PerSecond: 1}.limiter())
		evict := func(isControlPlane bool, name string) {
			r := server.queue(t, isControlPlane, clock.RealClock{}, shared)
			go func() {
				_, _, err := r.evictPod(t.Context(), nodeNamed("n"), drain.Rules{}, podNamed(name))
				assert.NoError(t, err)
			}()
			synctest.Wait()
		}
		for range drainWorkers {
			evict(false, "worker")
		}
		evict(true, "control-plane")
		evict(true, "control-plane")
		require.Equal(t, []string{"worker"}, server.names())

		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"worker", "control-plane", "control-plane", "worker"}, server.names())
		time.Sleep(drainWorkers * time.Second)
		synctest.Wait()
		assert.Len(t, server.names(), drainWorkers+2)
	})
}

// TestEvictionsEndWithTheProcess has evictions that wait for their turn, for the limit and for a handover.
func TestEvictionsEndWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, shared := &answers{}, newPace(exhausted{})
		ctx, cancel := context.WithCancel(t.Context())
		for _, isControlPlane := range []bool{false, false, true} {
			r := server.queue(t, isControlPlane, clock.RealClock{}, shared)
			go func() {
				_, _, err := r.evictPod(ctx, nodeNamed("n"), drain.Rules{}, podNamed("web"))
				assert.ErrorIs(t, err, context.Canceled)
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		assert.Empty(t, server.names())
	})
}

// exhausted is a limit that allows nothing.
type exhausted struct{ flowcontrol.RateLimiter }

func (exhausted) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestControlPlaneHasAQueueOfItsOwn has drains of other nodes that wait for the limit, as many as a queue reconciles at the same time.
func TestControlPlaneHasAQueueOfItsOwn(t *testing.T) {
	cfg, server := serve(t)
	once := true
	mgr, err := manager.New(cfg, manager.Options{
		Scheme: server.Scheme(), Metrics: telemetry.Unserved(), Logger: logr.Discard(), Controller: config.Controller{SkipNameValidation: &once},
	})
	require.NoError(t, err)
	caughtUp := watch.NewCatchUp(mgr.GetClient(), mgr.GetAPIReader(), &corev1.NodeList{})
	require.NoError(t, mgr.Add(caughtUp))
	guard := controlplane.New(mgr.GetClient(), mgr.GetAPIReader(), cfg, clock.RealClock{})
	require.NoError(t, add(t.Context(), mgr, caughtUp, guard, clock.RealClock{}, record.NewFakeRecorder(100), Options{}, exhausted{}))
	// The cache has the pod first: otherwise the node might be drained at once.
	node := func(name string, labels map[string]string) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PodSpec{
				NodeName: name, TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "app", Image: "app"}},
			},
		}
		require.NoError(t, server.Create(t.Context(), pod))
		t.Cleanup(func() { assert.NoError(t, server.Delete(context.WithoutCancel(t.Context()), pod)) })
		isCached := func() bool {
			return mgr.GetClient().Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}) == nil
		}
		require.Eventually(t, isCached, time.Minute, time.Millisecond)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{
			api.DesiredConfigAnnotation: "new", api.DesiredDrainAnnotation: "drain-new",
		}}}
		require.NoError(t, server.Create(t.Context(), n))
		t.Cleanup(func() { assert.NoError(t, server.Delete(context.WithoutCancel(t.Context()), n)) })
	}
	cordoned := func() (names []string) {
		var nodes corev1.NodeList
		require.NoError(t, server.List(t.Context(), &nodes))
		for _, n := range nodes.Items {
			if n.Spec.Unschedulable {
				names = append(names, n.Name)
			}
		}
		return names
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, mgr.Start(ctx)) })
	t.Cleanup(func() { stop(); running.Wait() })

	spare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spare"}} // otherwise the control-plane node would not be drained
	require.NoError(t, server.Create(t.Context(), spare))
	t.Cleanup(func() { assert.NoError(t, server.Delete(context.WithoutCancel(t.Context()), spare)) })
	for i := range drainWorkers {
		node(fmt.Sprintf("worker-%d", i), nil)
	}
	require.Eventually(t, func() bool { return len(cordoned()) == drainWorkers }, time.Minute, 20*time.Millisecond)
	node("control-plane", map[string]string{"node-role.kubernetes.io/control-plane": ""})
	require.Eventually(t, func() bool { return slices.Contains(cordoned(), "control-plane") }, time.Minute, 20*time.Millisecond)
}
