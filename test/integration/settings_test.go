package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/test/env"
)

const featureGateDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: featuregates.config.openshift.io, annotations: {api-approved.kubernetes.io: "https://github.com/openshift/api/pull/470"}}
spec:
  group: config.openshift.io
  scope: Cluster
  names: {kind: FeatureGate, plural: featuregates, singular: featuregate, listKind: FeatureGateList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: config.openshift.io/v1
kind: FeatureGate
metadata: {name: cluster}
spec: {}
`

// optional returns a ConfigMap that only some clusters get.
func optional(name, key, value string) *fstest.MapFile {
	return &fstest.MapFile{Data: fmt.Appendf(nil, `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: tiny-b, name: %s, annotations: {%s: %q, include.release.openshift.io/self-managed-high-availability: "true"}}
`, name, key, value)}
}

// has reports whether the cluster has an optional ConfigMap.
func (l *testPlatform) has(name string) bool {
	l.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	err := l.client.Get(l.t.Context(), client.ObjectKey{Namespace: "tiny-b", Name: name}, u)
	if !apierrors.IsNotFound(err) {
		require.NoError(l.t, err)
	}
	return err == nil
}

func (l *testPlatform) gets(name string) {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.has(name) }, time.Minute, 50*time.Millisecond, name)
}

// enable enables feature gates for a version.
func (l *testPlatform) enable(version string, names ...configv1.FeatureGateName) {
	l.t.Helper()
	gates := &configv1.FeatureGate{}
	require.NoError(l.t, l.client.Get(l.t.Context(), client.ObjectKey{Name: "cluster"}, gates))
	details := configv1.FeatureGateDetails{Version: version}
	for _, name := range names {
		details.Enabled = append(details.Enabled, configv1.FeatureGateAttributes{Name: name})
	}
	gates.Status.FeatureGates = append(slices.DeleteFunc(gates.Status.FeatureGates, func(d configv1.FeatureGateDetails) bool { return d.Version == version }), details)
	require.NoError(l.t, l.client.Status().Update(l.t.Context(), gates))
}

// TestSettingsSelectManifestsWhileTheOperatorRuns changes the settings that select a cluster's manifests while the operator runs and
// another client keeps overwriting the ClusterVersion.
func TestSettingsSelectManifestsWhileTheOperatorRuns(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	l.tiny.definitions["release-manifests/0000_30_gated_01.yaml"] = optional("gated", api.FeatureGateAnnotation, "Tomorrow")
	l.tiny.definitions["release-manifests/0000_30_preview_01.yaml"] = optional("preview", api.FeatureSetAnnotation, "TechPreviewNoUpgrade")
	l.tiny.definitions["release-manifests/0000_30_console_01.yaml"] = optional("console", api.CapabilityAnnotation, "Console")
	l.own = l.release("4.2.0", l.signer)
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	file := filepath.Join(l.dir, "featuregate.yaml")
	definition, object, _ := strings.Cut(featureGateDefinition, "\n---")
	require.NoError(t, os.WriteFile(file, []byte(definition), 0o600))
	l.create(file)
	require.NoError(t, os.WriteFile(file, []byte(object), 0o600))
	require.Eventually(t, func() bool {
		gates := &configv1.FeatureGateList{}
		return l.client.List(t.Context(), gates) == nil
	}, time.Minute, 50*time.Millisecond)
	l.create(file)
	l.edit(func(spec *configv1.ClusterVersionSpec) {
		spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone}
	})
	l.start("operators")
	l.cvo = l.operator(l.own.ByDigest())
	cv := l.await("4.2.0 to complete", time.Minute, at("4.2.0"))
	assert.Empty(t, cv.Status.Capabilities.EnabledCapabilities)
	for _, name := range []string{"gated", "preview", "console"} {
		assert.False(t, l.has(name), name)
	}

	l.registry.Reset()
	hash := cv.Status.VersionHash
	l.enable("4.1.0", "Tomorrow")
	l.enable("4.2.0", "Tomorrow")
	l.gets("gated")
	cv = l.await("the cluster to be at rest", time.Minute, func(cv *configv1.ClusterVersion) bool { return at("4.2.0")(cv) && cv.Status.VersionHash != hash })
	assert.False(t, l.has("preview"))

	gates := &configv1.FeatureGate{}
	require.NoError(t, l.client.Get(t.Context(), client.ObjectKey{Name: "cluster"}, gates))
	gates.Spec.FeatureSet = configv1.TechPreviewNoUpgrade
	hash = cv.Status.VersionHash
	require.NoError(t, l.client.Update(t.Context(), gates))
	l.gets("preview")
	l.await("the cluster to be at rest", time.Minute, func(cv *configv1.ClusterVersion) bool { return at("4.2.0")(cv) && cv.Status.VersionHash != hash })

	l.edit(func(spec *configv1.ClusterVersionSpec) {
		spec.Capabilities.AdditionalEnabledCapabilities = []configv1.ClusterVersionCapability{"Console"}
	})
	l.gets("console")
	cv = l.await("the cluster to be at rest", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return at("4.2.0")(cv) && len(cv.Status.Capabilities.EnabledCapabilities) == 1
	})
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Capabilities.AdditionalEnabledCapabilities = nil })
	l.await("the capability to stay enabled", time.Minute, says(api.ImplicitlyEnabledCapabilities,
		"True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: Console"))
	assert.Len(t, cv.Status.History, 1, "the release stays the same")
	assert.True(t, cv.Status.History[0].Verified)
	assert.Empty(t, l.registry.Requests(), "no image is fetched or verified again")

	l.testPreviewsUseTheTargetsGates(t)
	l.testStatusOverwritten(t)
}

// testPreviewsUseTheTargetsGates previews a release whose feature gates are known and differ from those of the running release.
func (l *testPlatform) testPreviewsUseTheTargetsGates(t *testing.T) {
	t.Helper()
	next := l.release("4.2.1", l.signer)
	for _, gates := range [][]configv1.FeatureGateName{nil, {"Tomorrow"}} {
		l.enable("4.2.1", gates...)
		out, err := l.run("upgrade", "diff", next.ByDigest(), "--trust", l.trust, "-o", "json")
		require.NoError(t, err)
		var diff preview.Report
		require.NoError(t, json.Unmarshal([]byte(out), &diff))
		assert.Equal(t, len(gates) == 0, slices.ContainsFunc(diff.Excluded, func(e preview.Exclusion) bool { return e.ID.Name == "gated" }), "%v", diff.Excluded)

		dir := filepath.Join(t.TempDir(), "out")
		_, err = l.run("release", "extract", next.ByDigest(), "--included", "--to", dir)
		require.NoError(t, err)
		files, err := filepath.Glob(filepath.Join(dir, "*gated*"))
		require.NoError(t, err)
		assert.Len(t, files, len(gates))
	}
}

// testStatusOverwritten lets another client write status and spec as fast as possible. Our status keeps returning, with few writes,
// and stays when the other client stops.
func (l *testPlatform) testStatusOverwritten(t *testing.T) {
	t.Helper()
	begin := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), 6*time.Second)
	defer stop()
	foreign := 0
	for random := rand.New(rand.NewPCG(1, 2)); ctx.Err() == nil; {
		status := fmt.Sprintf(`{"status":{"versionHash":"%d","observedGeneration":%d,"conditions":[]}}`, random.Int64(), random.IntN(9))
		cv := &configv1.ClusterVersion{}
		cv.Name = "version"
		err := l.client.Status().Patch(ctx, cv, client.RawPatch("application/merge-patch+json", []byte(status)))
		if err == nil {
			foreign++
			err = l.client.Patch(ctx, cv, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"channel":"c%d"}}`, random.IntN(100))))
		}
		if ctx.Err() == nil {
			require.NoError(t, err)
		}
	}
	took := time.Since(begin)
	l.await("our status to return", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return says(api.ReleaseAccepted, "True|PayloadLoaded|")(cv) && at("4.2.0")(cv)
	})
	var ours []time.Time
	for _, e := range l.audit(begin) {
		if e.Write() && strings.HasPrefix(e.UserAgent, operatorAgent) && e.Object == clusterVersionStatus() {
			ours = append(ours, e.Received)
		}
	}
	t.Logf("%d foreign writes, %d of ours, in %s", foreign, len(ours), took)
	assert.GreaterOrEqual(t, len(ours), 2, "our status returns repeatedly")
	if len(ours) > 0 {
		span := ours[len(ours)-1].Sub(begin) // no write is earlier, however late the first one arrived
		assert.LessOrEqual(t, float64(len(ours)), span.Seconds()+11.5, "at most one write per second with some delay, and ten for edges; the test of the pacer decides the rate")
	}
	log, err := os.ReadFile(l.cvo.log)
	require.NoError(t, err)
	assert.NotContains(t, string(log), "Reconciler error")
}

func clusterVersionStatus() env.AuditObject {
	return env.AuditObject{Group: "config.openshift.io", Version: "v1", Resource: "clusterversions", Subresource: "status", Name: "version"}
}
