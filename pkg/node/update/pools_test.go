package update

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lister lists one node in one version, as a cache or an API server.
type lister struct {
	client.Client
	version string
	lists   *int
}

func (l lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	*l.lists++
	list.(*corev1.NodeList).Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: l.version}}}
	return nil
}

// TestNewLeaderReadsNodesFromTheAPIServer has a standby's cache that does not show the last write of the leader before.
func TestNewLeaderReadsNodesFromTheAPIServer(t *testing.T) {
	var cached, read int
	r := newPools(lister{version: "9", lists: &cached}, lister{version: "10", lists: &read}, clock.RealClock{}, nil, Options{})
	for range 2 {
		nodes, err := r.nodes(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "10", nodes[0].ResourceVersion)
	}
	assert.Equal(t, 1, read)
	r.client = lister{version: "11", lists: &cached}
	nodes, err := r.nodes(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "11", nodes[0].ResourceVersion)
	assert.Empty(t, r.written)
}
