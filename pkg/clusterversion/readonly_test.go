package clusterversion

import (
	"context"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// uncopied is a cache that returns its ClusterVersion without a copy and reads the latest object for each reconcile.
type uncopied struct {
	client.Client
	cached *configv1.ClusterVersion
}

func (u *uncopied) Get(ctx context.Context, key client.ObjectKey, out client.Object, options ...client.GetOption) error {
	cv, ok := out.(*configv1.ClusterVersion)
	if !ok {
		return u.Client.Get(ctx, key, out, options...)
	}
	*cv = *u.cached // the slices and pointers are those of the cache
	return nil
}

// TestReconcileDoesNotChangeTheCachedObject takes a ClusterVersion through an install, an invalid spec, an update and its completion. Each
// step computes another status and clears invalid parts of the spec. The cached object must not change.
func TestReconcileDoesNotChangeTheCachedObject(t *testing.T) {
	cache := &uncopied{}
	s := newScribe(t, func(p *parts) { cache.Client, p.client = p.client, cache })
	steps := []struct {
		name   string
		change func(cv *configv1.ClusterVersion)
		known  func()
	}{
		{name: "begins"},
		{name: "accepts its own release", known: func() { s.accepts(acceptedRelease("1.0.0")) }},
		{name: "completes", known: func() { s.progresses(progressOf("1.0.0", 4, 4)) }},
		{name: "clears invalid fields", change: func(cv *configv1.ClusterVersion) {
			cv.Spec.Upstream, cv.Spec.ClusterID = "http://[", "x"
			wants(cv, configv1.Update{Version: "x", AcceptRisks: []configv1.AcceptRisk{{Name: "B"}, {Name: "A"}}})
		}},
		{name: "follows a request", change: func(cv *configv1.ClusterVersion) {
			cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "ConfigMap", Name: "b"}, {Kind: "ConfigMap", Name: "a"}}
			wants(cv, configv1.Update{Image: imageOf("1.1.0"), Version: "1.1.0", Force: true})
		}, known: func() { s.accepts(acceptedRelease("1.1.0")) }},
		{name: "fails", known: func() {
			s.progresses(progressOf("1.1.0", 2, 4, apiFailure("a", "PayloadFailed", time.Hour)))
		}},
		{name: "completes the request", known: func() { s.progresses(progressOf("1.1.0", 4, 4)) }},
		{name: "keeps foreign conditions and updates", change: func(cv *configv1.ClusterVersion) {
			cv.Status.Conditions = append([]configv1.ClusterOperatorStatusCondition{{Type: "Zzz", Status: "True", LastTransitionTime: metav1.NewTime(now)}}, cv.Status.Conditions...)
			cv.Status.AvailableUpdates = []configv1.Release{{Version: "1.1.0", Image: "a"}, {Version: "1.2.0", Image: "b"}}
		}},
	}
	for i, step := range steps {
		for range 2 { // the second reconcile reads the status that the first one wrote
			s.at(time.Duration(i+1) * time.Hour)
			if step.change != nil {
				cv := s.get(t)
				step.change(cv)
				status := cv.Status.DeepCopy()
				require.NoError(t, s.client.Update(t.Context(), cv))
				cv.Status = *status
				require.NoError(t, s.client.Status().Update(t.Context(), cv))
			}
			if step.known != nil {
				step.known()
			}
			cache.cached = s.get(t)
			before := cache.cached.DeepCopy()
			s.reconcile(t)
			require.Equal(t, before, cache.cached, "it %s", step.name)
		}
	}
	history := s.get(t).Status.History
	require.Len(t, history, 2, "all steps have run")
	assert.Equal(t, configv1.CompletedUpdate, history[0].State)
}
