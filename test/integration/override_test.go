package integration_test

import (
	"slices"
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

// TestUnmatchedOverrideIsReported sets an override whose group has a version, as documents recommended for years, and three with other
// mistakes. They have no effect, so the administrator must learn about them.
func TestUnmatchedOverrideIsReported(t *testing.T) {
	t.Parallel()
	l := newTagged(t)
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	override := configv1.ComponentOverride{Group: "/v1", Kind: "ConfigMap", Namespace: "tiny-a", Name: "settings", Unmanaged: true}
	mistaken := []configv1.ComponentOverride{
		override,
		{Kind: "configmap", Namespace: "tiny-a", Name: "settings", Unmanaged: true},
		{Kind: "ConfigMap", Namespace: "tiny-a", Name: "setings", Unmanaged: true},
		{Kind: "ConfigMap", Namespace: "tinya", Name: "settings", Unmanaged: true},
	}
	const text = `These entries of spec.overrides match no object of this or an earlier release and have no effect: ` +
		`group "/v1", kind "ConfigMap", namespace "tiny-a", name "settings" (did you mean group ""?); ` +
		`group "", kind "configmap", namespace "tiny-a", name "settings" (did you mean kind "ConfigMap"?); ` +
		`group "", kind "ConfigMap", namespace "tiny-a", name "setings" (did you mean name "settings"?); ` +
		`group "", kind "ConfigMap", namespace "tinya", name "settings" (did you mean namespace "tiny-a"?)`
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Overrides = mistaken })
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
	assertEmittedOnce := func() {
		t.Helper()
		list := &corev1.EventList{}
		require.NoError(t, l.client.List(t.Context(), list))
		list.Items = slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return e.Reason != api.EventOverrideUnmatched })
		require.Len(t, list.Items, 1)
		assert.Equal(t, text, list.Items[0].Message)
	}
	require.Eventually(t, func() bool { return slices.Contains(l.story(), api.EventOverrideUnmatched) }, time.Minute, 50*time.Millisecond)
	l.address = freeAddress(t)
	l.handOver()
	l.logged(`"msg":"rollout started"`)
	l.drift("a", "4.1.0") // the object stays managed
	// The process writes its events in order.
	require.Eventually(t, func() bool { return slices.Contains(l.story(), api.EventDriftRepaired) }, time.Minute, 50*time.Millisecond)
	assertEmittedOnce()
	l.awaitReport("\nUnmatched overrides: " + text + "\n")
	out, err := l.run("status", "--server", "https://"+freeAddress(t))
	require.Error(t, err, "no operator listens there")
	assert.Contains(t, out, "\nUnmatched overrides: "+text+"\n\nShowing the ClusterVersion only: ")

	override.Group = ""
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Overrides = []configv1.ComponentOverride{override} })
	const allMatch = "True AllMatch Every entry of spec.overrides matches an object of this or an earlier release."
	require.Eventually(t, func() bool { return reported() == allMatch }, time.Minute, 50*time.Millisecond)
	l.logged(`"manifests":9}`) // one less than before
	l.awaitReport("\nExcluded: 1 manifest  (--all lists them)\n  - 1  overridden\n")
	l.configMap("tiny-a", "settings", "version", "edited")
	l.drift("b", "4.1.0") // the operator repairs a later edit
	version, _ := l.settings("a")
	assert.Equal(t, "edited", version)
	assertEmittedOnce()
}
