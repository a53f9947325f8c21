package apply_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// original creates the object of a manifest as OpenShift's operator does.
func original(t *testing.T, m *manifest.Manifest) {
	t.Helper()
	require.NoError(t, otherClient(t).Create(t.Context(), m.Object.DeepCopy(), client.FieldOwner(api.FieldManager)))
}

// as patches the object of a manifest under the name of a field manager.
func as(t *testing.T, manager string, m *manifest.Manifest, kind types.PatchType, patch string) {
	t.Helper()
	require.NoError(t, otherClient(t).Patch(t.Context(), live(t, m), client.RawPatch(kind, []byte(patch)), client.FieldOwner(manager)))
}

func methods(requests []*exchange) (list []string) {
	for _, r := range requests {
		kind := ""
		if r.method == http.MethodPatch {
			kind = " " + strings.TrimPrefix(strings.TrimSuffix(r.contentType, "+yaml"), "application/")
		}
		list = append(list, r.method+kind)
	}
	return list
}

var adoption = []string{"PATCH apply-patch", "PATCH json-patch+json", "PATCH apply-patch"}

func former(obj *unstructured.Unstructured) (names []string) {
	for _, e := range obj.GetManagedFields() {
		if ownership.IsFormerManager(&e) {
			names = append(names, e.Manager)
		}
	}
	return names
}

func TestAdoptionRemovesFieldsThatTheManifestDropped(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	old := parse(t, `
apiVersion: v1
kind: ConfigMap
metadata:
  namespace: `+ns+`
  name: a
  labels: {both: x, old: x}
  annotations: {both: x, old: x}
data: {both: x, old: x, removed: x, edited: x}
binaryData: {oldBinary: eA==}
`)
	original(t, old)
	as(t, "kubectl-edit", old, types.MergePatchType, `{"metadata":{"labels":{"theirs":"y"},"annotations":{"theirs":"y"}},
		"data":{"theirs":"y","edited":"y","removed":null}}`)
	as(t, "service-ca", old, types.MergePatchType, `{"data":{"service-ca.crt":"cert"}}`)
	m := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: "+ns+", name: a, labels: {both: x}, annotations: {both: x}}\ndata: {both: x}")

	change := must(t, a, m)
	assert.Equal(t, adoption, methods(record.drain()))
	obj := live(t, m)
	assert.Equal(t, apply.Applied, change.Action)
	assert.Equal(t, obj.GetResourceVersion(), change.ResourceVersion)
	assert.Equal(t, ownership.Ours(obj.GetManagedFields()), change.Fields)
	assert.Equal(t, map[string]string{"both": "x", "theirs": "y", api.OwnedByLabel: owner.Name}, obj.GetLabels())
	assert.Equal(t, map[string]string{"both": "x", "theirs": "y"}, obj.GetAnnotations())
	assert.Equal(t, map[string]any{"both": "x", "theirs": "y", "edited": "y", "service-ca.crt": "cert"}, obj.Object["data"],
		"other clients own what they write later, and removed fields stay removed")
	assert.NotContains(t, obj.Object, "binaryData")
	assert.Empty(t, former(obj))

	again := must(t, a, m)
	assert.Equal(t, change.ResourceVersion, again.ResourceVersion)
	assert.Len(t, record.drain(), 1, "adoption must happen only once")
}

// A denied adoption must not block the update.
func TestFieldsStayIfTheirAdoptionIsDenied(t *testing.T) {
	for _, reason := range []string{"Invalid", "Forbidden"} {
		t.Run(reason, func(t *testing.T) {
			ns := namespace(t)
			a, _ := connect(t, owner)
			old := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: "+ns+", name: a}\ndata: {both: x, old: x}")
			original(t, old)
			deny(t, old, "{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [UPDATE]}",
				"object.metadata.managedFields.exists(e, e.operation == 'Update')", reason)

			m := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: "+ns+", name: a}\ndata: {both: z}")
			change := must(t, a, m)
			assert.Equal(t, apply.Applied, change.Action)
			assert.Contains(t, change.Message, "cannot take over fields of an earlier operator: ")
			assert.Contains(t, change.Message, "owners stay")
			assert.Equal(t, map[string]any{"both": "z", "old": "x"}, live(t, m).Object["data"])
		})
	}
}

