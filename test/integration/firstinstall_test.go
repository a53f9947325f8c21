package integration_test

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/release"
)

// newStuckInstall starts an install of 4.2.0 that cannot complete, because one of its objects needs a namespace that no one creates. The
// spec requests another release from the start.
func newStuckInstall(t *testing.T) *tagPlatform {
	t.Helper()
	l := &tagPlatform{testPlatform: &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}}
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	l.create(statusDefinition)
	broken := l.tiny.files("4.2.0").(fstest.MapFS)
	broken["release-manifests/0000_30_broken.yaml"] = &fstest.MapFile{Data: []byte(`
apiVersion: v1
kind: ConfigMap
metadata: {namespace: nowhere, name: broken, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
`)}
	l.own = l.push(broken, "stable", true)
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	l.update(configv1.Update{Image: l.pushAndMoveTag("4.2.1", true).ByDigest(), Version: "4.2.1"})
	l.succeed()
	return l
}

// installs returns a condition that holds when these releases were started, newest first, and none has completed.
func installs(versions ...string) func(*configv1.ClusterVersion) bool {
	return func(cv *configv1.ClusterVersion) bool {
		var got []string
		for _, e := range cv.Status.History {
			if e.State == configv1.CompletedUpdate {
				return false
			}
			got = append(got, e.Version)
		}
		return strings.Join(got, " ") == strings.Join(versions, " ")
	}
}

// TestRequestReplacesStuckInstall starts a first install that cannot complete and then requests other releases.
//
//threat:request-replaces-release
func TestRequestReplacesStuckInstall(t *testing.T) {
	t.Parallel()
	l := newStuckInstall(t)
	const again = "the requested update to 4.2.1 starts after the install (to replace the release now, clear spec.desiredUpdate and request it again)"
	rejected := func(reason, what string) {
		t.Helper()
		cv := l.await("the request to be rejected: "+what, time.Minute, func(cv *configv1.ClusterVersion) bool {
			c := condition(cv, api.ReleaseAccepted)
			return strings.HasPrefix(c, "False|"+reason+"|") && strings.Contains(c, what)
		})
		assert.True(t, installs("4.2.0")(cv), "%v", cv.Status.History)
	}
	waits := func(what string) {
		t.Helper()
		cv := l.await(what, time.Minute, func(cv *configv1.ClusterVersion) bool {
			c := condition(cv, configv1.OperatorProgressing)
			return says(api.Failing, "True|")(cv) && strings.Contains(c, "Unable to apply 4.2.0: ") && strings.HasSuffix(c, again) && cv.Status.ObservedGeneration == cv.Generation
		})
		assert.True(t, installs("4.2.0")(cv), "%v", cv.Status.History)
	}
	l.chapter("delays a request that was made before the install", func(*testing.T) {
		waits("the request to wait for the install")
		l.handOver()
		l.logged("rollout started")
		l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "other" })
		waits("the request to wait after a restart")
	})
	l.chapter("rejects an unsigned release", func(*testing.T) {
		unsigned := l.pushAndMoveTag("4.2.2", false)
		l.update(configv1.Update{Image: unsigned.ByDigest()})
		rejected("RetrievePayload", unsigned.ByDigest())
	})
	l.chapter("rejects an older release and continues the install after a restart", func(*testing.T) {
		l.update(configv1.Update{Image: l.pushAndMoveTag("4.1.9", true).ByDigest()})
		rejected("PreconditionChecks", "4.1.9 is less than 4.2.0, the release that is being installed")
		l.handOver()
		l.logged("rollout started")
		l.logged(notAccepted)
		rejected("PreconditionChecks", "4.1.9 is less than 4.2.0, the release that is being installed")
	})
	l.chapter("replaces the release when the request is repeated", func(t *testing.T) {
		next := l.pushAndMoveTag("4.2.1", true)
		l.update(configv1.Update{Image: next.ByDigest()})
		cv := l.await("4.2.1 to replace 4.2.0", time.Minute, installs("4.2.1", "4.2.0"))
		assert.True(t, cv.Status.History[0].Verified)
		l.handOver() // during the install
		l.logged("rollout started")
		l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "another" })
		l.await("the spec to be observed", 30*time.Second, func(cv *configv1.ClusterVersion) bool {
			assert.True(t, installs("4.2.1", "4.2.0")(cv), "%v", cv.Status.History)
			return cv.Status.ObservedGeneration == cv.Generation
		})
	})
	l.chapter("keeps the digest of a tag that has replaced the release, without the record", func(t *testing.T) {
		l.pushAndMoveTag("4.2.3", true)
		l.update(configv1.Update{Image: l.registry.Host() + "/platform/release:stable", Force: true})
		replaced := installs("4.2.3", "4.2.1", "4.2.0")
		l.await("4.2.3 to replace 4.2.1", time.Minute, replaced)
		l.pushAndMoveTag("4.2.4", false)
		l.stopped(func() { require.NoError(t, l.client.Delete(t.Context(), l.record())) })
		l.logged("rollout started")
		l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "third" })
		l.await("the spec to be observed", time.Minute, func(cv *configv1.ClusterVersion) bool {
			assert.True(t, replaced(cv), "%v", cv.Status.History)
			return cv.Status.ObservedGeneration == cv.Generation
		})
		l.recorded("the request to be recorded again", func(request map[string]any) bool { return request["phase"] == "Accepted" })
	})
	l.chapter("continues with the replacement when the request is cleared", func(*testing.T) {
		l.cancel()
		l.await("the spec to be observed", 30*time.Second, func(cv *configv1.ClusterVersion) bool { return cv.Status.ObservedGeneration == cv.Generation })
		l.handOver()
		l.logged("rollout started")
	})
	l.chapter("completes the replacement and leaves the first release Partial", func(t *testing.T) {
		l.outliving().start("operators")
		history := l.await("4.2.3 to complete", 2*time.Minute, at("4.2.3")).Status.History
		require.Len(t, history, 3)
		assert.Equal(t, configv1.PartialUpdate, history[1].State)
		version, _ := l.settings("a")
		assert.Equal(t, "4.2.3", version)
	})
}

