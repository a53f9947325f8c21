package integration_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// blackHole returns the address of a server that accepts connections and never responds.
func blackHole(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	return listener.Addr().String()
}

// apiService registers an API without a server.
func (l *testPlatform) apiService(group string) {
	l.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1." + group},
		"spec": map[string]any{
			"group": group, "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "nobody"},
		},
	}}
	require.NoError(l.t, l.client.Create(l.t.Context(), u))
}

// TestUnreachableServicesDoNotStopTheOperator takes away everything around a cluster at once: the update service and Prometheus hang, the
// registry is down, and an API of the cluster is not served. The operator reports each of them and maintains the cluster as before.
func TestUnreachableServicesDoNotStopTheOperator(t *testing.T) {
	t.Parallel() // most of the time the test waits for timeouts
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	images := map[string]release.Image{}
	for _, version := range []string{"4.2.0", "4.2.1", "4.2.2", "4.2.3"} {
		images[version] = l.release(version, l.signer)
	}
	l.own = images["4.2.0"]
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	graph := offered(images)
	for i := range graph.ConditionalEdges {
		for j := range graph.ConditionalEdges[i].Risks {
			graph.ConditionalEdges[i].Risks[j].MatchingRules = []configv1.ClusterCondition{
				{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: "vector(0)"}},
			}
		}
	}
	service := fixture.StartUpdateService(t, graph)
	l.start("operators")
	l.cvo = l.operator(l.own.ByDigest(), "--update-service", service.URL()+"/graph", "--metrics-url", "http://"+blackHole(t))
	l.await("4.2.0 to complete", time.Minute, at("4.2.0"))
	l.channel("stable")
	cv := l.await("updates with unknown risks", 3*time.Minute, func(cv *configv1.ClusterVersion) bool {
		return offers("4.2.1")(cv) && len(cv.Status.ConditionalUpdates) == 2
	})
	for _, update := range cv.Status.ConditionalUpdates {
		recommended := meta.FindStatusCondition(update.Conditions, "Recommended")
		require.NotNil(t, recommended)
		assert.Equal(t, "Unknown EvaluationFailed", string(recommended.Status)+" "+recommended.Reason)
		assert.Contains(t, recommended.Message, "Could not evaluate exposure to update risk")
	}

	l.apiService("nowhere.example.com")
	var latest atomic.Pointer[http.Request]
	service.AddFault(fixture.Fault{Delay: time.Hour, Match: func(r *http.Request) bool {
		latest.Store(r)
		return true
	}})
	require.NoError(t, l.registry.Close())
	l.channel("fast")
	wanted := release.Image{Pullspec: l.registry.Host() + "/platform/v4.2.9:1", Digest: images["4.2.3"].Digest}
	l.update(configv1.Update{Image: wanted.ByDigest()})
	l.await("each failure to be reported", 3*time.Minute, func(cv *configv1.ClusterVersion) bool {
		return says(api.ReleaseAccepted, "False|RetrievePayload|")(cv) && says(configv1.RetrievedUpdates, "False|RemoteFailed|")(cv)
	})

	// The operator observes and repairs while a request to the update service hangs. On a busy machine, a request may reach its time limit
	// before, so another one is tried.
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tiny-a", Name: "settings"}}
	limit := time.Now().Add(patience)
	for n := 1; ; n++ {
		earlier := latest.Load()
		l.channel(fmt.Sprintf("fast-%d", n)) // the operator requests the updates in that channel
		require.Eventually(t, func() bool { return latest.Load() != earlier }, patience, 20*time.Millisecond, "waiting for a request")
		request, started := latest.Load(), time.Now()
		l.edit(func(spec *configv1.ClusterVersionSpec) { spec.DesiredUpdate = nil })
		l.await("the spec to be observed", patience, func(cv *configv1.ClusterVersion) bool {
			return cv.Status.ObservedGeneration == cv.Generation && strings.HasPrefix(condition(cv, api.ReleaseAccepted), "True|")
		})
		require.NoError(t, l.client.Delete(t.Context(), settings))
		require.Eventually(t, func() bool {
			return l.client.Get(t.Context(), client.ObjectKeyFromObject(settings), settings) == nil
		}, patience, 20*time.Millisecond, "waiting for the ConfigMap to be recreated")
		hangs := request.Context().Err() == nil
		t.Logf("observed and repaired within %v, while the request hangs: %t", time.Since(started).Round(time.Millisecond), hangs)
		if hangs {
			break
		}
		require.True(t, time.Now().Before(limit), "the operator waits for the update service")
	}
	assert.Equal(t, "False||Cluster version is 4.2.0", condition(l.get(), configv1.OperatorProgressing))
	assert.Equal(t, "False||", condition(l.get(), api.Failing))
}
