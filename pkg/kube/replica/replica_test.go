package replica_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/guard"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/kube/replica"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/test/env"
)

var controlPlane *env.Env

// podVariable makes the test binary a replica with this name; see greet. Each replica is a process.
const podVariable = "GREETER_POD"

func TestMain(m *testing.M) {
	if pod := os.Getenv(podVariable); pod != "" {
		if err := greetUntilTerminated(pod); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

func greetUntilTerminated(pod string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	return greet(ctx, cfg, pod, func(string, string) {})
}

// greet is the process of another component. Its leader writes its name into ConfigMap greeting whenever ConfigMap settings changes. Every
// replica serves its metrics at the address that it passes to serving.
func greet(ctx context.Context, cfg *rest.Config, pod string, serving func(address, fingerprint string)) error {
	endpoint, err := serve.Listen(ctx, clock.RealClock{}, serve.Options{Listen: "127.0.0.1:0", ParseProfile: defaultTLS})
	if err != nil {
		return err
	}
	defer endpoint.Close()
	serving(endpoint.Address(), endpoint.Certificate().Fingerprint())
	identity, err := leader.NewIdentity(pod, endpoint.Certificate().Fingerprint())
	if err != nil {
		return err
	}
	r, err := replica.New(ctx, cfg, replica.Options{
		UserAgent: "greeter", Metrics: "greeter", Namespace: "default", Lease: "greeter", Identity: identity,
		LeaseDuration: 3 * time.Minute, RenewDeadline: time.Minute, RetryPeriod: time.Second,
	})
	if err != nil {
		return err
	}
	fenced, transport := r.Manager.GetConfig(), r.Manager.GetHTTPClient()
	settings := watch.NewSingle(kubernetes.NewForConfigOrDie(fenced).CoreV1().ConfigMaps("default"), &corev1.ConfigMap{}, "settings",
		watch.OnState(func(seen *corev1.ConfigMap) {
			greeting := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "greeting"}}
			greeting.Data = map[string]string{"greeting": seen.Data["word"] + " from " + pod}
			if err := r.Manager.GetClient().Update(ctx, greeting); err != nil {
				r.Manager.GetLogger().Error(err, "greeting")
			}
		}))
	parts := []manager.Runnable{manager.RunnableFunc(func(ctx context.Context) error { settings.RunWithContext(ctx); return nil })}
	guarded, err := guard.New(clock.RealClock{}, fenced, transport, map[string]string{serve.MetricsPath: "system:monitoring"})
	if err != nil {
		return err
	}
	parts = append(parts, endpoint.Runnables(ctx, dynamic.NewForConfigOrDie(fenced), guarded.Protect(telemetry.Handler(r.Registry)))...)
	for _, part := range parts {
		if err := r.Manager.Add(part); err != nil {
			return err
		}
	}
	return r.Run(ctx, nil, nil)
}

func defaultTLS(*configv1.TLSSecurityProfile) (minVersion string, suites []string) {
	return "VersionTLS12", nil
}

// TestLeaseMustOutlastALostRenewal names no API server, so New must not send a request.
func TestLeaseMustOutlastALostRenewal(t *testing.T) {
	_, err := replica.New(t.Context(), &rest.Config{}, replica.Options{LeaseDuration: 4 * time.Second, RetryPeriod: 3 * time.Second})
	require.ErrorContains(t, err, "a retry period of 3s is too long")
}

// testReplica is a replica without controllers.
type testReplica struct {
	*replica.Replica
	leases coordinationv1.LeaseInterface
	// ended gets the result of Run.
	ended chan error
}

// newReplica returns a replica that does not give up within the time of a test when it cannot renew its Lease, which has its name.
func newReplica(t *testing.T, name string) *testReplica {
	t.Helper()
	cfg := controlPlane.For(t).Config(name)
	identity, err := leader.NewIdentity("only", "")
	require.NoError(t, err)
	r, err := replica.New(t.Context(), cfg, replica.Options{
		UserAgent: name, Metrics: name, Namespace: "default", Lease: name, Identity: identity,
		LeaseDuration: time.Hour, RenewDeadline: 30 * time.Minute, RetryPeriod: 500 * time.Millisecond,
	})
	require.NoError(t, err)
	return &testReplica{r, kubernetes.NewForConfigOrDie(cfg).CoordinationV1().Leases("default"), make(chan error, 1)}
}

