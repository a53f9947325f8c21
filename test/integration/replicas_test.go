package integration_test

import (
	"slices"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestUpdateKeepsReplicasThatLeaveTheManifest updates a Deployment whose manifest drops replicas, so that an autoscaler decides. Then
// another client scales it to 0.
func TestUpdateKeepsReplicasThatLeaveTheManifest(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	push := func(version, spec string) release.Image {
		return l.special(version, fstest.MapFS{"release-manifests/0000_30_lab_01.yaml": {Data: []byte(`
apiVersion: v1
kind: Namespace
metadata: {name: lab, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: lab
  annotations:
    include.release.openshift.io/self-managed-high-availability: "true"
    cvo.cluster-version.github.io/wait: "false" # no controller runs here
spec:
  ` + spec + `
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example.com/web}]}
`)}})
	}
	l.own = push("4.2.0", "replicas: 3")
	next := push("4.2.1", "minReadySeconds: 5")
	l.address = freeAddress(t)
	l.install("4.2.0")

	objects := l.diff(next).Objects
	i := slices.IndexFunc(objects, func(o preview.Object) bool { return o.ID.Name == "web" })
	require.GreaterOrEqual(t, i, 0)
	assert.Contains(t, objects[i].Message, "spec.replicas stays at 3, because the manifest no longer sets it")
	for _, f := range objects[i].Fields {
		assert.NotEqual(t, "spec.replicas", f.Path)
	}
	l.update(configv1.Update{Image: next.ByDigest()})
	l.await("4.2.1 to complete", time.Minute, completed("4.2.1"))
	web := l.object("apps/v1", "Deployment", "lab", "web")
	require.NotNil(t, web)
	seconds, _, _ := unstructured.NestedInt64(web.Object, "spec", "minReadySeconds")
	assert.EqualValues(t, 5, seconds)
	replicas, _, _ := unstructured.NestedInt64(web.Object, "spec", "replicas")
	assert.EqualValues(t, 3, replicas)

	require.NoError(t, autoscalingv1.AddToScheme(l.client.Scheme()))
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 0}}
	require.NoError(t, l.client.SubResource("scale").Update(t.Context(), web, client.WithSubResourceBody(scale)))
	require.Eventually(t, func() bool { return slices.Contains(l.story(), api.EventScaledToZero) }, time.Minute, 50*time.Millisecond)
	l.awaitReport("\nScaled to 0\n  Deployment.apps lab/web  no pod runs; the manifest leaves spec.replicas out\n")

	l.update(configv1.Update{Image: push("4.2.2", "minReadySeconds: 6").ByDigest()})
	l.await("4.2.2 to complete", time.Minute, completed("4.2.2"))
	l.awaitReport("\nScaled to 0\n")
	reasons := slices.DeleteFunc(l.story(), func(reason string) bool { return reason != api.EventScaledToZero })
	assert.Len(t, reasons, 1, "a later rollout repeats no event")
}
