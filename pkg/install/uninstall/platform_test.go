package uninstall_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/install/uninstall"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/installed"
)

func TestUninstallDeletesThePlatform(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	claims := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "with-claims", Labels: map[string]string{api.OwnedByLabel: "version"}}}
	require.NoError(t, c.Create(t.Context(), claims))
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "with-claims", Name: "a"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	require.NoError(t, c.Create(t.Context(), claim))
	held := configMap("held")
	held.Labels, held.Finalizers = map[string]string{api.OwnedByLabel: "version"}, []string{"example.com/hold"}
	require.NoError(t, c.Create(t.Context(), held))
	user := configMap("of-a-user")
	require.True(t, installed.Exists(t, c, user))
	// of another controller: the release has only written the object
	ofOther := func(object client.Object) {
		object.SetLabels(map[string]string{api.OwnedByLabel: "version"})
		object.SetOwnerReferences([]metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: user.Name, UID: user.UID, Controller: new(true)},
			{APIVersion: configv1.GroupVersion.String(), Kind: "ClusterVersion", Name: cv.Name, UID: cv.UID},
		})
		require.Eventually(t, func() bool { // the API server needs a moment to serve a new kind
			return c.Create(t.Context(), object) == nil
		}, installed.StepTimeout, installed.StepTick)
	}
	controlled := configMap("controlled")
	ofOther(controlled)
	crd := widgets()
	crd.SetLabels(map[string]string{api.OwnedByLabel: "version"})
	require.NoError(t, c.Create(t.Context(), crd))
	foreign := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	foreign.SetNamespace("default")
	foreign.SetName("controlled")
	ofOther(foreign)
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "with-widgets", Labels: map[string]string{api.OwnedByLabel: "version"}}}))
	ofUser := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	ofUser.SetNamespace("with-widgets")
	ofUser.SetName("of-a-user")
	require.NoError(t, c.Create(t.Context(), ofUser))
	lost := configMap("lost-with-its-namespace")
	lost.Namespace = "of-the-platform"
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lost.Namespace, Labels: map[string]string{api.OwnedByLabel: "version"}}}))
	ofOther(lost)
	for _, namespace := range []string{"default", lost.Namespace} {
		object := configMap("applied")
		object.Namespace = namespace
		ofOther(object)
		fields := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": "b"}}}
		fields.SetNamespace(namespace)
		fields.SetName(object.Name)
		require.NoError(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(fields), client.FieldOwner(api.FieldManager)))
	}

	ctx, cancel := context.WithCancel(t.Context())
	var said string
	interrupted, err := uninstall.Run(ctx, clock.RealClock{}, cfg, uninstall.Removal{Platform: true}, func(target.Result) {}, func(text string) {
		if said = text; text == "waiting for the deletion of ConfigMap default/held (finalizers example.com/hold)" {
			cancel()
		}
	})
	require.ErrorContains(t, err, "these objects still exist: ConfigMap default/held (finalizers example.com/hold): repair the controllers of these finalizers and ", said)
	unfinished, ok := errors.AsType[*uninstall.UnfinishedError](err)
	require.True(t, ok)
	assert.Equal(t, "no operator runs in the cluster, but one outside it may resume; the ClusterVersion and a part of the platform are deleted; "+
		"not deleted yet: ConfigMap default/held, Namespace of-the-platform", unfinished.Left)
	require.True(t, installed.Exists(t, c, held))
	held.Finalizers = nil
	require.NoError(t, c.Update(t.Context(), held))

	results, err := run(t, cfg, uninstall.Removal{Platform: true})
	require.NoError(t, err)
	assert.False(t, installed.Exists(t, c, configMap("of-the-platform")))
	assert.True(t, installed.Exists(t, c, configMap("of-a-user")))
	assert.True(t, installed.Exists(t, c, controlled), "it belongs to its controller, and the release only wrote it")
	require.Len(t, controlled.OwnerReferences, 1)
	assert.Equal(t, user.UID, controlled.OwnerReferences[0].UID)
	assert.NotContains(t, controlled.Labels, api.OwnedByLabel)
	assert.Contains(t, interrupted, target.Result{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "controlled", Outcome: target.Kept, Message: "ConfigMap of-a-user is its controller",
	})
	applied := target.Result{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "applied", Outcome: target.Kept, Message: "ConfigMap of-a-user is its controller",
	}
	assert.Contains(t, interrupted, applied)
	assert.Contains(t, results, applied, "the first run has disowned it")
	applied.Namespace, applied.Outcome, applied.Message = lost.Namespace, target.Deleted, "ConfigMap of-a-user is its controller, but its namespace is deleted"
	assert.Contains(t, results, applied)
	assert.True(t, installed.Exists(t, c, foreign), "its CRD stays")
	assert.Contains(t, results, target.Result{
		APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: "widgets.example.com", Outcome: target.Kept,
		Message: "Widget with-widgets/of-a-user is not part of the release and would be deleted with the CRD; --delete-data deletes both",
	})
	assert.True(t, installed.Exists(t, c, ofUser))
	assert.Contains(t, results, target.Result{
		APIVersion: "v1", Kind: "Namespace", Name: "with-widgets", Outcome: target.Kept,
		Message: "Widget with-widgets/of-a-user is not part of the release and would be deleted with the namespace; --delete-data deletes both",
	})
	assert.True(t, installed.Exists(t, c, claim))
	assert.Contains(t, results, target.Result{
		APIVersion: "v1", Kind: "Namespace", Name: "with-claims", Outcome: target.Kept, Message: "it contains volume claims; --delete-data deletes them",
	})
	assert.False(t, slices.ContainsFunc(interrupted, func(r target.Result) bool { return r.Name == lost.Name }), "it is deleted with its namespace")
}

