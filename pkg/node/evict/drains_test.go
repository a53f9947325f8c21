package evict

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/test/env"
)

var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
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

// TestDrainFollowsItsOwnWrites has a cache that shows no write.
func TestDrainFollowsItsOwnWrites(t *testing.T) {
	cfg := controlPlane.For(t).Config("test")
	server, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	core, err := corev1client.NewForConfig(cfg)
	require.NoError(t, err)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		api.DesiredConfigAnnotation: "new", api.DesiredDrainAnnotation: "drain-new",
	}}}
	require.NoError(t, server.Create(t.Context(), n))
	c := &late{server, n.DeepCopy()}
	r := newDrains(c, core.RESTClient(), clock.RealClock{}, record.NewFakeRecorder(1), Options{})
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
	assert.Empty(t, r.written)
	assert.Empty(t, r.requested)
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

func TestRefusedEvictionIsRequestedOnce(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		assert.Equal(t, "/api/v1/namespaces/shop/pods/web/eviction", r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"busy","reason":"TooManyRequests","details":{"retryAfterSeconds":7},"code":429}`)
	}))
	t.Cleanup(server.Close)
	core, err := corev1client.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	r := newDrains(nil, core.RESTClient(), clock.RealClock{}, record.NewFakeRecorder(1), Options{})

	why, after, err := r.evictPod(t.Context(), "n", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}})

	require.NoError(t, err)
	assert.Equal(t, "busy", why)
	assert.Equal(t, 7*time.Second, after)
	assert.EqualValues(t, 1, requests.Load(), "the server's delay must not block the drains of other nodes")
}
