package operator

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
)

// discoveryFunc tells what a server serves.
type discoveryFunc func() ([]*metav1.APIResourceList, error)

func (f discoveryFunc) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	lists, err := f()
	return nil, lists, err
}

// TestObserverOfTombstones: that a kind is not served is known only if the server says so. Nothing is watched until its
// resource is known.
func TestObserverOfTombstones(t *testing.T) {
	list, err := manifest.Parse("0000_10_x_old.yaml", []byte(`{apiVersion: example.com/v1, kind: Old, metadata: {name: x, annotations: {release.openshift.io/delete: "true"}}}`), manifest.Limits{})
	require.NoError(t, err)
	for _, tt := range []struct {
		name string
		err  error
		want observe.Look
	}{
		{"the server does not answer", errors.New("connection refused"), observe.Look{}},
		{"it has no such kind", nil, observe.Look{Synced: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			mapper := apply.NewDiscoveryMapper(clock.RealClock{}, discoveryFunc(func() ([]*metav1.APIResourceList, error) {
				asked++
				return nil, tt.err
			}), nil)
			watcher := observe.New(nil, labels.Everything(), logr.Discard(), func() {}) // which does not run
			o := newObserver(nil, watcher, mapper)
			for range 3 {
				assert.Equal(t, tt.want, o.Look(t.Context(), list[0], false))
			}
			assert.Empty(t, o.used)
			assert.Positive(t, asked)
		})
	}
}
