package clusterversion

import (
	"testing"
	"testing/fstest"
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
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
	"github.com/cluster-version/cvo/test/fixture/cluster"
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
	p.UnknownDeletions.Pending = true
	return p
}

// manifestFile returns a file of a release with a ConfigMap. annotations are further annotations.
func manifestFile(namespace, name, annotations string) []string {
	return []string{"release-manifests/0000_20_b_01.yaml", `
apiVersion: v1
kind: ConfigMap
metadata:
  namespace: ` + namespace + `
  name: ` + name + `
  annotations: {include.release.openshift.io/self-managed-high-availability: "true"` + annotations + `}
`}
}

// shelfWith returns a registry whose releases contain a further manifest, except 1.1.0.
func shelfWith(manifest []string) *shelf {
	registry := newShelf("1.1.0")
	for _, version := range []string{"1.0.0", "1.0.5"} {
		registry.images[digestOf(version)] = cluster.Files(version, manifest...)
	}
	return registry
}

// tombstone returns the manifest of the object that deleting waits for.
func tombstone() []string { return manifestFile("ns", "old", `, release.openshift.io/delete: "true"`) }

// waitsForDeletion has release 1.0.0, which is deleting an object, and a request for 1.1.0, which is rejected for that reason.
func waitsForDeletion(t *testing.T) (s *scribe, work slots, registry *shelf) {
	t.Helper()
	registry, work = shelfWith(tombstone()), slots{}
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
	registry, work := shelfWith(tombstone()), slots{}
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

// TestDeletionsAreUnknownAfterARestart rejects a minor update until the rollout has looked for the objects that the release deletes. The
// rejection is an answer only after the rollout has had the time to do so.
func TestDeletionsAreUnknownAfterARestart(t *testing.T) {
	s, work := restarted(t, shelfWith(tombstone()))
	answers := func() string {
		t.Helper()
		work[background.SlotAccept].step(t.Context())
		s.later(t)
		return said(s.get(t).Status, api.ReleaseAccepted)
	}
	assert.Contains(t, answers(), "Unknown|PreconditionChecks", "that is no answer yet")
	assert.Empty(t, said(s.get(t).Status, configv1.OperatorUpgradeable))
	s.progresses(unexamined("1.0.0"))
	for range pendingChecks - 1 {
		assert.Contains(t, answers(), "Unknown|PreconditionChecks")
	}
	assert.Contains(t, answers(), "False|PreconditionChecks")
	assert.Len(t, s.get(t).Status.History, 1)

	known := unexamined("1.0.0")
	known.UnknownDeletions = report.Unknown{}
	assert.False(t, known.Same(*unexamined("1.0.0")), "the status changes")
	s.progresses(known)
	s.later(t)
	answers()
	assert.Equal(t, "1.1.0", s.get(t).Status.History[0].Version)
}

// TestUnknownDeletionsDelayNoCertainRejection requests a minor update of a cluster with overrides.
func TestUnknownDeletionsDelayNoCertainRejection(t *testing.T) {
	s, work := restarted(t, shelfWith(tombstone()))
	s.edit(t, func(cv *configv1.ClusterVersion) {
		cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "ns", Name: "other", Unmanaged: true}}
	})
	s.later(t)
	work[background.SlotAccept].step(t.Context())
	s.later(t)
	accepted := said(s.get(t).Status, api.ReleaseAccepted)
	assert.Contains(t, accepted, "False|PreconditionChecks")
	assert.NotContains(t, accepted, upgradeable.ErrPending.Error())
}

func TestReleaseWithoutTombstonesHasNoDeletions(t *testing.T) {
	s, work := restarted(t, newShelf("1.0.0", "1.1.0"))
	work[background.SlotAccept].step(t.Context())
	s.later(t)
	assert.Equal(t, "1.1.0", s.get(t).Status.History[0].Version)
}

// TestDamagedReleaseDoesNotBlockAMinorUpdate has a registry in which the running release is damaged. No client knows what it deletes, and
// another release is the remedy.
func TestDamagedReleaseDoesNotBlockAMinorUpdate(t *testing.T) {
	registry := newShelf("1.1.0")
	registry.images[digestOf("1.0.0")] = fstest.MapFS{}
	s, work := restarted(t, registry)
	work[background.SlotAccept].step(t.Context())
	s.later(t)
	work[background.SlotAccept].step(t.Context())
	s.later(t)
	assert.Equal(t, "1.1.0", s.get(t).Status.History[0].Version)
	assert.Contains(t, said(s.get(t).Status, api.ReleaseAccepted), "True|PayloadLoaded")
}

// TestDeletedGatesBlockAMinorUpdateAfterARestart deletes the ConfigMap with the gates of the release. A new process checks a minor update
// before it has adopted the release of the history.
func TestDeletedGatesBlockAMinorUpdateAfterARestart(t *testing.T) {
	s, work := restarted(t, shelfWith(manifestFile(api.ConfigManagedNamespace, api.AdminGatesConfigMap, "")))
	work[background.SlotAccept].step(t.Context())
	s.later(t)
	assert.Len(t, s.get(t).Status.History, 1)
	assert.Contains(t, said(s.get(t).Status, api.ReleaseAccepted), "UnableToGetAdminGatesConfigMap")
}

// restarted returns a new process in a cluster that has completed 1.0.0, with a request for 1.1.0. The test runs the steps in the slots.
func restarted(t *testing.T, registry *shelf) (*scribe, slots) {
	t.Helper()
	work := slots{}
	s := newScribe(t, func(p *parts) {
		p.stages, p.runner, p.options.ReleaseImage = registry.stages(), work, imageOf("1.0.0")
		p.stages.Cluster = func() upgradeable.Cluster { return upgradeable.Cluster{} }
	})
	s.edit(t, func(cv *configv1.ClusterVersion) {
		wants(cv, configv1.Update{Image: imageOf("1.1.0"), Version: "1.1.0"})
	})
	cv := s.get(t)
	cv.Status = clusterAt(completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.reconcile(t)
	return s, work
}

// later reconciles after the least time between two status writes.
func (s *scribe) later(t *testing.T) {
	t.Helper()
	s.clock.SetTime(s.clock.Now().Add(time.Minute))
	s.reconcile(t)
}
