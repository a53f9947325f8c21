package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// discoveryFunc returns the API resources of a server.
type discoveryFunc func() ([]*metav1.APIResourceList, error)

func (f discoveryFunc) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	lists, err := f()
	return nil, lists, err
}

// TestObserverTreatsOnlyUnservedKindsAsGone checks that a kind counts as not served only if the server says so. Until its resource is
// known, there is no watch.
func TestObserverTreatsOnlyUnservedKindsAsGone(t *testing.T) {
	list, err := manifest.Parse("0000_10_x_old.yaml", []byte(`{apiVersion: example.com/v1, kind: Old, metadata: {name: x, annotations: {release.openshift.io/delete: "true"}}}
---
{apiVersion: example.com/v1, kind: Old, metadata: {name: kept}}`), manifest.Limits{})
	require.NoError(t, err)
	for _, tt := range []struct {
		name string
		err  error
		want observe.Look
	}{
		{"waits while the server does not answer", errors.New("connection refused"), observe.Look{}},
		{"treats the object as gone if the kind does not exist", nil, observe.Look{Synced: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			mapper := kinds.NewMapper(clock.RealClock{}, discoveryFunc(func() ([]*metav1.APIResourceList, error) {
				asked++
				return nil, tt.err
			}), nil)
			watcher := observe.New(nil, labels.Everything(), logr.Discard(), func() {}) // never runs
			o := newObserver(nil, watcher, mapper)
			for range 3 {
				assert.Equal(t, tt.want, o.Look(t.Context(), list[0], false))
				assert.Equal(t, observe.Look{Unserved: tt.want.Synced}, o.Look(t.Context(), list[1], false))
			}
			assert.Empty(t, o.used)
			assert.Positive(t, asked)
		})
	}
}

// TestObserverFindsTombstonesInOtherVersions checks that a tombstone counts as done only if no version of its kind is served.
func TestObserverFindsTombstonesInOtherVersions(t *testing.T) {
	list, err := manifest.Parse("0000_10_x_old.yaml", []byte(`{apiVersion: example.com/v1, kind: Old, metadata: {name: x, annotations: {release.openshift.io/delete: "true"}}}`), manifest.Limits{})
	require.NoError(t, err)
	var served []*metav1.APIResourceList
	mapper := kinds.NewMapper(clock.RealClock{}, discoveryFunc(func() ([]*metav1.APIResourceList, error) { return served, nil }), nil)
	watcher := observe.New(metadata.NewForConfigOrDie(&rest.Config{}), labels.Everything(), logr.Discard(), func() {}) // never runs
	o := newObserver(nil, watcher, mapper)
	assert.Equal(t, observe.Look{Synced: true}, o.Look(t.Context(), list[0], false))

	served = []*metav1.APIResourceList{{GroupVersion: "example.com/v2", APIResources: []metav1.APIResource{{Name: "olds", Kind: "Old"}}}}
	require.Eventually(t, func() bool {
		return assert.NoError(t, mapper.Refresh(t.Context())) && !o.Look(t.Context(), list[0], false).Synced
	}, time.Minute, time.Millisecond)
	assert.True(t, o.uses(observe.Scope{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "olds"}}))
}

