package gate_test

import (
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// then is the transition time of all test conditions.
var then = metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))

// of returns a manifest of a kind.
func of(apiVersion, kind, namespace, name string) *manifest.Manifest {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return &manifest.Manifest{File: "0000_50_x_y.yaml", Document: 1, Object: object}
}

func deploymentManifest() *manifest.Manifest { return of("apps/v1", "Deployment", "a", "b") }

// seen returns the metadata of an object in the cluster.
func seen(uid string, generation int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "a", Name: "b", UID: types.UID("uid-" + uid), Generation: generation}
}

func TestGatedReportsWhichKindsHaveAGate(t *testing.T) {
	for _, tt := range []struct {
		apiVersion, kind string
		want             bool
	}{
		{"config.openshift.io/v1", "ClusterOperator", true},
		{"config.openshift.io/v1", "Proxy", false},
		{"apiextensions.k8s.io/v1", "CustomResourceDefinition", true},
		{"apiextensions.k8s.io/v1", "ConversionReview", false},
		{"apiregistration.k8s.io/v1", "APIService", true},
		{"apps/v1", "Deployment", true},
		{"apps/v1", "DaemonSet", true},
		{"apps/v1", "StatefulSet", true},
		{"apps/v1", "ReplicaSet", false},
		{"batch/v1", "Job", true},
		{"batch/v1", "CronJob", false},
		{"v1", "ConfigMap", false},
		{"example.com/v1", "Deployment", false},
	} {
		t.Run(tt.apiVersion+" "+tt.kind, func(t *testing.T) {
			assert.Equal(t, tt.want, gate.Gated(of(tt.apiVersion, tt.kind, "", "x")))
		})
	}
}

func TestCheckWaitsForTheAppliedObject(t *testing.T) {
	deployed := func(uid string, generation int64) gate.Object {
		return &appsv1.Deployment{
			ObjectMeta: seen(uid, generation), Status: appsv1.DeploymentStatus{ObservedGeneration: generation},
		}
	}
	for _, tt := range []struct {
		name    string
		obj     gate.Object
		want    gate.Want
		state   gate.State
		message string
	}{
		{"waits for an unobserved object", nil, gate.Want{}, gate.Waiting, "Deployment.apps a/b has not been observed yet"},
		{
			"waits for the applied generation", deployed("1", 1),
			gate.Want{UID: "uid-1", Generation: 2},
			gate.Waiting,
			"the latest state of Deployment.apps a/b has not been observed yet",
		},
		{
			"waits while another object has the name", deployed("0", 7),
			gate.Want{UID: "uid-1", Generation: 2},
			gate.Waiting, "the latest state of Deployment.apps a/b has not been observed yet",
		},
		{"accepts the applied generation", deployed("1", 2), gate.Want{UID: "uid-1", Generation: 2}, gate.Settled, ""},
		{"accepts a later generation", deployed("1", 3), gate.Want{UID: "uid-1", Generation: 2}, gate.Settled, ""},
		{"accepts any object without a response to an apply", deployed("0", 1), gate.Want{}, gate.Settled, ""},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			tt.want.Manifest, tt.want.Mode = deploymentManifest(), release.Updating
			got := gate.Check(tt.obj, tt.want)
			assert.Equal(t, tt.state, got.State)
			assert.Equal(t, tt.message, got.Message)
			if tt.state == gate.Waiting {
				assert.Equal(t, gate.UntilSlow, got.Patience)
				assert.Equal(t, "NotObserved", got.Reason)
			}
		})
	}
}

func TestCheckFailsOnDeletedObjects(t *testing.T) {
	meta := seen("1", 1)
	meta.DeletionTimestamp, meta.Finalizers = &then, []string{"example.com/keep"}
	for _, obj := range []gate.Object{
		&configv1.ClusterOperator{ObjectMeta: meta}, &appsv1.Deployment{ObjectMeta: meta}, &batchv1.Job{ObjectMeta: meta},
		&gate.CRD{Conditioned: gate.Conditioned{ObjectMeta: meta}},
	} {
		got := gate.Check(obj, gate.Want{Manifest: deploymentManifest(), Mode: release.Reconciling})
		assert.Equal(t, gate.Verdict{
			State: gate.Failed, Reason: "Deleting",
			Message: "Deployment.apps a/b is being deleted; finalizers: [example.com/keep]",
		}, got)
	}
}

// TestCheckCallsTheGateForTheKind gives Check an object without a status for every kind, which only the gate of the kind rejects.
func TestCheckCallsTheGateForTheKind(t *testing.T) {
	for _, tt := range []struct {
		manifest            *manifest.Manifest
		obj                 gate.Object
		installing, running gate.State
	}{
		{of("config.openshift.io/v1", "ClusterOperator", "", "b"), &configv1.ClusterOperator{}, gate.Failed, gate.Failed},
		{of("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "b"), &gate.CRD{}, gate.Waiting, gate.Waiting},
		{of("apiregistration.k8s.io/v1", "APIService", "", "b"), &gate.APIService{}, gate.Settled, gate.Waiting},
		{of("apps/v1", "Deployment", "a", "b"), &appsv1.Deployment{ObjectMeta: seen("1", 1)}, gate.Settled, gate.Waiting},
		{of("apps/v1", "DaemonSet", "a", "b"), &appsv1.DaemonSet{ObjectMeta: seen("1", 1)}, gate.Settled, gate.Waiting},
		{of("apps/v1", "StatefulSet", "a", "b"), &appsv1.StatefulSet{ObjectMeta: seen("1", 1)}, gate.Settled, gate.Waiting},
		{of("batch/v1", "Job", "a", "b"), &batchv1.Job{}, gate.Waiting, gate.Waiting},
		{of("v1", "ConfigMap", "a", "b"), &corev1.ConfigMap{}, gate.Settled, gate.Settled},
	} {
		t.Run(tt.manifest.ID().Kind, func(t *testing.T) {
			for _, mode := range release.Modes() {
				want := tt.running
				if mode == release.Initializing {
					want = tt.installing
				}
				assert.Equal(t, want, gate.Check(tt.obj, gate.Want{Manifest: tt.manifest, Mode: mode}).State, mode)
			}
		})
	}
}

func TestCheckWaitsForUnobservedObjects(t *testing.T) {
	for _, tt := range []struct {
		manifest *manifest.Manifest
		mode     release.Mode
		want     gate.State
	}{
		{of("apps/v1", "Deployment", "a", "b"), release.Initializing, gate.Settled},
		{of("apps/v1", "Deployment", "a", "b"), release.Reconciling, gate.Waiting},
		{of("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "b"), release.Initializing, gate.Waiting},
		{of("batch/v1", "Job", "a", "b"), release.Initializing, gate.Waiting},
		{of("config.openshift.io/v1", "ClusterOperator", "", "b"), release.Initializing, gate.Waiting},
	} {
		got := gate.Check(nil, gate.Want{Manifest: tt.manifest, Mode: tt.mode})
		assert.Equal(t, tt.want, got.State, "%s %s", tt.manifest, tt.mode)
	}
}

func TestEveryKindHasItsOwnGate(t *testing.T) {
	for _, k := range gate.Kinds() {
		t.Run(k.Kind, func(t *testing.T) {
			apiVersion, kind := k.ToAPIVersionAndKind()
			want := gate.Want{Manifest: of(apiVersion, kind, "a", "b"), Mode: release.Updating}
			assert.True(t, gate.Gated(want.Manifest))
			object := k.New()
			object.SetGeneration(1)
			assert.NotEqual(t, gate.Settled, gate.Check(object, want).State, "an object without status settles: no gate reads its type")
		})
	}
}
