package cli_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/cli/leader"
)

// TestTheCAIsAdvisedOnlyIfALeaderListens queries a leader whose Lease names no key.
func TestTheCAIsAdvisedOnlyIfALeaderListens(t *testing.T) {
	b := bareAt(t, withoutPlatform.For(t))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "keyless"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("host"), LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}
	require.NoError(t, b.client.Create(t.Context(), lease))
	t.Cleanup(func() { require.NoError(t, b.client.Delete(context.WithoutCancel(t.Context()), lease)) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	query := func(server string) error {
		connection := leader.Connection{
			Clock: clock.RealClock{}, Config: b.env.Config("test"), Namespace: lease.Namespace, Name: lease.Name, Server: "https://" + server,
		}
		_, err := connection.Rollout(t.Context())
		return err
	}
	require.ErrorContains(t, query(listener.Addr().String()), "pass the CA of its certificate with --server-ca")
	require.NoError(t, listener.Close())
	err = query(listener.Addr().String())
	require.ErrorContains(t, err, "the leading operator cannot be reached")
	require.ErrorContains(t, err, "set --server to a URL such as https://127.0.0.1:9099")
	assert.NotContains(t, err.Error(), "--server-ca")
	for _, server := range []string{"127.0.0.2", "[::1]"} {
		if err = query(server); err != nil { // another process may listen on the default port
			assert.NotContains(t, err.Error(), "missing port")
		}
	}
}
