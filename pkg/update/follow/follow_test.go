package follow

import (
	"context"
	"io"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/clusterversions"
)

func keptObjects() cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{})
}

// listedNow is an informer whose first list arrives during HasSynced.
type listedNow struct {
	cache.SharedIndexInformer
	object *unstructured.Unstructured
}

func (i listedNow) HasSynced() bool { return i.GetStore().Add(i.object) == nil }

func TestFollowerDistinguishesFirstListFromDeletion(t *testing.T) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersion"))
	object.SetName("version")
	cv, err := (&Follower{Name: "version"}).version(listedNow{keptObjects(), object})
	require.NoError(t, err)
	require.NotNil(t, cv)
}

func TestFollowerKeepsTheLastAnswer(t *testing.T) {
	said := []*report.Snapshot{{Progress: report.Progress{
		Release: release.Release{Version: "1.1.0"}, Runlevels: []report.Runlevel{{Runlevel: 10, Total: 1, Done: 1}},
	}}}
	f := &Follower{Name: "version", Progress: func(context.Context) (*report.Snapshot, error) {
		if len(said) == 0 {
			return nil, nil // nothing has changed
		}
		defer func() { said = said[1:] }()
		return said[0], nil
	}}
	rollouts, object := keptObjects(), clusterversions.Rollout()
	object.SetName("version")
	require.NoError(t, rollouts.GetStore().Add(object))
	for range 2 {
		f.readLevels(t.Context(), Goal{runlevel: 10}, rollouts)
		assert.Equal(t, "1.1.0", f.levels.version)
		assert.True(t, f.levels.upTo(10))
	}

	// Runlevels from the ReleaseRollout take precedence. It may report a pause before any runlevels.
	paused := []any{map[string]any{"type": api.RolloutPaused, "status": string(metav1.ConditionTrue), "message": "Held back."}}
	require.NoError(t, unstructured.SetNestedSlice(object.Object, paused, "status", "conditions"))
	f.readLevels(t.Context(), Goal{runlevel: 10}, rollouts)
	assert.True(t, f.levels.upTo(10))
	assert.Equal(t, "Held back.", f.levels.paused)
	require.NoError(t, unstructured.SetNestedMap(object.Object, map[string]any{
		"to": "1.2.0", "runlevels": []any{map[string]any{"runlevel": int64(10)}},
	}, "status", "current"))
	f.readLevels(t.Context(), Goal{runlevel: 10}, rollouts)
	assert.Equal(t, "1.2.0", f.levels.version)
	assert.False(t, f.levels.upTo(10))
}

func TestFollowerReadsRunlevelsOnlyIfItsGoalNeedsThem(t *testing.T) {
	f := &Follower{Progress: func(context.Context) (*report.Snapshot, error) {
		return &report.Snapshot{Progress: report.Progress{Release: release.Release{Version: "1.1.0"}, Runlevels: []report.Runlevel{{Runlevel: 10, Total: 1, Done: 1}}}}, nil
	}}
	f.readLevels(t.Context(), Goal{Completed: true}, nil)
	assert.Empty(t, f.levels.done, "the goal completed needs no runlevels")
	f.readLevels(t.Context(), Goal{runlevel: 10}, nil)
	assert.True(t, f.levels.upTo(10))

	var printed []string
	f = &Follower{Print: func(line string) { printed = append(printed, line) }, Progress: func(context.Context) (*report.Snapshot, error) { return nil, io.ErrUnexpectedEOF }}
	f.readLevels(t.Context(), Goal{runlevel: 10}, nil)
	f.readLevels(t.Context(), Goal{runlevel: 10}, nil)
	assert.Equal(t, []string{"warning: cannot read the runlevels: unexpected EOF"}, printed, "a repeated line is not printed")
}