// TestInterruptedUninstallNamesTheContentOfNamespaces plays the namespace controller, with more namespaces than an error names.
func TestInterruptedUninstallNamesTheContentOfNamespaces(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	const held = "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
	for i := range 12 {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("shop-%02d", i), Finalizers: []string{"example.com/slow"}}}
		require.NoError(t, c.Create(t.Context(), ofPlatform(cv, namespace)))
		namespace.Status.Conditions = []corev1.NamespaceCondition{
			{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue, Message: held},
			{Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse, Message: "All resources successfully discovered"},
		}
		require.NoError(t, c.Status().Update(t.Context(), namespace))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*installed.StepTimeout)
	defer cancel()

	_, err := uninstall.Run(ctx, clock.RealClock{}, cfg, uninstall.Removal{Platform: true}, func(target.Result) {}, func(text string) {
		if strings.HasPrefix(text, "waiting for the deletion of Namespace shop-00") {
			cancel()
		}
	})

	require.ErrorContains(t, err, "these objects still exist: Namespace shop-00 (finalizers example.com/slow; "+held+"), Namespace shop-01 (")
	require.ErrorContains(t, err, "Namespace shop-04 (finalizers example.com/slow; "+held+") and 7 more: repair ")
	unfinished, ok := errors.AsType[*uninstall.UnfinishedError](err)
	require.True(t, ok)
	assert.Contains(t, unfinished.Left, "; not deleted yet: Namespace shop-00, Namespace shop-01, ")
	assert.Contains(t, unfinished.Left, ", Namespace shop-09 and 2 more")
}

func TestUninstallDeletesDataOnRequest(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	crd := widgets()
	require.NoError(t, c.Create(t.Context(), ofPlatform(cv, crd)))
	ofUser := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	ofUser.SetNamespace("default")
	ofUser.SetName("of-a-user")
	require.Eventually(t, func() bool { // the API server needs a moment to serve a new kind
		return c.Create(t.Context(), ofUser) == nil
	}, installed.StepTimeout, installed.StepTick)
	searched := before(cfg, func(r *http.Request) {
		if listed(r) == "widgets" {
			assert.NotEmpty(t, r.URL.Query().Get("labelSelector"), "the result would not matter")
		}
	})

	results, err := run(t, searched, uninstall.Removal{Platform: true, DeleteData: true})

	require.NoError(t, err)
	assert.False(t, installed.Exists(t, c, crd))
	assert.False(t, slices.ContainsFunc(results, func(r target.Result) bool { return r.Outcome == target.Kept }), results)
}