func TestAdoptionRemovesDroppedListEntries(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	old := deployment(t, ns, "a", 3, "        env: [{name: KEPT, value: '1'}, {name: OLD, value: '1'}]", "      - {name: side, image: example.com/side}",
		"      tolerations: [{key: old, operator: Exists}]", "      volumes: [{name: old, emptyDir: {}}]")
	old.Object.SetLabels(map[string]string{"old": "x"})
	original(t, old)
	as(t, "mesh", old, types.StrategicMergePatchType,
		`{"spec":{"template":{"spec":{"containers":[{"name":"injected","image":"example.com/i"},{"name":"main","env":[{"name":"THEIRS","value":"1"}]}]}}}}`)
	scale := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(5)}}}
	require.NoError(t, otherClient(t).SubResource("scale").Update(t.Context(), live(t, old), client.WithSubResourceBody(scale),
		client.FieldOwner("hpa")))

	m := deployment(t, ns, "a", 0, "        env: [{name: KEPT, value: '1'}]")
	unstructured.RemoveNestedField(m.Object.Object, "spec", "replicas")
	must(t, a, m)
	assert.Equal(t, adoption, methods(record.drain()))
	obj := live(t, m)
	pod, _, _ := unstructured.NestedMap(obj.Object, "spec", "template", "spec")
	replicas, _, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas")
	assert.EqualValues(t, 5, replicas, "the autoscaler's replicas are kept")
	assert.Equal(t, []string{"injected", "main"}, names(pod["containers"]))
	for _, c := range pod["containers"].([]any) {
		if c := c.(map[string]any); c["name"] == "main" {
			assert.Equal(t, []string{"KEPT", "THEIRS"}, names(c["env"]))
		}
	}
	assert.Empty(t, pod["tolerations"])
	assert.Empty(t, pod["volumes"])
	assert.NotContains(t, obj.GetLabels(), "old")
	must(t, a, m)
	assert.Len(t, record.drain(), 1)
}