// TestHealedInstallIsNotReplaced repairs the cause of a failing install while the release that would replace it is rejected. That release
// starts after the install, although it is accepted earlier.
//
//threat:request-replaces-release
func TestHealedInstallIsNotReplaced(t *testing.T) {
	t.Parallel()
	l := newStuckInstall(t)
	l.await("the install to fail", time.Minute, says(api.Failing, "True|"))
	next := l.pushAndMoveTag("4.2.2", false)
	l.update(configv1.Update{Image: next.ByDigest()})
	l.await("the release to be rejected", time.Minute, func(cv *configv1.ClusterVersion) bool {
		c := condition(cv, api.ReleaseAccepted)
		return strings.HasPrefix(c, "False|RetrievePayload|") && strings.Contains(c, next.ByDigest())
	})
	require.NoError(t, l.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}}))
	l.await("the request to wait", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return says(api.Failing, "False|")(cv) && installs("4.2.0")(cv) &&
			strings.HasSuffix(condition(cv, configv1.OperatorProgressing), "the requested update to "+next.ByDigest()+" starts after the install, or at once if the install fails")
	})
	require.Equal(t, next.Digest, l.pushAndMoveTag("4.2.2", true).Digest, "the release is signed now")
	l.handOver()
	l.logged("rollout started")
	l.start("operators")
	history := l.await("4.2.2 to complete", 2*time.Minute, at("4.2.2")).Status.History
	require.Len(t, history, 2)
	assert.Equal(t, configv1.CompletedUpdate, history[1].State, "4.2.0 was installed first")
}

// inventoried waits until the inventory names a release.
func (l *tagPlatform) inventoried(img release.Image) {
	l.t.Helper()
	core := corev1client.NewForConfigOrDie(l.env.Config("integration"))
	require.Eventually(l.t, func() bool {
		inv, err := inventory.NewStore(core, api.OperatorNamespace, "version").Load(l.t.Context())
		return err == nil && inv.Digest == string(img.Digest)
	}, patience, 50*time.Millisecond, "waiting for the inventory to name %s", img.ByDigest())
}

// recreated deletes and recreates the ClusterVersion.
func (l *tagPlatform) recreated() {
	l.t.Helper()
	l.deleteVersion()
	l.createVersion()
}

// TestRecreatedClusterVersionContinues recreates the ClusterVersion of a cluster that runs a later release than the one with which its
// operator, outside of the cluster, was started.
//
//threat:clusterversion-deleted-created continues with the release of the inventory
//threat:clusterversion-deleted-created continues after a restart during the recreation
//threat:clusterversion-deleted-created does not replace an unverifiable release by the operator's own
func TestRecreatedClusterVersionContinues(t *testing.T) {
	t.Parallel()
	l := newTagged(t) // 4.1.0
	next := l.pushAndMoveTag("4.2.0", true)
	l.updated("4.2.0", configv1.Update{Image: next.ByDigest()})
	l.inventoried(next)
	stays := func(t *testing.T, version string) {
		t.Helper()
		history := l.await(version+" to continue", time.Minute, at(version)).Status.History
		assert.Len(t, history, 1, "no other release has started")
		got, _ := l.settings("a")
		assert.Equal(t, version, got)
	}
	l.chapter("continues with the release of the inventory", func(t *testing.T) {
		l.recreated()
		stays(t, "4.2.0")
	})
	l.chapter("continues after another restart", func(*testing.T) {
		l.handOver()
		l.assertStays("4.2.0", accepted)
	})
	l.chapter("continues after a restart during the recreation", func(t *testing.T) {
		l.stopped(l.recreated)
		l.logged("rollout started")
		l.handOver()
		stays(t, "4.2.0")
	})
	l.chapter("does not replace an unverifiable release by the operator's own", func(t *testing.T) {
		unsigned := l.pushAndMoveTag("4.3.0", false)
		l.updated("4.3.0", configv1.Update{Image: unsigned.ByDigest(), Force: true})
		l.inventoried(unsigned)
		l.recreated()
		for _, restart := range []func(){func() {}, l.handOver} {
			restart()
			l.logged(notAccepted)
			cv := l.await("the reason of the rejection", time.Minute, says(api.ReleaseAccepted, "False|RetrievePayload|"))
			message := condition(cv, api.ReleaseAccepted)
			assert.Contains(t, message, unsigned.ByDigest())
			assert.Contains(t, message, "the cluster continues with it after its ClusterVersion was recreated")
			assert.Contains(t, message, "request it by digest in spec.desiredUpdate (with force if no one signed it)")
			assert.Empty(t, cv.Status.History)
			version, _ := l.settings("a")
			assert.Equal(t, "4.3.0", version)
		}
		l.update(configv1.Update{Image: unsigned.ByDigest(), Force: true})
		stays(t, "4.3.0")
	})
}
