package registry_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

// metadataServer is the name of a cloud's metadata service, which provides machine credentials.
const metadataServer = "metadata.google.internal"

// step leads a client from one server to another. It contains the addresses of both.
type step struct {
	name, from, fromAddress, to, toAddress string
	// want is a substring of the expected error; empty if the client follows the step.
	want string
}

// network returns a network with both servers.
func (s step) network(t *testing.T, from, to http.Handler) *network {
	t.Helper()
	n := newNetwork(t)
	n.serveAt(s.from, from, s.fromAddress)
	if host := strings.Trim(s.to, "[]"); host != s.to { // a literal address
		n.serve(host, to)
	} else {
		n.serveAt(s.to, to, s.toAddress)
	}
	return n
}

// check compares the result of a step with the expected one. cause is how the first server named the second; the error must contain it.
func (s step) check(t *testing.T, n *network, cause string, err error) {
	t.Helper()
	to := strings.Trim(s.to, "[]")
	if s.want == "" {
		require.NoError(t, err)
		assert.NotEmpty(t, n.requests(to, ""))
		return
	}
	require.ErrorContains(t, err, to)
	assert.Empty(t, n.requests(to, ""), "no request was sent")
	refused, ok := errors.AsType[*redirect.Error](err)
	if !ok && to != s.to {
		return // the library itself rejects URLs with private addresses
	}
	require.True(t, ok, "%v", err)
	assert.Contains(t, refused.Error(), fmt.Sprintf("refusing the %s from %s to %s", cause, s.from, s.to))
	assert.Contains(t, refused.Error(), s.want)
}
