// Package installed prepares a cluster with an operator and a small platform, for tests that install or uninstall.
package installed

import (
	"context"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/install/plan"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/env"
)

// ReleaseImage is the image of Release.
const ReleaseImage = "registry.example/platform/release@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// Release returns a release that contains only the operator, built from its own manifests.
func Release(t testing.TB, version string, options payload.Options) *payload.Payload {
	t.Helper()
	files := fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"` + version + `"}`)},
		"release-manifests/image-references": {Data: []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"` + version + `"}}`)},
	}
	names, err := fs.Glob(manifests.FS(), "*.yaml")
	require.NoError(t, err)
	for _, name := range names {
		data, err := fs.ReadFile(manifests.FS(), name)
		require.NoError(t, err)
		files["manifests/"+name] = &fstest.MapFile{Data: data}
	}
	p, err := payload.Load(files, ReleaseImage, options)
	require.NoError(t, err)
	return p
}

// Client returns a client for the kinds of an installation.
func Client(t testing.TB, cfg *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, configv1.Install(scheme))
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// Settings returns the settings of an installation.
func Settings() plan.Settings {
	return plan.Settings{
		Trust:      map[string]string{"trust-policy.yaml": "kind: TrustPolicy"},
		PullSecret: []byte(`{"auths":{"registry.example":{"auth":"dXNlcjpwYXNz"}}}`),
		Retrieval:  "job", Channel: "stable", ClusterAdmin: true, ClusterID: "6f7a3c52-2c6c-4f7e-9e38-0c9d4ba2f2d1",
	}
}

// Cluster prepares a cluster with an operator and a platform of two ConfigMaps, one of which has no owner.
func Cluster(t testing.TB) (*rest.Config, client.Client, *configv1.ClusterVersion) {
	t.Helper()
	cfg := env.New(t, env.Options{Audit: env.AuditNone}).Config("install")
	c := Client(t, cfg)
	objects, err := plan.New(Release(t, "1.0.0", payload.Options{}), Settings())
	require.NoError(t, err)
	_, err = install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
	require.NoError(t, err)
	cv := &configv1.ClusterVersion{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	reference := metav1.OwnerReference{APIVersion: configv1.GroupVersion.String(), Kind: "ClusterVersion", Name: "version", UID: cv.UID, Controller: new(true)}
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "of-the-platform", Labels: map[string]string{api.OwnedByLabel: "version"}, OwnerReferences: []metav1.OwnerReference{reference},
		}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-a-user"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "cluster-version-operator-of-a-user"}},
	} {
		require.NoError(t, c.Create(t.Context(), object, client.FieldOwner("somebody")))
	}
	return cfg, c, cv
}

// Exists reads an object and reports whether it exists.
func Exists(t testing.TB, c client.Client, object client.Object) bool {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(t, err)
	return true
}

// CollectGarbage plays the controllers that an API server alone lacks. One completes deletions with orphan propagation, the other empties
// namespaces. It ends with the test. orphaned ends it earlier and reports whether it has completed a deletion.
func CollectGarbage(t testing.TB, c client.Client) (orphaned func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	found := false
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			cv := &configv1.ClusterVersion{}
			if err := c.Get(ctx, client.ObjectKey{Name: "version"}, cv); err == nil && cv.DeletionTimestamp != nil && slices.Contains(cv.Finalizers, metav1.FinalizerOrphanDependents) {
				found = true
				cv.Finalizers = nil
				_ = c.Update(ctx, cv)
			}
			namespaces := &corev1.NamespaceList{}
			_ = c.List(ctx, namespaces)
			for i := range namespaces.Items {
				if namespace := &namespaces.Items[i]; namespace.DeletionTimestamp != nil {
					namespace.Spec.Finalizers = nil
					_ = c.SubResource("finalize").Update(ctx, namespace)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(StepTick):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func() bool { cancel(); <-ended; return found }
}

// Lease returns the operator's Lease with a holder.
func Lease(holder string, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: "version"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: new(metav1.NowMicro())},
	}
}

// The timeout of one step of an API server, and the polling interval.
const (
	StepTimeout = time.Minute
	StepTick    = 50 * time.Millisecond
)
