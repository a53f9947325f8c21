package registry

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
	"github.com/cluster-version/cvo/test/e2e/registry/control"
)

// controlled returns a registry whose control endpoint is the handler.
func controlled(t *testing.T, handler http.HandlerFunc) *Registry {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &Registry{Host: "172.18.0.5:5000", User: "puller", Password: "secret", controlURL: server.URL, transport: transport}
}

func TestFaultReachesTheServer(t *testing.T) {
	fault := control.Fault{
		Kind: control.Status, Path: "^/v2/platform/", Times: 3, For: 1500 * time.Millisecond, Status: http.StatusTooManyRequests, RetryAfter: "7",
	}
	var got control.Fault
	r := controlled(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost || req.URL.Path != "/faults" || json.NewDecoder(req.Body).Decode(&got) != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	require.NoError(t, r.Inject(t.Context(), fault))
	assert.Equal(t, fault, got)
}

// TestInvalidFaultFailsTheTest checks that an invalid fault fails the test and is not ignored.
func TestInvalidFaultFailsTheTest(t *testing.T) {
	r := controlled(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "unknown kind")
	})
	err := r.Inject(t.Context(), control.Fault{Kind: "sleepy"})
	require.ErrorContains(t, err, "400 Bad Request: unknown kind")
	require.Error(t, r.Heal(t.Context()))
	_, err = r.Requests(t.Context())
	require.Error(t, err)
}

// TestPullSecretCanBeRead checks that cvo can read the registry's pull secret.
func TestPullSecretCanBeRead(t *testing.T) {
	r := controlled(t, nil)
	data, err := r.PullSecret()
	require.NoError(t, err)
	secret, err := credentials.ParsePullSecret(data)
	require.NoError(t, err)
	for host, want := range map[string]string{r.Host: "secret", "172.18.0.6:5000": ""} {
		repository, err := name.NewRepository(host + "/platform/release")
		require.NoError(t, err)
		found, err := secret.Resolve(repository)
		require.NoError(t, err)
		config, err := found.Authorization()
		require.NoError(t, err)
		assert.Equal(t, want, config.Password)
	}
}
