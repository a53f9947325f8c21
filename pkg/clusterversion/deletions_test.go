package clusterversion

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// deleting returns the progress of a complete release that waits for the deletion of an object.
func deleting(version string) *report.Progress {
	p := progressOf(version, 4, 4)
	p.Deletions = []report.Deletion{{ID: manifest.ID{Kind: "ConfigMap", Namespace: "ns", Name: "old"}, Since: now}}
	return p
}

// unexamined returns the progress of a release that has tombstones, before it has looked for their objects.
func unexamined(version string) *report.Progress {
	p := progressOf(version, 0, 4)
	p.DeletionsUnknown = true
	return p
}

// waitsForDeletion has release 1.0.0, which is deleting an object, and a request for 1.1.0, which is rejected for that reason.
func waitsForDeletion(t *testing.T) (s *scribe, work slots, registry *shelf) {
	t.Helper()
	registry, work = newShelf("1.0.0", "1.1.0"), slots{}
	s = newScribe(t, func(p *parts) { p.stages, p.runner = registry.stages(), work })
	cv := s.get(t)
	cv.Status = clusterAt(completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.reconcile(t)
	work[background.SlotAccept].step(t.Context())
	s.at(time.Minute)
	s.reconcile(t)
	s.progresses(deleting("1.0.0"))
	s.at(2 * time.Minute)
	s.reconcile(t)
	require.Contains(t, said(s.get(t).Status, configv1.OperatorUpgradeable), "ResourceDeletionInProgress")
	s.edit(t, func(cv *configv1.ClusterVersion) {
		wants(cv, configv1.Update{Image: imageOf("1.1.0"), Version: "1.1.0"})
	})
	s.at(3 * time.Minute)
	s.reconcile(t)
	work[background.SlotAccept].step(t.Context())
	s.at(4 * time.Minute)
	s.reconcile(t)
	require.Contains(t, said(s.get(t).Status, api.ReleaseAccepted), "ResourceDeletionInProgress")
	return s, work, registry
}

// stillWaits checks again whether the request is accepted, and asserts that it is not.
func stillWaits(t *testing.T, s *scribe, work slots, reconcile func(), history int) {
	t.Helper()
	assert.Contains(t, said(s.get(t).Status, configv1.OperatorUpgradeable), "ResourceDeletionInProgress")
	work[background.SlotAccept].step(t.Context())
	s.at(10 * time.Minute)
	reconcile()
	assert.Contains(t, said(s.get(t).Status, configv1.OperatorUpgradeable), "ResourceDeletionInProgress")
	assert.NotContains(t, said(s.get(t).Status, api.ReleaseAccepted), "PayloadLoaded")
	assert.Len(t, s.get(t).Status.History, history)
}

func TestNewRolloutRemembersDeletions(t *testing.T) {
	s, work, _ := waitsForDeletion(t)
	s.edit(t, func(cv *configv1.ClusterVersion) {
		cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "ns", Name: "other"}}
	})
	s.at(5 * time.Minute)
	s.reconcile(t)
	s.edit(t, func(cv *configv1.ClusterVersion) { cv.Spec.Overrides = nil })
	s.at(6 * time.Minute)
	s.reconcile(t)
	s.at(7 * time.Minute)
	s.reconcile(t)
	stillWaits(t, s, work, func() { s.reconcile(t) }, 1)
	s.progresses(unexamined("1.0.0"))
	s.at(11 * time.Minute)
	s.reconcile(t)
	stillWaits(t, s, work, func() { s.reconcile(t) }, 1)

	s.progresses(progressOf("1.0.0", 4, 4))
	s.at(12 * time.Minute)
	s.reconcile(t)
	assert.Empty(t, said(s.get(t).Status, configv1.OperatorUpgradeable))
	work[background.SlotAccept].step(t.Context())
	s.at(13 * time.Minute)
	s.reconcile(t)
	assert.Equal(t, "1.1.0", s.get(t).Status.History[0].Version, "the object is deleted")
}

func TestRestartRemembersDeletions(t *testing.T) {
	s, _, registry := waitsForDeletion(t)
	work := slots{}
	next := New(s.clock, s.client, s.recorder, work, registry.stages(), blank{}, nil, func() {}, Options{Name: "version", ReleaseImage: imageOf("1.0.0")})
	once := func() {
		t.Helper()
		_, err := next.Reconcile(logr.NewContext(t.Context(), logr.Discard()), reconcile.Request{NamespacedName: client.ObjectKey{Name: "version"}})
		require.NoError(t, err)
	}
	s.at(5 * time.Minute)
	once()
	stillWaits(t, s, work, once, 1)
}

// TestCompletionRemembersDeletions has a release that completes while an object is deleted, which begins a rollout in another mode.
func TestCompletionRemembersDeletions(t *testing.T) {
	registry, work := newShelf("1.0.0", "1.0.5", "1.1.0"), slots{}
	s := newScribe(t, func(p *parts) { p.stages, p.runner, p.options.ReleaseImage = registry.stages(), work, imageOf("1.0.5") })
	cv := s.get(t)
	cv.Status = clusterAt(partial("1.0.5"), completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.reconcile(t)
	work[background.SlotAccept].step(t.Context())
	s.at(time.Minute)
	s.reconcile(t)
	s.edit(t, func(cv *configv1.ClusterVersion) {
		wants(cv, configv1.Update{Image: imageOf("1.1.0"), Version: "1.1.0"})
	})
	s.at(2 * time.Minute)
	s.reconcile(t)
	work[background.SlotAccept].step(t.Context())
	s.at(3 * time.Minute)
	s.reconcile(t)
	require.Contains(t, said(s.get(t).Status, api.ReleaseAccepted), "UpdateInProgress")
	done := deleting("1.0.5")
	done.Complete = true
	s.progresses(done)
	s.at(4 * time.Minute)
	s.reconcile(t)
	require.Equal(t, configv1.CompletedUpdate, s.get(t).Status.History[0].State)
	s.at(5 * time.Minute)
	s.reconcile(t)
	stillWaits(t, s, work, func() { s.reconcile(t) }, 2)
}
