package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testOwnNetwork installs a release with its own pod network on a cluster whose nodes are not ready without it. The operator uses the
// nodes' network, because it may have to repair the pod network.
func testOwnNetwork(t *testing.T, s *site) {
	l := newTestPlatform(t, s)
	if _, err := l.clusterVersion(); err == nil {
		t.Skip("this cluster already has a platform with a network")
	}
	nodes, err := l.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			assert.False(t, condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue, "%s is ready without a network", node.Name)
		}
	}
	began := time.Now()
	l.trustRegistry()
	release := l.release("1.0.0")
	l.install(release, append(l.flags, "--wait")...)
	t.Logf("installed a platform on a cluster without a network in %s", since(began))
	for _, pod := range l.settled(release) {
		assert.True(t, pod.Spec.HostNetwork, pod.Name)
	}
}
