package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

func TestReleaseSaysWhatANodeWaitsFor(t *testing.T) {
	const silent, cordon = "its daemon has not answered yet", "the controller has not lifted the cordon yet"
	for _, tt := range []struct {
		name string
		node *corev1.Node
		want string
	}{
		{"it never had a daemon", newNode("n"), ""},
		{"it has nothing of the stage", newNode("n", "state", api.NodeReleased, "desiredDrain", "uncordon-a", "lastAppliedDrain", "uncordon-a"), ""},
		{"it still has a config", newNode("n", "state", api.NodeReleased, "desiredConfig", target), cordon},
		{"it was targeted and has no daemon", newNode("n", "desiredConfig", target), silent},
		{"its daemon runs its config", at("n", target), silent},
		{"its drain is not complete", to("n", api.NodeWorking, "desiredDrain", "drain-a"), silent},
		{"its cordon is not lifted", to("n", api.NodeWorking, "desiredDrain", "uncordon-a", "lastAppliedDrain", "drain-a"), cordon},
		{"its daemon fails", to("n", api.NodeDegraded, "reason", "releasing the node: no"), "releasing the node: no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := nodes.NewRelease(nodes.Cluster{At: now, Nodes: []*corev1.Node{tt.node, newNode("other")}}, []string{"n"}, false)
			require.NoError(t, err)
			assert.Equal(t, []nodes.Leaving{{Node: "n", Changed: true, Released: tt.want == "", Why: tt.want}}, r.Nodes)
			r.Observe(nil)
			assert.Empty(t, r.Pending(), "it is deleted")
		})
	}
}
