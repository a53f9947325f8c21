package update

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

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

	why, after, err := r.evictPod(t.Context(), "n", newPod("web", "web", "ReplicaSet"))

	require.NoError(t, err)
	assert.Equal(t, "busy", why)
	assert.Equal(t, 7*time.Second, after)
	assert.EqualValues(t, 1, requests.Load(), "the server's delay must not block the drains of other nodes")
}
