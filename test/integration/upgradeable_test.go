package integration_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// special pushes a signed release with some files changed.
func (l *testPlatform) special(version string, more fstest.MapFS) release.Image {
	l.t.Helper()
	files, ok := l.tiny.files(version).(fstest.MapFS)
	require.True(l.t, ok)
	maps.Copy(files, more)
	img, err := fixture.PushRelease(l.t.Context(), l.registry, files, "platform/v"+version+":1")
	require.NoError(l.t, err)
	_, err = l.signer.WriteSignature(l.store(), img)
	require.NoError(l.t, err)
	return img
}

// configMap writes the data of a ConfigMap as an administrator does.
func (l *testPlatform) configMap(namespace, name, key, value string) {
	l.t.Helper()
	cm := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": namespace, "name": name},
		"data": map[string]any{key: value},
	}}
	require.NoError(l.t, l.client.Apply(l.t.Context(), client.ApplyConfigurationFromUnstructured(cm), client.FieldOwner("admin"), client.ForceOwnership))
}

// objects sets condition Upgradeable of a ClusterOperator that no release contains.
func (l *testPlatform) objects(name string, upgradeable configv1.ConditionStatus, reason, message string) {
	l.t.Helper()
	co := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := l.client.Create(l.t.Context(), co); !apierrors.IsAlreadyExists(err) {
		require.NoError(l.t, err)
	}
	patch := fmt.Appendf(nil, `{"status": {"conditions": [{"type": "Upgradeable", "status": %q, "reason": %q, "message": %q, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`,
		upgradeable, reason, message)
	require.NoError(l.t, l.client.Status().Patch(l.t.Context(), co, client.RawPatch(types.MergePatchType, patch)))
}

// patch updates the cluster within its minor version, which Upgradeable does not block.
func (l *testPlatform) patch(version string) {
	l.t.Helper()
	img := l.release(version, l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	l.await(version+" to complete in the same minor version", time.Minute, at(version))
}

func TestObstaclesBlockMinorUpdates(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	l.own = l.release("4.2.0", l.signer)
	cv := l.install("4.2.0")
	assert.Empty(t, condition(cv, configv1.OperatorUpgradeable), "nothing blocks an update")
	for _, chapter := range []struct {
		name string
		run  func(*testing.T, *testPlatform)
	}{
		{"waits for the acknowledgement of a gate", gated},
		{"waits for an operator that blocks updates", operatorObjects},
		{"rejects a release for other API servers", otherKubernetes},
		{"rejects a release with a removed API", removedAPI},
	} {
		passed := t.Run(chapter.name, func(t *testing.T) {
			l.t = t
			defer func() { l.t = l.book }()
			chapter.run(t, l)
		})
		require.True(t, passed, "the next chapters depend on this one")
	}
}

func gated(t *testing.T, l *testPlatform) {
	l.configMap(api.ConfigManagedNamespace, api.AdminGatesConfigMap, "ack-4.2-storage", "Storage changes. See https://example.com/4.3.")
	l.await("the gate to be observed", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return condition(cv, configv1.OperatorUpgradeable) != ""
	})
	img := l.release("4.3.0", l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	message := l.refused("PreconditionChecks", img.ByDigest())
	assert.Contains(t, message, "AdminAckRequired")
	assert.Contains(t, message, "Storage changes. See https://example.com/4.3.")
	assert.Contains(t, message, "admin-acks configmap not found", "the message names the place of the acknowledgement")
	l.patch("4.2.1")

	l.update(configv1.Update{Image: img.ByDigest()})
	l.refused("PreconditionChecks", img.ByDigest())
	l.registry.Reset()
	l.configMap(api.ConfigNamespace, api.AdminAcksConfigMap, "ack-4.2-storage", "true")
	l.await("4.3.0 to begin after the gate is acknowledged", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return cv.Status.Desired.Version == "4.3.0"
	})
	assert.Zero(t, l.registry.Count("GET", "/v4.3.0/"), "the release is not read again")
	cv := l.await("4.3.0", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return at("4.3.0")(cv) && condition(cv, configv1.OperatorUpgradeable) == ""
	})
	assert.True(t, cv.Status.History[0].Verified)
}

func operatorObjects(t *testing.T, l *testPlatform) {
	l.objects("pools", configv1.ConditionFalse, "DegradedPool", "One pool is degraded.")
	l.await("the obstacle to be reported", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return condition(cv, configv1.OperatorUpgradeable) == "False|DegradedPool|Cluster operator pools should not be upgraded between minor versions: One pool is degraded."
	})
	l.patch("4.3.1")
	img := l.release("4.4.0", l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	message := l.refused("PreconditionChecks", img.ByDigest())
	assert.Contains(t, message, `Precondition "ClusterVersionUpgradeable" failed because of "DegradedPool": Cluster operator pools should not be upgraded between minor versions: One pool is degraded.`)
	l.objects("pools", configv1.ConditionTrue, "AsExpected", "")
	l.await("4.4.0 to complete after the operator permits it", time.Minute, at("4.4.0"))
}

func otherKubernetes(t *testing.T, l *testPlatform) {
	metadata := func(version, supported string) fstest.MapFS {
		return fstest.MapFS{"release-manifests/release-metadata": &fstest.MapFile{Data: fmt.Appendf(nil,
			`{"kind": "cincinnati-metadata-v0", "version": %q, "metadata": {%q: %q}}`, version, api.KubernetesVersionsKey, supported)}}
	}
	img := l.special("4.5.0", metadata("4.5.0", ">=1.10.0 <1.11.0"))
	l.update(configv1.Update{Image: img.ByDigest()})
	message := l.refused("PreconditionChecks", img.ByDigest())
	assert.Regexp(t, `"UnsupportedKubernetesVersion": Release 4\.5\.0 requires Kubernetes >=1\.10\.0 <1\.11\.0, but the API server runs Kubernetes v1\.\d+\.\d+`, message)
	l.patch("4.4.1")
	img = l.special("4.5.1", metadata("4.5.1", ">=1.30.0"))
	l.update(configv1.Update{Image: img.ByDigest()})
	l.await("4.5.1, which supports this API server", time.Minute, at("4.5.1"))
}

func removedAPI(t *testing.T, l *testPlatform) {
	img := l.special("4.6.0", fstest.MapFS{"release-manifests/0000_30_budget_10.yaml": &fstest.MapFile{Data: []byte(`
apiVersion: policy/v1beta1
kind: PodDisruptionBudget
metadata: {namespace: tiny-a, name: a, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
`)}})
	l.update(configv1.Update{Image: img.ByDigest()})
	message := l.refused("PreconditionChecks", img.ByDigest())
	assert.Contains(t, message, "policy/v1beta1 PodDisruptionBudget in 0000_30_budget_10.yaml (served: policy/v1)")
	l.patch("4.5.2")
}
