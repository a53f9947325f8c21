//go:build linux

package cli

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/node/guard"
)

// TestKubeletThatRestartsIsGuarded has a kubelet that does not answer the first request.
func TestKubeletThatRestartsIsGuarded(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	o := hostOptions{guard: guard.Options{KubeletHealth: server.URL}}
	assert.Contains(t, o.guardCommand(t.Context(), "/cvo-node"), "--kubelet-health="+server.URL)
}
