package ownership_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is shared by all tests of the package. Each test uses its own names.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// entry returns an entry of managedFields.
func entry(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, APIVersion: "apps/v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields),
	}
}

// ours returns an entry of our own applies.
func ours(fields string) metav1.ManagedFieldsEntry {
	return entry(api.FieldManager, metav1.ManagedFieldsOperationApply, fields)
}

// theirs returns an entry of an edit by another client.
func theirs(fields string) metav1.ManagedFieldsEntry {
	return entry("kubectl-edit", metav1.ManagedFieldsOperationUpdate, fields)
}

// writer writes objects under the name of a field manager.
type writer struct {
	dynamic.Interface
	manager string
}

func as(t *testing.T, manager string) writer {
	t.Helper()
	client, err := dynamic.NewForConfig(controlPlane.For(t).Config("tests"))
	require.NoError(t, err)
	return writer{client, manager}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &obj.Object))
	obj.SetNamespace("default")
	return obj
}

// resource guesses the resource of an object. The guess is right for the kinds in these tests.
func resource(obj *unstructured.Unstructured) schema.GroupVersionResource {
	gvk := obj.GroupVersionKind()
	return gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
}

func (w writer) on(obj *unstructured.Unstructured) dynamic.ResourceInterface {
	return w.Resource(resource(obj)).Namespace(obj.GetNamespace())
}

// apply applies an object with force.
func (w writer) apply(t *testing.T, obj *unstructured.Unstructured, subresource ...string) *unstructured.Unstructured {
	t.Helper()
	result, err := w.on(obj).Apply(t.Context(), obj.GetName(), obj, metav1.ApplyOptions{FieldManager: w.manager, Force: true}, subresource...)
	require.NoError(t, err)
	return result
}

// patch changes an object by a strategic merge patch, as kubectl edit does for built-in kinds.
func (w writer) patch(t *testing.T, obj *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(patch))
	require.NoError(t, err)
	result, err := w.on(obj).Patch(t.Context(), obj.GetName(), "application/strategic-merge-patch+json", data, metav1.PatchOptions{FieldManager: w.manager})
	require.NoError(t, err)
	return result
}