// TestUninstallKeepsData has data of the platform that other deletions would delete: a DataVolume whose CRD belongs to the platform, and claims
// that a StatefulSet does not retain.
func TestUninstallKeepsData(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	crd := crdOf("cdi.kubevirt.io", "DataVolume")
	require.NoError(t, c.Create(t.Context(), ofPlatform(cv, crd)))
	volume := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cdi.kubevirt.io/v1", "kind": "DataVolume"}}
	volume.SetNamespace("default")
	volume.SetName("of-the-platform")
	require.Eventually(t, func() bool { // the API server needs a moment to serve a new kind
		return c.Create(t.Context(), ofPlatform(cv, volume)) == nil
	}, installed.StepTimeout, installed.StepTick)
	set := func(name string, policy appsv1.PersistentVolumeClaimRetentionPolicyType) *appsv1.StatefulSet {
		like := deploymentOf("default", name)
		set := &appsv1.StatefulSet{ObjectMeta: like.ObjectMeta, Spec: appsv1.StatefulSetSpec{
			Selector: like.Spec.Selector, Template: like.Spec.Template,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: policy, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
		}}
		require.NoError(t, c.Create(t.Context(), ofPlatform(cv, set)))
		return set
	}
	retains := set("retains", appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	deletes := set("deletes", appsv1.DeletePersistentVolumeClaimRetentionPolicyType)

	results, err := run(t, cfg, uninstall.Removal{Platform: true})

	require.NoError(t, err)
	assert.True(t, installed.Exists(t, c, volume))
	assert.Contains(t, results, target.Result{
		APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: crd.GetName(), Outcome: target.Kept,
		Message: "DataVolume default/of-the-platform contains data and would be deleted with the CRD; --delete-data deletes both",
	})
	assert.False(t, installed.Exists(t, c, retains))
	assert.True(t, installed.Exists(t, c, deletes))
	assert.Contains(t, results, target.Result{
		APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: "default", Name: "deletes", Outcome: target.Kept,
		Message: "its volume claims would be deleted with it; --delete-data deletes both",
	})
}

// TestDryRunListsTheContentsOfNamespaces has namespaces with objects of a release, of users, of controllers and of the cluster itself.
func TestDryRunListsTheContentsOfNamespaces(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	const empty, shop = "empty", "shop"
	for _, name := range []string{empty, shop} {
		require.NoError(t, c.Create(t.Context(), ofPlatform(cv, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})))
	}
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	token := &corev1.Secret{ObjectMeta: named(empty, "default-token"), Type: corev1.SecretTypeOpaque}
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	user := &corev1.ConfigMap{ObjectMeta: named(shop, "a")}
	for _, object := range []client.Object{
		user,
		&corev1.ConfigMap{ObjectMeta: named(shop, "b")},
		&corev1.Secret{ObjectMeta: named(shop, "a")},
		&corev1.ConfigMap{ObjectMeta: named(api.OperatorNamespace, "of-a-user")},
		ofPlatform(cv, &corev1.ConfigMap{ObjectMeta: named(empty, "of-the-platform")}),
		token,
		&corev1.ConfigMap{ObjectMeta: named(empty, "kube-root-ca.crt")},
		&corev1.ServiceAccount{ObjectMeta: named(empty, "default")},
		&corev1.Event{ObjectMeta: named(empty, "a"), InvolvedObject: corev1.ObjectReference{Namespace: empty}},
		&coordinationv1.Lease{ObjectMeta: named(empty, "a")},
		&discoveryv1.EndpointSlice{ObjectMeta: named(empty, "a"), AddressType: discoveryv1.AddressTypeIPv4},
	} {
		require.NoError(t, c.Create(t.Context(), object, client.FieldOwner("somebody")), "%T", object)
	}
	dependent := &corev1.ConfigMap{ObjectMeta: named(shop, "dependent")}
	dependent.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: user.Name, UID: user.UID, Controller: new(true)}}
	require.NoError(t, c.Create(t.Context(), dependent))
	contents := func(removal uninstall.Removal) map[string]string {
		results, err := run(t, cfg, removal)
		require.NoError(t, err)
		found := map[string]string{}
		for _, r := range results {
			if r.Kind == "Namespace" && r.Outcome == target.Deleted {
				found[r.Name] = r.Message
			}
		}
		return found
	}

	// The client requests pages of limited size, and the server sends smaller ones.
	cfg = before(cfg, func(r *http.Request) {
		query := r.URL.Query()
		if list := listed(r); (list == "configmaps" || list == "secrets") && len(query["labelSelector"]) == 0 {
			assert.NotEmpty(t, query.Get("limit"), "%s", r.URL)
			query.Set("limit", "2")
			r.URL.RawQuery = query.Encode()
		}
	})
	const own = "objects in it that no release contains: ConfigMap 1"
	assert.Equal(t, map[string]string{api.OperatorNamespace: own}, contents(uninstall.Removal{DryRun: true}))
	assert.Equal(t, map[string]string{
		api.OperatorNamespace: own, empty: "", shop: "objects in it that no release contains: ConfigMap 2, Secret 1",
	}, contents(uninstall.Removal{DryRun: true, Platform: true}))
}

