package clusterversion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// updatingTwice returns a reconciler that rolls out 1.2.0 after an update from 1.0.0 to 1.1.0 that did not complete, and what its rollout
// knows of earlier releases.
func updatingTwice(t *testing.T) (*scribe, *shelf, apply.Former) {
	t.Helper()
	registry, work := newShelf("1.0.0", "1.1.0", "1.2.0"), slots{}
	var executor *rollout.Executor
	s := newScribe(t, func(p *parts) {
		p.stages, p.runner, p.options.ReleaseImage = registry.stages(), work, imageOf("1.2.0")
		p.engine = func(*configv1.ClusterVersion, *payload.Payload) Engine {
			executor = &rollout.Executor{Clock: clock.RealClock{}, Applier: halted{}, Observer: unseen{}}
			return Engine{Executor: executor, Prepare: func(context.Context) error { return nil }, Completed: func(context.Context) {}}
		}
	})
	cv := s.get(t)
	cv.Status = clusterAt(partial("1.2.0"), partial("1.1.0"), completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.reconcile(t)
	work[background.SlotAccept].step(t.Context())
	s.at(time.Minute)
	s.reconcile(t)
	require.Contains(t, work, background.SlotRollout)
	work[background.SlotRollout].step(t.Context())
	require.NotNil(t, executor)
	require.NotNil(t, executor.Former)
	registry.pulled = nil
	return s, registry, executor.Former
}

// configMapA is the object of every release on the shelf.
var configMapA = manifest.ID{Kind: "ConfigMap", Namespace: "ns", Name: "a"}

func TestFormerReadsTheEarlierReleasesOnce(t *testing.T) {
	s, registry, former := updatingTwice(t)
	registry.err = errors.New("away")
	_, err := former(t.Context(), configMapA)
	require.ErrorContains(t, err, "release 1.1.0 cannot be read: ")
	require.ErrorIs(t, err, registry.err)
	registry.err = nil
	_, err = former(t.Context(), configMapA)
	require.Error(t, err)
	assert.Len(t, registry.pulled, 2, "another object does not repeat the attempt at once")

	s.at(time.Minute + formerRetry)
	list, err := former(t.Context(), configMapA)
	require.NoError(t, err)
	var versions []any
	for _, m := range list {
		versions = append(versions, m.Object.Object["data"].(map[string]any)["version"])
	}
	assert.Equal(t, []any{"1.1.0", "1.0.0"}, versions)
	_, err = former(t.Context(), configMapA)
	require.NoError(t, err)
	assert.Len(t, registry.pulled, 4, "the result is kept")
}

// TestFormerReadsWhatIsLeft has a release that did not complete and was withdrawn. The one before it still exists.
func TestFormerReadsWhatIsLeft(t *testing.T) {
	_, registry, former := updatingTwice(t)
	delete(registry.images, digestOf("1.1.0"))
	list, err := former(t.Context(), configMapA)
	require.ErrorIs(t, err, apply.ErrNoFormer)
	require.ErrorContains(t, err, "release 1.1.0 cannot be read: ")
	require.Len(t, list, 1)
	assert.Equal(t, "1.0.0", list[0].Object.Object["data"].(map[string]any)["version"])
}

// TestFormerKeepsWhatItHasRead has a release that can be read only at first, and one that can be read only later.
func TestFormerKeepsWhatItHasRead(t *testing.T) {
	s, registry, former := updatingTwice(t)
	newer := registry.images[digestOf("1.1.0")]
	registry.images[digestOf("1.1.0")] = unreadable{}
	_, err := former(t.Context(), configMapA)
	require.ErrorContains(t, err, "release 1.1.0 cannot be read: ")

	registry.images[digestOf("1.1.0")], registry.images[digestOf("1.0.0")] = newer, unreadable{}
	s.at(time.Minute + formerRetry)
	list, err := former(t.Context(), configMapA)
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, []release.Digest{digestOf("1.1.0"), digestOf("1.0.0"), digestOf("1.1.0")}, registry.pulled)
}

// unreadable is a release whose content cannot be read.
type unreadable struct{}

func (unreadable) Open(string) (fs.File, error) { return nil, errors.New("away") }

func TestFormerGivesUp(t *testing.T) {
	for _, tt := range []struct {
		name     string
		err      error
		patience time.Duration
	}{
		{"at once if the release is gone", fmt.Errorf("x: %w", failure.ErrNotFound), 0},
		{"after a while if the registry is away", errors.New("away"), formerPatience},
	} {
		t.Run("it gives up "+tt.name, func(t *testing.T) {
			s, registry, former := updatingTwice(t)
			registry.err = tt.err
			began := s.clock.Now()
			for _, after := range []time.Duration{0, formerRetry, formerPatience - 1, formerPatience} {
				s.clock.SetTime(began.Add(after))
				_, err := former(t.Context(), configMapA)
				require.ErrorIs(t, err, tt.err)
				assert.Equal(t, after >= tt.patience, errors.Is(err, apply.ErrNoFormer), "after %s: %v", after, err)
			}
			pulled := len(registry.pulled)
			s.clock.SetTime(began.Add(time.Hour))
			_, err := former(t.Context(), configMapA)
			require.ErrorIs(t, err, apply.ErrNoFormer)
			assert.Len(t, registry.pulled, pulled, "it does not read again")
		})
	}
}
