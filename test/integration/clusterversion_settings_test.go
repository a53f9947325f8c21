package integration_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/manifests/apicrd"
	"github.com/cluster-version/cvo/pkg/api"
)

func acknowledged(t *testing.T, l *testPlatform) {
	for _, namespace := range []string{api.ConfigManagedNamespace, api.ConfigNamespace} {
		err := l.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		require.NoError(t, client.IgnoreAlreadyExists(err))
	}
	l.configMap(api.ConfigManagedNamespace, "admin-gates", "ack-4.4-sparkles-in-4.5", "Sparkles are gone in 4.5. See https://example.com/sparkles for what to do.")
	l.await("the gate to be observed", 30*time.Second, says(configv1.OperatorUpgradeable, "False|"))
	l.patch("4.4.5")
	img := l.release("4.5.0", l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	message := l.refused("PreconditionChecks", img.ByDigest())
	assert.Contains(t, message, "ClusterVersionUpgradeable")
	assert.Contains(t, message, "https://example.com/sparkles")

	l.configMap(api.ConfigNamespace, "admin-acks", "ack-4.4-sparkles-in-4.5", "true")
	l.await("4.5.0 to be accepted", time.Minute, says(api.ReleaseAccepted, "True|"))
	cv := l.await("4.5.0", time.Minute, at("4.5.0"))
	assert.Empty(t, condition(cv, configv1.OperatorUpgradeable))
}

func capability(t *testing.T, l *testPlatform) {
	require.False(t, l.has("console"))
	l.registry.Reset()
	l.edit(func(spec *configv1.ClusterVersionSpec) {
		spec.Capabilities.AdditionalEnabledCapabilities = []configv1.ClusterVersionCapability{configv1.ClusterVersionCapabilityConsole}
	})
	l.gets("console")
	l.await("the cluster to be at rest", 30*time.Second, at("4.5.0"))
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Capabilities.AdditionalEnabledCapabilities = nil })
	cv := l.await("the capability to stay enabled", 30*time.Second, func(cv *configv1.ClusterVersion) bool {
		return at("4.5.0")(cv) && says(api.ImplicitlyEnabledCapabilities, "True|")(cv)
	})
	assert.Equal(t, "True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: Console", condition(cv, api.ImplicitlyEnabledCapabilities))
	assert.Equal(t, []configv1.ClusterVersionCapability{configv1.ClusterVersionCapabilityConsole}, cv.Status.Capabilities.EnabledCapabilities)
	assert.Len(t, cv.Status.History, len(versions(cv)))
	assert.True(t, l.has("console"))
}

func featureGate(t *testing.T, l *testPlatform) {
	require.False(t, l.has("sparkle"))
	dir, err := apicrd.Dir(t.Context())
	require.NoError(t, err)
	l.create(filepath.Join(dir, "0000_10_config-operator_01_featuregates.crd.yaml"))
	gates := &configv1.FeatureGate{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	require.Eventually(t, func() bool { return l.client.Create(t.Context(), gates) == nil }, patience, 100*time.Millisecond)
	l.enable("4.5.0", "Sparkle")
	l.gets("sparkle")
	l.await("the cluster to be at rest", 30*time.Second, at("4.5.0"))
	_, before := l.settings("a")
	hash := l.get().Status.VersionHash
	l.enable("4.5.0")
	l.await("the cluster to be at rest", 30*time.Second, func(cv *configv1.ClusterVersion) bool { return at("4.5.0")(cv) && cv.Status.VersionHash != hash })
	_, after := l.settings("a")
	assert.Equal(t, before, after, "manifests without a gate are not written again")
}

func pausedAt(cv *configv1.ClusterVersion) bool {
	return strings.Contains(condition(cv, configv1.OperatorProgressing), " paused before runlevel ")
}

func pause(t *testing.T, l *testPlatform) {
	l.actors.kill()
	img := l.release("4.5.1", l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	l.await("4.5.1 to wait for the first operator", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, configv1.OperatorProgressing), "waiting on tiny-a")
	})
	_, err := l.run("upgrade", "pause", "--reason", "a test")
	require.NoError(t, err)
	l.await("the pause to be reported", 30*time.Second, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, configv1.OperatorProgressing), "waiting on tiny-a/tiny-a-operator, pausing before runlevel 20")
	})
	l.t = l.book
	l.actors = l.start("operators")
	l.t = t
	l.await("the current runlevel to complete", 30*time.Second, pausedAt)
	below, _ := l.settings("a")
	above, _ := l.settings("b")
	assert.Equal(t, []string{"4.5.1", "4.5.0"}, []string{below, above}, "nothing above the boundary has begun")
	_, err = l.run("upgrade", "resume")
	require.NoError(t, err)
	l.await("4.5.1 to complete after the pause", time.Minute, at("4.5.1"))
}

func restartWhilePaused(t *testing.T, l *testPlatform) {
	_, err := l.run("upgrade", "pause")
	require.NoError(t, err)
	img := l.release("4.5.2", l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	l.await("4.5.2 to be paused", time.Minute, pausedAt)
	l.handOver()
	l.logged("rollout started")
	l.await("4.5.2 to stay paused", time.Minute, pausedAt)
	version, _ := l.settings("a")
	assert.Equal(t, "4.5.1", version)
	_, err = l.run("upgrade", "resume")
	require.NoError(t, err)
	l.await("4.5.2", time.Minute, at("4.5.2"))
	require.NotNil(t, l.rollout())
}
