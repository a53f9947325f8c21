package orphans_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/orphans"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is the control plane of all tests in this package. Each test has its own namespace and owner.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// setting is a namespace with objects of an owner of the same name, and the owner's inventory.
type setting struct {
	*testing.T
	name    string
	config  *rest.Config
	clients *kubernetes.Clientset
	store   *inventory.Store
	inv     inventory.Inventory
}

func newSetting(t *testing.T, name string) *setting {
	t.Helper()
	config := controlPlane.For(t).Config("orphans")
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return &setting{T: t, name: name, config: config, clients: clients, store: inventory.NewStore(clients.CoreV1(), name, name)}
}

// configMap applies a ConfigMap like the operator.
func (s *setting) configMap(name string, finalizers ...string) manifest.ID {
	s.Helper()
	s.apply(name, api.FieldManager, s.name, finalizers)
	return manifest.ID{Kind: "ConfigMap", Namespace: s.name, Name: name}
}

// apply applies a ConfigMap with an owner's label.
func (s *setting) apply(name, manager, owner string, finalizers []string) {
	s.Helper()
	dyn, err := dynamic.NewForConfig(s.config)
	require.NoError(s, err)
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": "b"}}}
	object.SetName(name)
	object.SetLabels(map[string]string{api.OwnedByLabel: owner})
	if len(finalizers) > 0 {
		object.SetFinalizers(finalizers)
	}
	_, err = dyn.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(s.name).
		Apply(s.Context(), name, object, metav1.ApplyOptions{FieldManager: manager})
	require.NoError(s, err)
}

// record records objects as applied by release 1.0.0.
func (s *setting) record(ids ...manifest.ID) {
	for _, id := range ids {
		s.inv = s.inv.With(inventory.Record{ID: id, Version: "v1", Release: "1.0.0", Reached: true})
	}
}

// drop saves the inventory of release 1.1.0, which contains only the given objects.
func (s *setting) drop(named ...manifest.ID) {
	s.Helper()
	manifests := map[manifest.ID]*manifest.Manifest{}
	for _, id := range named {
		manifests[id] = &manifest.Manifest{Object: &unstructured.Unstructured{}}
	}
	s.inv = inventory.Plan(s.inv, manifests, nil, "1.1.0")
	require.NoError(s, s.store.Save(s.Context(), s.inv))
}

func (s *setting) find(config *rest.Config) orphans.List {
	s.Helper()
	list, err := orphans.Find(s.Context(), config, s.name, s.name, inventory.Pruning{})
	require.NoError(s, err)
	return list
}

// notes returns the note of each orphan by name.
func notes(list orphans.List) map[string]string {
	notes := map[string]string{}
	for _, o := range list.Orphans {
		notes[o.Name] = o.Note
	}
	return notes
}

func TestFindWarnsWithoutAnInventory(t *testing.T) {
	s := newSetting(t, "nothing")
	assert.Equal(t, orphans.List{
		Owner: "nothing", Orphans: []orphans.Orphan{},
		Warnings: []string{`no inventory of "nothing" in namespace nothing`},
	}, s.find(s.config))
}

