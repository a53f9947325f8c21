package apply_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/engine/permission"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// connectLimited is connect for an account that has the permissions of the operator's own role and those of a release with these manifests.
func connectLimited(t *testing.T, name string, list ...*manifest.Manifest) (*apply.Applier, *recorder) {
	t.Helper()
	e := controlPlane.For(t)
	admin, err := kubernetes.NewForConfig(e.Config("admin"))
	require.NoError(t, err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: permission.Union(operatorRules(t), permission.Rules(list))}
	_, err = admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config, err := e.User(name)
	require.NoError(t, err)
	record := &recorder{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { record.next = next; return record })
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	connection, err := request.Connect(config, httpClient)
	require.NoError(t, err)
	return apply.New(connection, kinds.NewMapper(clock.RealClock{}, discoverer(t), nil), owner), record
}

// operatorRules returns the rules of the operator's own ClusterRole.
func operatorRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	objects, err := permission.OperatorRoles(manifests.FS(), permission.Account{Namespace: api.OperatorNamespace, Name: api.OperatorServiceAccount})
	require.NoError(t, err)
	for _, object := range objects {
		role := &rbacv1.ClusterRole{}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.(map[string]any), role))
		if role.Kind == "ClusterRole" {
			return role.Rules
		}
	}
	require.FailNow(t, "the operator has no ClusterRole")
	return nil
}

// The operator may get only the CustomResourceDefinitions of its release. Another one serves the kind of this object.
func TestObjectsOfAForeignDefinitionAreMoved(t *testing.T) {
	widget := graduated(t, "foreign.example.com")
	first, next := widget("v1beta1", "w", "{port: 80}"), widget("v1", "w", "{port: 81}")
	a, record := connectLimited(t, "limited-foreign", first, next)
	must(t, a, first)
	record.drain()
	must(t, a, next)
	assert.Equal(t, []string{"PATCH apply-patch", "GET", "GET", "PATCH json-patch+json", "PATCH apply-patch"}, methods(record.drain()))
	assert.Equal(t, map[string]any{"port": int64(81), "accessPolicy": "deny"}, live(t, next).Object["spec"])
}

// TestRejectedChangesAreExplainedWithoutCreatePermission uses the permissions of a release, which allow creating its objects only by name.
// No request then shows whether an object could be recreated, but the rest of the decision stays the same.
func TestRejectedChangesAreExplainedWithoutCreatePermission(t *testing.T) {
	ns := namespace(t)
	t.Run("a union member is replaced", func(t *testing.T) {
		t.Parallel()
		c := change{apiVersion: "apps/v1", kind: "Deployment", text: "spec: {selector: {matchLabels: {app: a}}, " + podTemplate + "}", old: "spec: {", next: "spec: {strategy: {type: Recreate}, "}
		first, next := c.manifests(t, ns, "limited-union", "note: x")
		a, _ := connectLimited(t, "limited-union", first, next)
		uid := must(t, a, first).UID
		require.Equal(t, apply.Applied, must(t, a, next).Action)
		obj := live(t, next)
		assert.Equal(t, uid, obj.GetUID())
		assert.Nil(t, at(obj.Object, "spec.strategy.rollingUpdate"))
	})
	t.Run("an immutable field is reported with the remedy", func(t *testing.T) {
		t.Parallel()
		c := change{apiVersion: "apps/v1", kind: "Deployment", text: "spec: {selector: {matchLabels: {app: a}}, " + podTemplate + "}", old: "matchLabels: {app: a}", next: "matchLabels: {b: b}"}
		first, next := c.manifests(t, ns, "limited-fixed", "note: x")
		a, _ := connectLimited(t, "limited-fixed", first, next)
		uid := must(t, a, first).UID
		_, err := a.Apply(t.Context(), next, release.Updating)
		require.ErrorContains(t, err, "spec.selector")
		require.ErrorContains(t, err, "unless the manifest is invalid")
		require.ErrorContains(t, err, "annotate the manifest with release.openshift.io/on-immutable: recreate")
		assert.Equal(t, uid, live(t, first).GetUID())
	})
	t.Run("an object is recreated if its manifest allows it", func(t *testing.T) {
		t.Parallel()
		c := change{apiVersion: "v1", kind: "Service", text: "spec: {ports: [{port: 80}]}", old: "spec: {", next: "spec: {clusterIP: None, "}
		first, next := c.manifests(t, ns, "limited-anew", recreateAnnotation)
		a, _ := connectLimited(t, "limited-anew", first, next)
		uid := must(t, a, first).UID
		assert.Equal(t, apply.Recreated, must(t, a, next).Action)
		assert.NotEqual(t, uid, live(t, next).GetUID())
	})
}
