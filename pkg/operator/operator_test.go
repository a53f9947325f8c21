package operator

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// TestLeaseMustOutlastALostRenewal checks that Run rejects a retry period before it sends a request: these options name no API server.
func TestLeaseMustOutlastALostRenewal(t *testing.T) {
	err := Run(t.Context(), Options{LeaseDuration: 4 * time.Second, RetryPeriod: 3 * time.Second})
	require.ErrorContains(t, err, "a retry period of 3s is too long")
}

// TestStartOutlastsABusyServer has a server that rejects or fails the first requests for the pod and for the served kinds. It does not
// serve the operator's own kinds, so the start fails in the end.
func TestStartOutlastsABusyServer(t *testing.T) {
	answers := map[string][]int{
		"/api/v1/namespaces/ns/pods/pod": {http.StatusForbidden, http.StatusServiceUnavailable},
		"/api":                           {http.StatusTooManyRequests},
		"/apis":                          {http.StatusForbidden, http.StatusInternalServerError},
	}
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		left := answers[r.URL.Path]
		switch {
		case len(left) > 0:
			answers[r.URL.Path] = left[1:]
			w.WriteHeader(left[0])
		case r.URL.Path == "/apis":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "example.com"}]}`))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	err := Run(t.Context(), Options{
		Config: &rest.Config{Host: server.URL}, PodNamespace: "ns", PodName: "pod",
		LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: 10 * time.Second,
	})
	require.ErrorContains(t, err, "config.openshift.io/v1")
	for path, left := range answers {
		assert.Empty(t, left, path)
	}
}