// TestPrepareNeedsDiscovery checks that no pass starts before the served kinds are known. It would inject empty values. It would also start
// no watches, and then apply all objects. A failed extension API server defers no pass.
func TestPrepareNeedsDiscovery(t *testing.T) {
	for name, annotations := range map[string]string{"with an injection": "{config.openshift.io/inject-proxy: a}", "without injections": "{}"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list, err := manifest.Parse("0000_10_x.yaml", []byte(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, annotations: `+annotations+`}}`), manifest.Limits{})
				require.NoError(t, err)
				reads, failure := 0, error(nil)
				mapper := kinds.NewMapper(clock.RealClock{}, discoveryFunc(func() ([]*metav1.APIResourceList, error) {
					reads++
					return []*metav1.APIResourceList{{GroupVersion: "config.openshift.io/v1", APIResources: []metav1.APIResource{{Name: "proxies", Kind: "Proxy"}}}}, failure
				}), list)
				scheme, err := NewScheme()
				require.NoError(t, err)
				watcher := observe.New(metadata.NewForConfigOrDie(&rest.Config{}), labels.Everything(), logr.Discard(), func() {}) // never runs
				o := newObserver(nil, watcher, mapper)
				applier := newApplier(apply.New(nil, mapper, body.Owner{}), o, fake.NewClientBuilder().WithScheme(scheme).Build(), list)

				failure = errors.New("connection refused")
				for range 2 {
					require.ErrorIs(t, applier.Prepare(t.Context()), failure)
				}
				assert.Equal(t, 1, reads)
				time.Sleep(time.Second)
				failure = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: errors.New("no endpoints")}}
				for range 3 {
					require.NoError(t, applier.Prepare(t.Context()))
					time.Sleep(time.Second)
				}
				assert.Equal(t, 2, reads)
				assert.Equal(t, applier.asked, o.uses(injections()[0].scope()))
			})
		})
	}
}

// TestSlimBoundsForeignObjects checks the bounds of objects in caches, because anyone can put our label on an object. The fields that
// gates read are kept.
//
//threat:tenant-labels-many
func TestSlimBoundsForeignObjects(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100_000)
	many := make([]string, 1000)
	for i := range many {
		many[i] = "example.com/" + long[:500]
	}
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "x", Name: "y", UID: "z", Generation: 3, Finalizers: slices.Clone(many), Annotations: map[string]string{"a": long},
			Labels: map[string]string{"l": long}, OwnerReferences: []metav1.OwnerReference{{Name: long}}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: long}},
		}
	}
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: long}}}}
	conditions := make([]metav1.Condition, 1000)
	for i := range conditions {
		conditions[i] = metav1.Condition{Type: "Available", Message: long}
	}
	conditioned := func() (c gate.Conditioned) {
		c.ObjectMeta, c.Status.Conditions = meta(), slices.Clone(conditions)
		return c
	}
	for _, object := range []client.Object{
		&appsv1.Deployment{
			ObjectMeta: meta(), Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Template: pod},
			Status: appsv1.DeploymentStatus{UpdatedReplicas: 2, Conditions: slices.Repeat([]appsv1.DeploymentCondition{{Type: "Available", Message: long}}, 1000)},
		},
		&appsv1.DaemonSet{ObjectMeta: meta(), Spec: appsv1.DaemonSetSpec{Template: pod}, Status: appsv1.DaemonSetStatus{
			Conditions: slices.Repeat([]appsv1.DaemonSetCondition{{Message: long}}, 1000),
		}},
		&appsv1.StatefulSet{ObjectMeta: meta(), Spec: appsv1.StatefulSetSpec{Template: pod}, Status: appsv1.StatefulSetStatus{
			Conditions: slices.Repeat([]appsv1.StatefulSetCondition{{Message: long}}, 1000),
		}},
		&batchv1.Job{ObjectMeta: meta(), Spec: batchv1.JobSpec{Template: pod}, Status: batchv1.JobStatus{
			Conditions: slices.Repeat([]batchv1.JobCondition{{Type: "Failed", Message: long}}, 1000),
		}},
		&gate.CRD{Conditioned: conditioned()},
		&gate.APIService{Conditioned: conditioned()},
	} {
		slimmed, err := slim(object)
		require.NoError(t, err)
		data, err := json.Marshal(slimmed)
		require.NoError(t, err)
		assert.Less(t, len(data), (maxConditions+maxFinalizers)*maxMessage+10_000, "%T", object)
		assert.Equal(t, []string{"x", "y", "z"}, []string{object.GetNamespace(), object.GetName(), string(object.GetUID())})
		assert.EqualValues(t, 3, object.GetGeneration())
		if d, ok := slimmed.(*appsv1.Deployment); ok {
			assert.EqualValues(t, 2, *d.Spec.Replicas)
			assert.EqualValues(t, 2, d.Status.UpdatedReplicas)
			assert.Equal(t, appsv1.DeploymentConditionType("Available"), d.Status.Conditions[0].Type)
			assert.True(t, utf8.ValidString(d.Status.Conditions[0].Message))
		}
	}

	operator := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: "dns", Labels: map[string]string{"kept": "yes"}}}
	_, err := slim(operator)
	require.NoError(t, err)
	assert.Equal(t, "yes", operator.Labels["kept"], "ClusterOperators keep their labels")
}