func TestFindListsDroppedObjects(t *testing.T) {
	s := newSetting(t, "dropped")
	living, old, deleting, stripped := s.configMap("living"), s.configMap("old"), s.configMap("deleting", "example.com/x"), s.configMap("stripped")
	configMaps := s.clients.CoreV1().ConfigMaps(s.name)
	require.NoError(t, configMaps.Delete(t.Context(), "deleting", metav1.DeleteOptions{}))
	t.Cleanup(func() {
		_, _ = configMaps.Patch(context.WithoutCancel(t.Context()), "deleting", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	_, err := configMaps.Patch(t.Context(), "stripped", "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"`+api.OwnedByLabel+`":null}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	controlled := s.configMap("controlled")
	_, err = configMaps.Patch(t.Context(), "controlled", "application/merge-patch+json",
		[]byte(`{"metadata":{"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Shop","name":"shop","uid":"u","controller":true}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	replaced, disowned, once := s.configMap("replaced"), s.configMap("disowned"), s.configMap("once")
	_, err = configMaps.Patch(t.Context(), "disowned", "application/merge-patch+json", []byte(`{"metadata":{"managedFields":[{}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	s.inv = s.inv.With(
		inventory.Record{ID: replaced, UID: "former", Version: "v1", Release: "1.0.0", Reached: true},
		inventory.Record{ID: once, Version: "v1", Release: "1.0.0", CreateOnly: true},
	)
	gone := manifest.ID{Kind: "Service", Namespace: s.name, Name: "gone"}
	unserved := manifest.ID{Group: "example.com", Kind: "Widget", Name: "unserved"}
	namespace := manifest.ID{Kind: "Namespace", Name: "default"}
	s.record(living, old, deleting, stripped, controlled, disowned, gone, unserved, namespace)
	s.drop(living)

	list := s.find(s.config)
	assert.Equal(t, "1.1.0", list.Release)
	assert.Empty(t, list.Warnings)
	assert.Equal(t, map[string]string{
		"old": "", "deleting": "being deleted", "stripped": "it does not have the version operator's label", "controlled": "Shop shop is its controller", "gone": "gone", "unserved": "gone", "default": "it does not have the version operator's label",
		"replaced": "it is a newer object with the same name", "disowned": "it has no fields of the version operator",
		"once": "it is create-only, so it belongs to other clients",
	}, notes(list))
	exists := map[string]bool{}
	for _, o := range list.Orphans {
		assert.Equal(t, "1.0.0", o.LastRelease, o.Name)
		assert.Equal(t, "1.1.0", o.DroppedBy, o.Name)
		require.NotNil(t, o.Exists, o.Name)
		exists[o.Name] = *o.Exists
		assert.Equal(t, o.Name == "default", o.Protected != "", o.Name)
	}
	assert.Equal(t, map[string]bool{"old": true, "deleting": true, "stripped": true, "controlled": true, "default": true, "replaced": true, "disowned": true, "once": true, "gone": false, "unserved": false}, exists)
	assert.Equal(t, []string{"controlled", "deleting", "disowned", "old", "once", "replaced", "stripped", "default", "gone", "unserved"}, names(list), "sorted by group, kind, namespace and name")
}

func names(list orphans.List) []string {
	var names []string
	for _, o := range list.Orphans {
		names = append(names, o.Name)
	}
	return names
}

func TestFindListsUnrecordedObjects(t *testing.T) {
	s := newSetting(t, "unrecorded")
	living := s.configMap("living")
	s.configMap("forgotten")
	s.apply("of-another-owner", api.FieldManager, "another", nil)
	s.apply("labeled-by-another", "kubectl", s.name, nil)
	s.record(living)
	s.drop(living)
	list := s.find(s.config)
	assert.Equal(t, map[string]string{"forgotten": "not recorded"}, notes(list))
	assert.Equal(t, new(true), list.Orphans[0].Exists)
	assert.Empty(t, list.Orphans[0].LastRelease)

	t.Run("the operator records the object in the meantime", func(t *testing.T) {
		config, loads := rest.CopyConfig(s.config), 0
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/api/v1/namespaces/unrecorded/configmaps" {
					if loads++; loads == 2 {
						s.record(manifest.ID{Kind: "ConfigMap", Namespace: s.name, Name: "forgotten"})
						s.drop(living)
					}
				}
				return next.RoundTrip(req)
			})
		})
		assert.Empty(t, s.find(config).Orphans)
	})
}

func TestFindSendsFewRequests(t *testing.T) {
	s := newSetting(t, "requests")
	living, there, stripped := s.configMap("living"), s.configMap("there"), manifest.ID{Kind: "Secret", Namespace: s.name, Name: "none"}
	s.record(living, there, stripped)
	s.drop(living)
	config := rest.CopyConfig(s.config)
	requests := map[string]int{}
	var mu sync.Mutex
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			requests[req.Method+" "+req.URL.Path]++
			mu.Unlock()
			return next.RoundTrip(req)
		})
	})
	s.find(config)
	assert.Equal(t, map[string]int{
		"GET /api": 1, "GET /apis": 1,
		"GET /api/v1/namespaces/requests/configmaps":   1, // the inventory
		"GET /api/v1/configmaps":                       1,
		"GET /api/v1/secrets":                          1,
		"GET /api/v1/namespaces/requests/secrets/none": 1,
	}, requests)
}

