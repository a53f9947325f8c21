package operator

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// TestEndIsNormalWhileTheServerIsAway ends the operator during its first wait.
func TestEndIsNormalWhileTheServerIsAway(t *testing.T) {
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	var log strings.Builder
	err := Run(ctx, Options{
		Config: &rest.Config{Host: "http://127.0.0.1:1"}, PodNamespace: "ns", PodName: "pod",
		LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: 10 * time.Second,
		Log: funcr.NewJSON(func(line string) {
			fmt.Fprintln(&log, line)
			if strings.Contains(line, `"msg":"waiting for the API server"`) {
				end()
			}
		}, funcr.Options{}),
	})
	require.NoError(t, err)
	assert.Contains(t, log.String(), `"msg":"waiting for the API server"`, "the operator was ended by this line")
	assert.Contains(t, log.String(), `"msg":"ending"`)
}

// busyMapper is a mapper whose first lookups fail.
type busyMapper struct {
	meta.RESTMapper
	failures []error
}

func (m *busyMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(m.failures) > 0 {
		err := m.failures[0]
		m.failures = m.failures[1:]
		return nil, err
	}
	return m.RESTMapper.RESTMapping(gk, versions...)
}

func TestOnlyAMissingKindNeedsAnInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := meta.NewDefaultRESTMapper(nil)
		served.Add(configv1.GroupVersion.WithKind("ClusterVersion"), meta.RESTScopeRoot)
		m := &busyMapper{RESTMapper: served, failures: []error{apierrors.NewServiceUnavailable("starting"), apierrors.NewTooManyRequests("busy", 1)}}
		err := checkServed(t.Context(), m)
		require.ErrorContains(t, err, "the cluster does not serve config.openshift.io/v1, Kind=ClusterOperator")
		require.ErrorContains(t, err, "cvo install --no-operator")
		assert.Empty(t, m.failures)

		m.failures = []error{apierrors.NewUnauthorized("who are you")}
		err = checkServed(t.Context(), m)
		require.ErrorContains(t, err, "who are you")
		assert.NotContains(t, err.Error(), "install")
	})
}
