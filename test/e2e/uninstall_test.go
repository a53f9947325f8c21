package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// TestUninstall takes the operator out of a cluster and brings it back, while the cluster's own garbage collector runs.
func TestUninstall(t *testing.T) {
	l := installed(t)
	release := l.image()

	t.Run("the ClusterVersion is not deleted by accident", func(t *testing.T) {
		l := l.in(t)
		cv, err := l.clusterVersion()
		require.NoError(t, err)
		err = l.client.Delete(t.Context(), cv)
		require.Error(t, err)
		assert.True(t, apierrors.IsInvalid(err) || apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(t, err, "allow-deletion")
	})

	before := l.everything()
	t.Run("without the operator the platform stays", func(t *testing.T) {
		l, began := l.in(t), time.Now()
		l.mustRun("uninstall", "--yes", "--timeout=3m")
		t.Logf("the operator is gone after %s", since(began))
		_, err := l.clusterVersion()
		assert.True(t, apierrors.IsNotFound(err) || meta.IsNoMatchError(err), "%v", err)
		l.garbageCollected()
		l.untouched(before)
	})
	t.Run("another install adopts the platform and changes nothing of it", func(t *testing.T) {
		l, began := l.in(t), time.Now()
		l.install(release, "--wait")
		t.Logf("installed again after %s", since(began))
		after := l.everything()
		for name, object := range before {
			assert.Equal(t, object.UID, after[name].UID, name)
			assert.Equal(t, object.Generation, after[name].Generation, name)
		}
	})
}

// everything finds the objects of all kinds that the platform consists of, those that its workloads made included.
// What the operator consists of is not among them, nor is what comes and goes.
func (l *life) everything() map[string]metav1.PartialObjectMetadata {
	l.Helper()
	lists, err := l.kube.Discovery().ServerPreferredResources()
	require.NoError(l, err)
	found := map[string]metav1.PartialObjectMetadata{}
	for _, served := range lists {
		gv, err := schema.ParseGroupVersion(served.GroupVersion)
		require.NoError(l, err)
		for _, resource := range served.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" || resource.Kind == "Lease" {
				continue
			}
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(gv.WithKind(resource.Kind + "List"))
			require.NoError(l, l.client.List(l.Context(), list))
			for _, object := range list.Items {
				if strings.HasPrefix(object.Namespace, "example-") || object.Namespace == "" && brought(object) {
					found[strings.TrimPrefix(resource.Kind+"."+gv.Group+" "+object.Namespace+"/"+object.Name, "/")] = object
				}
			}
		}
	}
	require.Greater(l, len(found), 100)
	return found
}

// brought says whether a release brought an object of the cluster that is none of the operator's own.
func brought(object metav1.PartialObjectMetadata) bool {
	_, ok := object.Labels[api.OwnedByLabel]
	return ok && !strings.Contains(object.Name, "cluster-version") && object.Name != api.OperatorNamespace &&
		!strings.HasSuffix(object.Name, ".cvo.cluster-version.github.io") && !strings.HasPrefix(object.Name, "clusterversions.")
}

// untouched makes sure that everything is there that the platform consisted of, and belongs to nobody who is gone.
func (l *life) untouched(before map[string]metav1.PartialObjectMetadata) {
	l.Helper()
	now := l.everything()
	l.Logf("of the platform's %d objects %d are left", len(before), len(now))
	for name, object := range before {
		assert.Equal(l, object.UID, now[name].UID, name)
		for _, owner := range now[name].OwnerReferences {
			assert.NotEqual(l, "ClusterVersion", owner.Kind, name)
		}
	}
}

// garbageCollected waits until the cluster's garbage collector has deleted an object whose owner goes now, and thus has
// seen whatever happened before.
func (l *life) garbageCollected() {
	l.Helper()
	namespace := newNamespace(l.T, l.kube)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
	require.NoError(l, l.client.Create(l.Context(), owner))
	canary := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "canary", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	require.NoError(l, l.client.Create(l.Context(), canary))
	require.NoError(l, l.client.Delete(l.Context(), owner, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	require.Eventually(l, func() bool {
		return apierrors.IsNotFound(l.client.Get(l.Context(), client.ObjectKeyFromObject(canary), canary))
	}, patience, tick/5, "the garbage collector runs")
}
