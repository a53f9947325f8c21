package integration_test

import (
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/archive"
)

// TestUnmatchedOverrideIsReported sets an override whose group has a version, as documents recommended for years. It has no effect, so
// the administrator must learn about it.
func TestUnmatchedOverrideIsReported(t *testing.T) {
	t.Parallel()
	l := newTagged(t)
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	override := configv1.ComponentOverride{Group: "/v1", Kind: "ConfigMap", Namespace: "tiny-a", Name: "settings", Unmanaged: true}
	const text = `These entries of spec.overrides match no object of the release and have no effect: ` +
		`group "/v1", kind "ConfigMap", namespace "tiny-a", name "settings" (did you mean group ""?)`
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Overrides = []configv1.ComponentOverride{override} })
	reported := func() string {
		status, err := archive.ReadReleaseStatus(t.Context(), l.client, "version")
		require.NoError(t, err)
		require.NotNil(t, status)
		c := meta.FindStatusCondition(status.Status.Conditions, api.ConditionOverridesMatch)
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Reason + " " + c.Message
	}
	require.Eventually(t, func() bool { return reported() == "False NoSuchObject "+text }, time.Minute, 50*time.Millisecond)
	isEmitted := func() bool {
		list := &corev1.EventList{}
		require.NoError(t, l.client.List(t.Context(), list))
		n := 0
		for _, e := range list.Items {
			if e.Reason == api.EventOverrideUnmatched {
				assert.Equal(t, text, e.Message)
				n++
			}
		}
		assert.LessOrEqual(t, n, 1, "one event for an edit")
		return n == 1
	}
	require.Eventually(t, isEmitted, time.Minute, 50*time.Millisecond)
	l.handOver()
	l.logged("rollout started")
	assert.True(t, isEmitted(), "a restart repeats no event")

	l.configMap("tiny-a", "settings", "version", "edited")
	require.Eventually(t, func() bool { version, _ := l.settings("a"); return version == "4.1.0" }, time.Minute, 20*time.Millisecond, "the object stays managed")
	override.Group = ""
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Overrides = []configv1.ComponentOverride{override} })
	require.Eventually(t, func() bool {
		return reported() == "True AllMatch Every entry of spec.overrides matches an object of the release."
	},
		time.Minute, 50*time.Millisecond)
	l.configMap("tiny-a", "settings", "version", "edited")
	time.Sleep(2 * time.Second) // a repair would take less
	version, _ := l.settings("a")
	assert.Equal(t, "edited", version)
}
