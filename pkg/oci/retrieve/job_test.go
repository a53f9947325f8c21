package retrieve

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestJobRunsOnTrustedNodes checks where the pod runs: root on its node has its token, and so decides which files the operator applies.
//
//threat:retrieval-job-node
func TestJobRunsOnTrustedNodes(t *testing.T) {
	t.Run("the operator's own node", func(t *testing.T) {
		pod := order{options: Options{Node: "n1"}}.pod()
		assert.Equal(t, "n1", pod.NodeName)
		assert.Nil(t, pod.Affinity, "if the control plane is hosted elsewhere, this node is a worker")
		assert.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations, "no taint matters that the operator tolerates")
	})
	t.Run("the control plane", func(t *testing.T) {
		pod := order{}.pod()
		assert.Empty(t, pod.NodeName)
		require.NotNil(t, pod.Affinity)
		var keys []string
		for _, term := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms { // any of them
			require.Len(t, term.MatchExpressions, 1)
			assert.Equal(t, corev1.NodeSelectorOpExists, term.MatchExpressions[0].Operator)
			keys = append(keys, term.MatchExpressions[0].Key)
		}
		assert.ElementsMatch(t, keys, []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"})
		for _, key := range keys {
			taint := &corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
			assert.True(t, slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), taint, false) }), key)
		}
	})
}