func names(list any) (names []string) {
	entries, _ := list.([]any)
	for _, e := range entries {
		name, _ := e.(map[string]any)["name"].(string)
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestAdoptionWaitsForAFieldToRemove keeps the entry of the former manager while the manifest has all of its fields. So most objects never
// need more than one request.
func TestAdoptionWaitsForAFieldToRemove(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	first := configMap(t, ns, "a", "{note: x}", "{a: x, b: x}")
	original(t, first)
	must(t, a, first)
	assert.Len(t, record.drain(), 1)
	assert.Equal(t, []string{api.FieldManager}, former(live(t, first)))

	second := configMap(t, ns, "a", "{note: x}", "{a: x}")
	must(t, a, second)
	assert.Equal(t, adoption, methods(record.drain()))
	assert.Equal(t, map[string]any{"a": "x"}, live(t, second).Object["data"])
}

func TestAdoptionRemovesBootstrappedFields(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	old := configMap(t, ns, "a", "{}", "{a: x, bootstrapped: x}")
	require.NoError(t, otherClient(t).Create(t.Context(), old.Object.DeepCopy(), client.FieldOwner("cluster-bootstrap")))
	as(t, api.FieldManager, old, types.MergePatchType, `{"data":{"updated":"x"}}`)
	m := configMap(t, ns, "a", "{}", "{a: x}")
	must(t, a, m)
	assert.Equal(t, map[string]any{"a": "x"}, live(t, m).Object["data"])
	assert.Empty(t, former(live(t, m)))
}

// TestStrippedManagedFieldsAreNotAdopted applies an object without managedFields. The server assigns all of its fields to an invented
// manager, regardless of their writers.
func TestStrippedManagedFieldsAreNotAdopted(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	old := configMap(t, ns, "a", "{}", "{a: x, whose: x}")
	original(t, old)
	as(t, "strip", old, types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
	require.Empty(t, live(t, old).GetManagedFields())
	m := configMap(t, ns, "a", "{}", "{a: z}")
	must(t, a, m)
	assert.Equal(t, map[string]any{"a": "z", "whose": "x"}, live(t, m).Object["data"])
	var managers []string
	for _, e := range live(t, m).GetManagedFields() {
		managers = append(managers, e.Manager)
	}
	assert.Contains(t, managers, "before-first-apply")
	must(t, a, m)
	assert.Len(t, record.drain(), 2)
}

func TestAdoptionSurvivesAnotherWriter(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	old := configMap(t, ns, "a", "{}", "{a: x, old: x}")
	original(t, old)
	edits := 0
	record.before = func(r *http.Request) {
		if r.Header.Get("Content-Type") == string(types.JSONPatchType) && edits < 2 {
			edits++
			as(t, "busy", old, types.MergePatchType, `{"data":{"busy":"`+strings.Repeat("x", edits)+`"}}`)
		}
	}
	m := configMap(t, ns, "a", "{}", "{a: x}")
	must(t, a, m)
	assert.Equal(t, 2, edits)
	assert.Equal(t, map[string]any{"a": "x", "busy": "xx"}, live(t, m).Object["data"])
	assert.Len(t, record.drain(), 7)
}

func TestAdoptionGivesUpOnAPersistentWriter(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	old := configMap(t, ns, "a", "{}", "{a: x, old: x}")
	original(t, old)
	edits := 0
	record.before = func(r *http.Request) {
		if r.Header.Get("Content-Type") == string(types.JSONPatchType) {
			edits++
			as(t, "busy", old, types.MergePatchType, `{"data":{"busy":"`+strings.Repeat("x", edits)+`"}}`)
		}
	}
	_, err := a.Apply(t.Context(), configMap(t, ns, "a", "{}", "{a: x}"), release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceConflict, failed.Reason)
	require.ErrorContains(t, err, "taking over fields of an earlier operator")
}

// TestAdoptionNamesAnOperatorThatStillRuns makes an operator with our name update the object between our requests, with fields that the
// manifest does not have.
func TestAdoptionNamesAnOperatorThatStillRuns(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	m := configMap(t, ns, "a", "{}", "{b: x}")
	original(t, configMap(t, ns, "a", "{}", "{a: x, b: x}"))
	n := 0
	record.before = func(r *http.Request) {
		if r.Header.Get("Content-Type") == string(types.ApplyPatchType) {
			n++
			as(t, api.FieldManager, m, types.MergePatchType, fmt.Sprintf(`{"data":{"a%d":"y"}}`, n))
		}
	}
	_, err := a.Apply(t.Context(), m, release.Reconciling)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceConflict, failed.Reason)
	assert.NotContains(t, err.Error(), "%!")
	assert.Contains(t, err.Error(), "keeps writing them")
}

func TestInterruptedAdoptionIsCompleted(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	original(t, configMap(t, ns, "a", "{}", "{a: x, old: x}"))
	m := configMap(t, ns, "a", "{}", "{a: x}")
	ctx, cancel := withCancel(t)
	patched := false
	record.before = func(r *http.Request) {
		if patched {
			cancel()
		}
		patched = patched || r.Header.Get("Content-Type") == string(types.JSONPatchType)
	}
	_, err := a.Apply(ctx, m, release.Updating)
	require.Error(t, err)
	require.Contains(t, live(t, m).Object["data"], "old")
	record.before = nil
	record.drain()
	must(t, a, m)
	assert.Len(t, record.drain(), 1)
	assert.Equal(t, map[string]any{"a": "x"}, live(t, m).Object["data"])
}

// TestAdoptionKeepsTheSpecOfAClaim checks that a claim's spec is not adopted, because defaults that OpenShift's operator wrote there could never be
// removed.
func TestAdoptionKeepsTheSpecOfAClaim(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	text := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {namespace: " + ns + ", name: a, labels: {old: x}}\n" + pvcSpec
	original(t, parse(t, text))
	m := parse(t, strings.NewReplacer(", labels: {old: x}", "", ", storageClassName: a", "").Replace(text))
	must(t, a, m)
	assert.Len(t, record.drain(), 3)
	class, _, _ := unstructured.NestedString(live(t, m).Object, "spec", "storageClassName")
	assert.Equal(t, "a", class)
	assert.NotContains(t, live(t, m).GetLabels(), "old")
	must(t, a, m)
	assert.Len(t, record.drain(), 1)
}

// TestAdoptionReleasesImmutableFields drops a field that the server refuses to remove.
func TestAdoptionReleasesImmutableFields(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	original(t, parse(t, "apiVersion: v1\nkind: Secret\nmetadata: {namespace: "+ns+", name: a}\nimmutable: true\ndata: {a: eA==}"))
	m := parse(t, "apiVersion: v1\nkind: Secret\nmetadata: {namespace: "+ns+", name: a}\ndata: {a: eA==}")
	change := must(t, a, m)
	assert.Len(t, record.drain(), 4)
	assert.Contains(t, change.Message, "fields set by an earlier operator or release cannot be removed: immutable: field is immutable")
	obj := live(t, m)
	assert.Equal(t, obj.GetResourceVersion(), change.ResourceVersion)
	assert.Equal(t, ownership.Ours(obj.GetManagedFields()), change.Fields)
	assert.Empty(t, former(obj))
	again := must(t, a, m)
	assert.Equal(t, change.ResourceVersion, again.ResourceVersion)
	assert.Len(t, record.drain(), 1)
}

// TestStatusIsNotAdopted applies a ClusterOperator whose status OpenShift's operator wrote when it created the object.
func TestStatusIsNotAdopted(t *testing.T) {
	serveClusterOperators(t)
	a, record := connect(t, owner)
	m := clusterOperator(t, "adopted")
	old := m.Object.DeepCopy()
	old.Object["spec"] = map[string]any{}
	old.Object["status"] = map[string]any{"relatedObjects": completeRelated}
	old.SetLabels(map[string]string{"old": "x"})
	require.NoError(t, otherClient(t).Create(t.Context(), old.DeepCopy(), client.FieldOwner(api.FieldManager)))
	status := live(t, m)
	status.Object["status"] = map[string]any{"versions": []any{map[string]any{"name": "operator", "version": "1"}}}
	require.NoError(t, otherClient(t).Status().Update(t.Context(), status, client.FieldOwner(api.FieldManager)))
	must(t, a, m)
	assert.Len(t, record.drain(), 3, "status was written")
	assert.NotContains(t, live(t, m).GetLabels(), "old")
	versions, _, _ := unstructured.NestedSlice(live(t, m).Object, "status", "versions")
	assert.Len(t, versions, 1)
}

// TestAdoptedObjectsNeedOneRequest checks kinds of a real payload: created by an update, applied, and applied again.
func TestAdoptedObjectsNeedOneRequest(t *testing.T) {
	ns := namespace(t)
	for _, text := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: NodePort, selector: {a: b}, ports: [{port: 80}]}",
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\nimagePullSecrets: [{name: x}]",
		"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\nspec: {selector: {matchLabels: {app: a}}, " + podTemplate + "}",
		"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\nspec: {serviceName: a, selector: {matchLabels: {app: a}}, " + podTemplate + "}",
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n" + jobSpec,
		"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {schedule: '* * * * *', jobTemplate: {" + jobSpec + "}}",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: a}\n" +
			"roleRef: {kind: Role, name: a}\nsubjects: [{kind: ServiceAccount, name: a, namespace: b}]",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {a: b}",
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podSelector: {}, ingress: [{}]}",
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\nspec: {maxUnavailable: 1, selector: {matchLabels: {a: b}}}",
	} {
		m := parse(t, text)
		m.Object.SetNamespace(ns)
		t.Run(m.GVK().Kind, func(t *testing.T) {
			a, record := connect(t, owner)
			old := m.Object.DeepCopy()
			old.SetLabels(map[string]string{"old": "x"})
			require.NoError(t, otherClient(t).Create(t.Context(), old, client.FieldOwner(api.FieldManager)))
			before := live(t, m)
			first := must(t, a, m)
			assert.Equal(t, adoption, written(record.drain()))
			after := live(t, m)
			assert.NotContains(t, after.GetLabels(), "old")
			assert.Equal(t, before.Object["spec"], after.Object["spec"], "defaults and allocated values are kept")
			second := must(t, a, m)
			assert.Equal(t, first.ResourceVersion, second.ResourceVersion)
			assert.Len(t, written(record.drain()), 1)
		})
	}
}

// written omits the read of a Job that changed a second or more after its creation. That read checks whether the Job failed.
func written(requests []*exchange) []string {
	return slices.DeleteFunc(methods(requests), func(method string) bool { return method == http.MethodGet })
}
