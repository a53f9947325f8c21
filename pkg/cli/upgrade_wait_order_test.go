package cli

import (
	"context"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

func keptObjects() cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{})
}

// listedNow is an informer whose first list arrives while it is asked whether it has.
type listedNow struct {
	cache.SharedIndexInformer
	object *unstructured.Unstructured
}

func (i listedNow) HasSynced() bool { return i.GetStore().Add(i.object) == nil }

func TestUpgradeWaitTakesNoFirstListForADeletion(t *testing.T) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersion"))
	object.SetName("version")
	cv, err := (&updateFollower{name: "version"}).version(listedNow{keptObjects(), object})
	require.NoError(t, err)
	require.NotNil(t, cv)
}

func TestUpgradeWaitKeepsWhatTheOperatorSaidOnce(t *testing.T) {
	said := []*rollout.Snapshot{{Progress: rollout.Progress{
		Release: release.Release{Version: "1.1.0"}, Runlevels: []rollout.Runlevel{{Runlevel: 10, Total: 1, Done: 1}},
	}}}
	f := &updateFollower{name: "version", account: func(context.Context) (*rollout.Snapshot, error) {
		if len(said) == 0 {
			return nil, nil //nolint:nilnil // nothing has changed
		}
		defer func() { said = said[1:] }()
		return said[0], nil
	}}
	rollouts, object := keptObjects(), rolloutObject()
	object.SetName("version")
	require.NoError(t, rollouts.GetStore().Add(object))
	for range 2 {
		f.readLevels(t.Context(), waitGoal{runlevel: 10}, rollouts)
		assert.Equal(t, "1.1.0", f.levels.version)
		assert.True(t, f.levels.upTo(10))
	}

	// From when on the ReleaseRollout tells, it counts; and it may tell of a pause before it does of runlevels.
	paused := []any{map[string]any{"type": api.RolloutPaused, "status": string(metav1.ConditionTrue), "message": "Held back."}}
	require.NoError(t, unstructured.SetNestedSlice(object.Object, paused, "status", "conditions"))
	f.readLevels(t.Context(), waitGoal{runlevel: 10}, rollouts)
	assert.True(t, f.levels.upTo(10))
	assert.Equal(t, "Held back.", f.levels.paused)
	require.NoError(t, unstructured.SetNestedMap(object.Object, map[string]any{
		"to": "1.2.0", "runlevels": []any{map[string]any{"runlevel": int64(10)}},
	}, "status", "current"))
	f.readLevels(t.Context(), waitGoal{runlevel: 10}, rollouts)
	assert.Equal(t, "1.2.0", f.levels.version)
	assert.False(t, f.levels.upTo(10))
}