func TestFindWarnsOfMissingPermissions(t *testing.T) {
	s := newSetting(t, "permissions")
	old := s.configMap("old")
	unserved := manifest.ID{Group: "example.com", Kind: "Widget", Name: "unserved"}
	s.record(old, unserved)
	s.drop()
	user, err := controlPlane.User("orphans-reader")
	require.NoError(t, err)
	_, err = orphans.Find(t.Context(), user, s.name, s.name, inventory.Pruning{})
	require.ErrorContains(t, err, `reading the inventory: configmaps is forbidden: User "orphans-reader"`)

	_, err = s.clients.RbacV1().Roles(s.name).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = s.clients.RbacV1().RoleBindings(s.name).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "User", Name: "orphans-reader", APIGroup: rbacv1.GroupName}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var list orphans.List
	require.Eventually(t, func() bool { // the authorizer needs a moment to receive the binding
		list, err = orphans.Find(t.Context(), user, s.name, s.name, inventory.Pruning{})
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	require.Len(t, list.Orphans, 2)
	assert.Nil(t, list.Orphans[0].Exists)
	assert.Contains(t, list.Orphans[0].Note, "cannot be read: ")
	assert.Equal(t, new(false), list.Orphans[1].Exists, "its kind is not served")
	require.Len(t, list.Warnings, 1)
	assert.Contains(t, list.Warnings[0], "cannot list objects of kind ConfigMap: configmaps is forbidden")
}

func TestFindToleratesAMissingExtensionAPIServer(t *testing.T) {
	s := newSetting(t, "extension")
	dyn, err := dynamic.NewForConfig(s.config)
	require.NoError(t, err)
	resource := dyn.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	_, err = resource.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.down.example.com"},
		"spec": map[string]any{
			"group": "down.example.com", "version": "v1", "groupPriorityMinimum": int64(1), "versionPriority": int64(1),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": s.name, "name": "nothing"},
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = resource.Delete(context.WithoutCancel(t.Context()), "v1.down.example.com", metav1.DeleteOptions{})
	})
	old := s.configMap("old")
	s.record(old, manifest.ID{Group: "down.example.com", Kind: "Thing", Namespace: s.name, Name: "unknown"})
	s.drop()
	var list orphans.List
	require.Eventually(t, func() bool {
		list = s.find(s.config)
		return len(list.Warnings) > 0
	}, time.Minute, 20*time.Millisecond)
	assert.Contains(t, list.Warnings[0], "cannot read the kinds of down.example.com/v1: ")
	require.Equal(t, []string{"old", "unknown"}, names(list))
	assert.Equal(t, new(true), list.Orphans[0].Exists)
	assert.Nil(t, list.Orphans[1].Exists, "the object may exist")
	assert.Contains(t, list.Orphans[1].Note, "cannot be read: ")
}

func TestFindSearchesAllKindsIfTheInventoryIsDamaged(t *testing.T) {
	s := newSetting(t, "damaged")
	living := s.configMap("living")
	s.record(living)
	s.drop(living)
	_, err := s.clients.CoreV1().ConfigMaps(s.name).Patch(t.Context(), "damaged-inventory-0", "application/merge-patch+json", []byte(`{"binaryData":null}`), metav1.PatchOptions{})
	require.NoError(t, err)
	list := s.find(s.config)
	assert.Contains(t, list.Warnings, "cannot read parts of the inventory: ConfigMap damaged-inventory-0: key records.jsonl.gz is missing")
	assert.Equal(t, "not recorded", notes(list)["living"], "all served kinds are searched")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestFindIgnoresStrayNamespaces covers records of earlier versions of the operator, which contain the namespaces of cluster-scoped manifests.
func TestFindIgnoresStrayNamespaces(t *testing.T) {
	s := newSetting(t, "stray")
	dyn, err := dynamic.NewForConfig(s.config)
	require.NoError(t, err)
	var ids []manifest.ID
	for _, name := range []string{"stray-kept", "stray-left"} {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []any{}}}
		object.SetName(name)
		object.SetLabels(map[string]string{api.OwnedByLabel: s.name})
		_, err = dyn.Resource(rbacv1.SchemeGroupVersion.WithResource("clusterroles")).Apply(t.Context(), name, object, metav1.ApplyOptions{FieldManager: api.FieldManager})
		require.NoError(t, err)
		ids = append(ids, manifest.ID{Group: rbacv1.GroupName, Kind: "ClusterRole", Namespace: "elsewhere", Name: name})
	}
	s.record(ids...)
	s.drop(ids[0])
	left := ids[1]
	left.Namespace = ""
	assert.Equal(t, []orphans.Orphan{{ID: left, LastRelease: "1.0.0", DroppedBy: "1.1.0", Exists: new(true)}}, s.find(s.config).Orphans)
}