// TestUninstallDeletesInReverseOrder uses a platform with three runlevels and a custom resource with a pending finalizer.
func TestUninstallDeletesInReverseOrder(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	inv := inventory.Inventory{Release: "1.0.0"}
	brought := func(file string, document int, object client.Object) {
		t.Helper()
		object.SetLabels(map[string]string{api.OwnedByLabel: "version"})
		gvk, err := c.GroupVersionKindFor(object)
		require.NoError(t, err)
		require.Eventually(t, func() bool { // the API server needs a moment to serve a new kind
			return c.Create(t.Context(), object) == nil
		}, installed.StepTimeout, installed.StepTick, "%s %s", gvk.Kind, object.GetName())
		if file != "" {
			id := manifest.ID{Group: gvk.Group, Kind: gvk.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
			inv = inv.With(inventory.Record{ID: id, Version: gvk.Version, Release: "1.0.0", File: file, Document: document})
		}
	}
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	widget.SetNamespace("base")
	widget.SetName("held")
	widget.SetFinalizers([]string{"example.com/hold"})

	brought("0000_10_base_00-namespace.yaml", 1, &corev1.Namespace{ObjectMeta: named("", "base")})
	brought("0000_10_widgets_00.yaml", 1, widgets())
	brought("0000_10_widgets_10.yaml", 1, widget)
	brought("0000_10_base_05.yaml", 1, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named("", "hook")})
	brought("0000_10_base_10.yaml", 1, &corev1.ConfigMap{ObjectMeta: named("base", "first")})
	brought("0000_10_base_10.yaml", 2, &corev1.ConfigMap{ObjectMeta: named("base", "second")})
	brought("0000_20_dns_10-role.yaml", 1, &rbacv1.ClusterRole{ObjectMeta: named("", "dns")})
	brought("0000_20_dns_20-account.yaml", 1, &corev1.ServiceAccount{ObjectMeta: named("base", "dns")})
	brought("0000_20_dns_30-deployment.yaml", 1, deploymentOf("base", "dns"))
	brought("0000_20_dns_40-clusteroperator.yaml", 1, &configv1.ClusterOperator{ObjectMeta: named("", "dns")})
	brought("0000_30_late_20-namespace.yaml", 1, &corev1.Namespace{ObjectMeta: named("", "late")})
	brought("0000_30_late_10.yaml", 1, &corev1.ConfigMap{ObjectMeta: named("late", "before-its-namespace")})
	brought("", 0, deploymentOf("base", "unrecorded"))
	brought("", 0, &corev1.Secret{ObjectMeta: named("base", "unrecorded")})
	brought("", 0, &corev1.Namespace{ObjectMeta: named("", "unrecorded")})
	// Controllers copy a Service's labels to the objects that they create for it. These objects are deleted with the Service.
	service := &corev1.Service{ObjectMeta: named("base", "dns"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53}}}}
	brought("0000_20_dns_25-service.yaml", 1, service)
	brought("", 0, &corev1.Endpoints{ObjectMeta: named("base", "dns")}) //nolint:staticcheck // controllers still create Endpoints
	slice := &discoveryv1.EndpointSlice{ObjectMeta: named("base", "dns-x7z"), AddressType: discoveryv1.AddressTypeIPv4}
	slice.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "dns", UID: service.UID, Controller: new(true)}}
	brought("", 0, slice)
	role := manifest.ID{Group: rbacv1.GroupName, Kind: "ClusterRole", Name: "dns"}
	stray := inv.Records[role]
	stray.ID.Namespace = "base" // as recorded by earlier versions of the operator
	inv = inv.Forget(role).With(stray)
	clients, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	require.NoError(t, inventory.NewStore(clients.CoreV1(), api.OperatorNamespace, "version").Save(t.Context(), inv))

	released := sync.OnceFunc(func() {
		assert.Len(t, inv.Records, 13)
		for id := range inv.Records {
			live := &metav1.PartialObjectMetadata{}
			live.SetGroupVersionKind(schema.GroupVersionKind{Group: id.Group, Version: inv.Records[id].Version, Kind: id.Kind})
			if assert.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: id.Namespace, Name: id.Name}, live)) {
				assert.Equal(t, id.Kind == "Widget", live.DeletionTimestamp != nil, "%s is deleted in its turn", id)
			}
		}
		assert.NoError(t, c.Patch(t.Context(), widget, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*installed.StepTimeout)
	defer cancel()
	results, err := uninstall.Run(ctx, clock.RealClock{}, cfg, uninstall.Removal{Platform: true}, func(target.Result) {}, func(text string) {
		if text == "waiting for the deletion of Widget base/held (finalizers example.com/hold)" {
			released()
		}
	})
	require.NoError(t, err)
	var names []string
	for _, result := range results {
		names = append(names, result.String())
	}
	last := -1
	for _, want := range []string{
		"Widget base/held", "ValidatingWebhookConfiguration hook", "Deployment base/unrecorded", "Secret base/unrecorded",
		"ConfigMap late/before-its-namespace", "Namespace late",
		"Deployment base/dns", "Service base/dns", "ServiceAccount base/dns", "ClusterRole dns", "ClusterOperator dns",
		"ConfigMap base/second", "ConfigMap base/first", "Namespace base", "Namespace unrecorded",
		"CustomResourceDefinition clusterversions.config.openshift.io",
	} {
		at := slices.Index(names, want)
		assert.Greater(t, at, last, "%s is deleted in its turn: %q", want, names)
		last = at
	}
	assert.False(t, slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "Endpoint") }), "%q", names)
	crd := slices.Index(names, "CustomResourceDefinition widgets.example.com")
	assert.Greater(t, crd, slices.Index(names, "ClusterOperator dns"), "a CRD of an early runlevel is deleted late")
	assert.Less(t, crd, slices.Index(names, "Namespace unrecorded"))
}

// widgets returns the CRD of a kind that the platform defines.
func widgets() *unstructured.Unstructured { return crdOf("example.com", "Widget") }

// crdOf returns the CRD of a namespaced kind with version v1.
func crdOf(group, kind string) *unstructured.Unstructured {
	singular := strings.ToLower(kind)
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": singular + "s", "singular": singular, "kind": kind, "listKind": kind + "List"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	crd.SetName(singular + "s." + group)
	return crd
}

func deploymentOf(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "registry.example/a"}}},
			},
		},
	}
}