// lead runs the replica until ctx ends, and returns once it leads.
func (r *testReplica) lead(ctx context.Context, t *testing.T) {
	t.Helper()
	go func() { r.ended <- r.Run(ctx, nil, nil) }()
	select {
	case <-r.Manager.Elected():
	case err := <-r.ended:
		require.NoError(t, err, "the process has ended")
	}
}

// TestReplicaThatLosesItsLeaseEnds takes the Lease from a replica, like an uninstall. The error contains the holder.
func TestReplicaThatLosesItsLeaseEnds(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "loser")
	r.lead(t.Context(), t)
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the replica may renew the Lease in between
		lease, err := r.leases.Get(t.Context(), "loser", metav1.GetOptions{})
		require.NoError(c, err)
		lease.Spec.HolderIdentity = new(api.UninstallHolder)
		_, err = r.leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(c, err)
	}, time.Minute, 20*time.Millisecond)
	require.ErrorContains(t, <-r.ended, `another process holds the Lease: "cvo-uninstall"`)
}

// TestLastSavePrecedesTheReleaseOfTheLease writes at the end of a process, while no other process may lead.
func TestLastSavePrecedesTheReleaseOfTheLease(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "saver")
	holder := func() string {
		lease, err := r.leases.Get(t.Context(), "saver", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return ptr.Deref(lease.Spec.HolderIdentity, "")
	}
	var during string
	var endBy, saveBy time.Time
	require.NoError(t, r.BeforeRelease(func(ctx context.Context) { endBy, _ = ctx.Deadline() }, func(ctx context.Context) {
		during = holder()
		saveBy, _ = ctx.Deadline()
		saved := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "saved"}}
		assert.NoError(t, r.Manager.GetClient().Create(ctx, saved))
	}))
	ctx, stop := context.WithCancel(t.Context())
	r.lead(ctx, t)
	stop()
	require.NoError(t, <-r.ended)
	assert.Contains(t, during, "only")
	assert.Empty(t, holder())
	assert.Greater(t, saveBy, endBy, "time for the save remains if the end takes all of its time")
}

func TestReplicaLeadsServesAndEnds(t *testing.T) {
	cfg := controlPlane.For(t).Config("greeter")
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	object := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	require.NoError(t, c.Create(t.Context(), object("greeting")))
	settings := object("settings")
	settings.Data = map[string]string{"word": "hello"}
	require.NoError(t, c.Create(t.Context(), settings))
	greeting := func() string {
		got := object("greeting")
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil {
			return err.Error()
		}
		return got.Data["greeting"]
	}
	ctx, end := context.WithCancel(t.Context())
	ended, addresses := make(chan error, 1), make(chan [2]string, 1)
	go func() {
		ended <- greet(ctx, cfg, "first", func(address, fingerprint string) { addresses <- [2]string{address, fingerprint} })
	}()
	at := <-addresses
	assert.EventuallyWithT(t, func(t *assert.CollectT) { assert.Equal(t, "hello from first", greeting()) }, time.Minute, 20*time.Millisecond)
	settings.Data["word"] = "goodbye"
	require.NoError(t, c.Update(t.Context(), settings))
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Equal(t, "goodbye from first", greeting()) }, time.Minute, 20*time.Millisecond)

	metrics, err := serve.NewClient(cfg, "https://"+at[0], serve.Trust{Fingerprint: at[1]}, nil)
	require.NoError(t, err)
	defer metrics.Close()
	response, err := metrics.Get(t.Context(), serve.MetricsPath, "")
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Contains(t, string(text), "cvo_greeter_refused_writes_total 0")

	second := exec.CommandContext(t.Context(), os.Args[0])
	second.Env, second.Stderr = append(os.Environ(), podVariable+"=second", "KUBECONFIG="+controlPlane.Kubeconfig), t.Output()
	require.NoError(t, second.Start())
	settings.Data["word"] = "welcome"
	require.NoError(t, c.Update(t.Context(), settings))
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Equal(t, "welcome from first", greeting()) }, time.Minute, 20*time.Millisecond)
	end()
	require.NoError(t, <-ended)
	// The Lease is released, so the second replica does not wait until it expires, which takes longer than this wait.
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Equal(t, "welcome from second", greeting()) }, 2*time.Minute, 20*time.Millisecond)
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	require.NoError(t, second.Wait())
	record, err := leader.Find(t.Context(), cfg, "default", "greeter")
	require.NoError(t, err)
	assert.True(t, record.Gone, "it has released the Lease")
}
