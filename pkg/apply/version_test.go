package apply_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// graduatedCRD has a version v1 with a field that v1beta1 lacks, and that the server sets by default.
const graduatedCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
  - name: v1beta1
    served: true
    storage: false
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {port: {type: integer}, note: {type: string}}}, status: {type: object, properties: {ready: {type: boolean}}}}}}
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {port: {type: integer}, note: {type: string}, accessPolicy: {type: string, default: deny}}},
      status: {type: object, properties: {ready: {type: boolean}}}}}}
`

// alpha is the beginning of the versions of graduatedCRD, with another one.
const alpha = `  versions:
  - {name: v1alpha1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {port: {type: integer}, note: {type: string}}}}}}}
`

// graduated serves a kind with two versions and returns a function for its manifests. replacements are pairs of old and new text in the
// definition.
func graduated(t *testing.T, group string, replacements ...string) func(version, name, spec string) *manifest.Manifest {
	t.Helper()
	serveCRD(t, parse(t, strings.NewReplacer(append(replacements, "GROUP", group)...).Replace(graduatedCRD)))
	return widgetsOf(t, group)
}

// widgetsOf returns a function for manifests of Widget in a namespace of the test.
func widgetsOf(t *testing.T, group string) func(version, name, spec string) *manifest.Manifest {
	t.Helper()
	ns := namespace(t)
	return func(version, name, spec string) *manifest.Manifest {
		return parse(t, fmt.Sprintf("apiVersion: %s/%s\nkind: Widget\nmetadata: {name: %s, namespace: %s}\nspec: %s", group, version, name, ns, spec))
	}
}

// scaled is graduated for a kind whose field port is the number of replicas. It also returns an Applier that knows this path.
func scaled(t *testing.T, group string) (*apply.Applier, func(version, name, spec string) *manifest.Manifest) {
	t.Helper()
	const status, scale = "{status: {}}", "{status: {}, scale: {specReplicasPath: .spec.port, statusReplicasPath: .status.size}}"
	crd := parse(t, strings.NewReplacer("GROUP", group, status, scale).Replace(graduatedCRD))
	a, _ := connectBy(t, owner, kinds.NewMapper(clock.RealClock{}, discoverer(t), []*manifest.Manifest{crd}))
	return a, graduated(t, group, status, scale)
}

// managers returns `manager operation subresource version` of each entry.
func managers(obj *unstructured.Unstructured) (list []string) {
	for _, e := range obj.GetManagedFields() {
		_, version, _ := strings.Cut(e.APIVersion, "/")
		list = append(list, strings.Join(strings.Fields(fmt.Sprint(e.Manager, " ", e.Operation, " ", e.Subresource, " ", version)), " "))
	}
	return list
}

func TestCustomResourcesMoveToTheNextVersionOfTheirAPI(t *testing.T) {
	widget := graduated(t, "next.example.com")
	forced := func(t *testing.T, m *manifest.Manifest, manager, spec string) {
		t.Helper()
		other := m.Object.DeepCopy()
		other.Object["spec"] = map[string]any{"note": spec}
		require.NoError(t, otherClient(t).Apply(t.Context(), client.ApplyConfigurationFromUnstructured(other), client.FieldOwner(manager)))
	}
	for _, tt := range []struct {
		name string
		// others makes other clients write the object of the first release.
		others func(t *testing.T, first *manifest.Manifest)
		want   []string
		note   string
	}{
		{"that only we wrote", func(*testing.T, *manifest.Manifest) {}, []string{api.FieldManager + " Apply v1"}, ""},
		{
			"that a client applied on the client side first", func(t *testing.T, first *manifest.Manifest) {
				t.Helper()
				as(t, "kubectl-client-side-apply", first, types.MergePatchType, `{"spec":{"note":"theirs"}}`)
			},
			[]string{api.FieldManager + " Apply v1", "kubectl-client-side-apply Update v1"},
			"theirs",
		},
		{
			"with entries of two managers, two versions and a subresource", func(t *testing.T, first *manifest.Manifest) {
				t.Helper()
				forced(t, first, "argocd", "theirs")
				obj := live(t, first)
				require.NoError(t, unstructured.SetNestedField(obj.Object, true, "status", "ready"))
				require.NoError(t, otherClient(t).Status().Update(t.Context(), obj, client.FieldOwner("widget-operator")))
			},
			[]string{"argocd Apply v1", api.FieldManager + " Apply v1", "widget-operator Update status v1"},
			"theirs",
		},
	} {
		t.Run("it moves an object "+tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			name := slug(tt.name)
			first, next := widget("v1beta1", name, "{port: 80}"), widget("v1", name, "{port: 81}")
			must(t, a, first)
			tt.others(t, first)

			predicted, err := a.Predict(t.Context(), next, release.Updating)
			require.NoError(t, err, "a preflight knows the result")
			record.drain()
			change := must(t, a, next)
			assert.Equal(t, apply.Applied, change.Action)
			obj := live(t, next)
			assert.Equal(t, stored(obj), stored(predicted.Object))
			assert.ElementsMatch(t, tt.want, managers(obj))
			assert.Equal(t, "deny", at(obj.Object, "spec.accessPolicy"))
			assert.EqualValues(t, 81, at(obj.Object, "spec.port"))
			note, _ := at(obj.Object, "spec.note").(string)
			assert.Equal(t, tt.note, note)

			record.drain()
			again := must(t, a, next)
			assert.Equal(t, change.ResourceVersion, again.ResourceVersion)
			assert.Len(t, record.drain(), 1, "the entries are moved once for each change of version")

			must(t, a, widget("v1", name, "{}"))
			assert.Nil(t, at(live(t, next).Object, "spec.port"), "a field that a later release drops disappears")
			back := must(t, a, first)
			assert.Equal(t, apply.Applied, back.Action)
			assert.EqualValues(t, 80, at(live(t, next).Object, "spec.port"), "a rollback needs no move")
		})
	}
}

// The next version lacks a field that the first release sets, as after a renaming. The first release has only the first version. The server
// cannot convert the object before, because the first version lacks the new name.
func TestFieldsThatTheNextVersionLacksDisappear(t *testing.T) {
	const group = "renamed.example.com"
	text := strings.NewReplacer("GROUP", group, "note: {type: string}, accessPolicy:", "accessPolicy:").Replace(graduatedCRD)
	former, _, _ := strings.Cut(text, "  - name: v1\n")
	serveCRD(t, parse(t, strings.Replace(former, "storage: false", "storage: true", 1)))
	widget := widgetsOf(t, group)
	before, _ := connect(t, owner)
	first, next := widget("v1beta1", "w", "{port: 80, note: old}"), widget("v1", "w", "{port: 81, accessPolicy: allow}")
	must(t, before, first)
	noted := first.Object.DeepCopy()
	noted.Object["spec"] = map[string]any{"note": "old"}
	noted.SetLabels(map[string]string{"theirs": "kept"})
	require.NoError(t, otherClient(t).Apply(t.Context(), client.ApplyConfigurationFromUnstructured(noted), client.FieldOwner("argocd")))
	serveCRD(t, parse(t, text))
	require.Eventually(t, func() bool {
		_, err := read(t, next)
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	a, record := connect(t, owner)
	require.Equal(t, "old", at(live(t, first).Object, "spec.note"))

	predicted, err := a.Predict(t.Context(), next, release.Updating)
	require.NoError(t, err)
	record.drain()
	must(t, a, next)
	assert.Equal(t, []string{"PATCH apply-patch", "GET", "PATCH json-patch+json", "PATCH apply-patch"}, methods(record.drain()), "all entries are moved")
	obj := live(t, next)
	assert.Equal(t, stored(obj), stored(predicted.Object))
	assert.Equal(t, map[string]any{"port": int64(81), "accessPolicy": "allow"}, obj.Object["spec"])
	assert.ElementsMatch(t, []string{"argocd Apply v1", api.FieldManager + " Apply v1"}, managers(obj))
	for _, e := range obj.GetManagedFields() {
		if e.Manager == "argocd" {
			assert.JSONEq(t, `{"f:metadata":{"f:labels":{"f:theirs":{}}},"f:spec":{"f:note":{}}}`, e.FieldsV1.GetRawString())
		}
	}
	must(t, a, next)
	assert.Equal(t, []string{"PATCH apply-patch"}, methods(record.drain()), "once is enough")
	must(t, a, widget("v1", "w", "{port: 81}"))
	assert.Equal(t, "deny", at(live(t, next).Object, "spec.accessPolicy"), "a field that a later release drops gets its default")
	must(t, a, first)
	assert.EqualValues(t, 80, at(live(t, first).Object, "spec.port"))
}

// The original operator wrote by update. If the server only renames, its fields have the same meaning in every version.
func TestFieldsOfTheOriginalOperatorMoveToTheNextVersion(t *testing.T) {
	for _, tt := range []struct {
		name, group  string
		replacements []string
		requests     []string
	}{
		{
			"if the server cannot convert the object before", "original.example.com", nil,
			[]string{"PATCH apply-patch", "GET", "GET", "PATCH json-patch+json", "PATCH apply-patch", "PATCH json-patch+json", "PATCH apply-patch"},
		},
		{
			"if the server can convert the object", "originalplain.example.com",
			[]string{", default: deny", ""},
			[]string{"PATCH apply-patch", "GET", "PATCH json-patch+json", "PATCH apply-patch"},
		},
	} {
		t.Run("it adopts them "+tt.name, func(t *testing.T) {
			widget := graduated(t, tt.group, tt.replacements...)
			a, record := connect(t, owner)
			first, next := widget("v1beta1", "w", "{port: 80, note: dropped}"), widget("v1", "w", "{port: 81}")
			require.NoError(t, otherClient(t).Create(t.Context(), first.Object.DeepCopy(), client.FieldOwner(api.FieldManager)))
			require.Equal(t, []string{api.FieldManager + " Update v1beta1"}, managers(live(t, next)))
			as(t, "other", first, types.MergePatchType, `{"metadata":{"labels":{"theirs":"kept"}}}`)

			must(t, a, next)
			assert.Equal(t, tt.requests, methods(record.drain()))
			obj := live(t, next)
			assert.Nil(t, at(obj.Object, "spec.note"), "a field that the release drops disappears")
			assert.ElementsMatch(t, []string{api.FieldManager + " Apply v1", "other Update v1"}, managers(obj))
			must(t, a, next)
			assert.Equal(t, []string{"PATCH apply-patch"}, methods(record.drain()), "once is enough")
		})
	}
}

// Other clients may have written the object in several versions. The entries of one of them become one entry with all of its fields.
func TestEntriesOfSeveralVersionsAreMovedTogether(t *testing.T) {
	widget := graduated(t, "several.example.com", ", default: deny", "", "  versions:\n", alpha)
	a, record := connect(t, owner)
	first, next := widget("v1beta1", "w", "{port: 80}"), widget("v1", "w", "{port: 81, accessPolicy: allow}")
	must(t, a, first)
	require.NoError(t, otherClient(t).Apply(t.Context(), client.ApplyConfigurationFromUnstructured(widget("v1alpha1", "w", "{note: theirs}").Object), client.FieldOwner("argocd")))
	for _, version := range []string{"v1alpha1", "v1beta1", "v1"} {
		as(t, "other", widget(version, "w", "{}"), types.MergePatchType, `{"metadata":{"labels":{"`+version+`":"kept"}}}`)
	}
	written := []string{"argocd Apply v1alpha1", api.FieldManager + " Apply v1beta1", "other Update v1alpha1", "other Update v1beta1", "other Update v1"}
	require.ElementsMatch(t, written, managers(live(t, next)))

	record.drain()
	must(t, a, next)
	assert.Equal(t, []string{"PATCH apply-patch", "GET", "GET", "PATCH json-patch+json", "PATCH apply-patch"}, methods(record.drain()))
	obj := live(t, next)
	assert.ElementsMatch(t, []string{"argocd Apply v1", api.FieldManager + " Apply v1", "other Update v1"}, managers(obj))
	for _, e := range obj.GetManagedFields() {
		if e.Manager == "other" {
			assert.JSONEq(t, `{"f:metadata":{"f:labels":{"f:v1alpha1":{},"f:v1beta1":{},"f:v1":{}}}}`, e.FieldsV1.GetRawString())
		}
	}
	must(t, a, widget("v1", "w", "{accessPolicy: allow}"))
	assert.Equal(t, map[string]any{"note": "theirs", "accessPolicy": "allow"}, live(t, next).Object["spec"])
}

func TestMovedObjectsNeedFewRequests(t *testing.T) {
	widget := graduated(t, "many.example.com")
	a, record := connect(t, owner)
	const objects = 200
	for i := range objects {
		must(t, a, widget("v1beta1", fmt.Sprintf("w%d", i), "{port: 80}"))
	}
	record.drain()
	began := time.Now()
	for i := range objects {
		must(t, a, widget("v1", fmt.Sprintf("w%d", i), "{port: 81}"))
	}
	perObject := map[string]int{}
	for _, e := range record.drain() {
		perObject[e.path]++
	}
	reads := perObject["/apis/apiextensions.k8s.io/v1/customresourcedefinitions"]
	assert.LessOrEqual(t, reads, 1+int(time.Since(began)/(10*time.Second)), "the definition is read once in ten seconds")
	assert.Len(t, perObject, objects+1)
	for path, n := range perObject {
		assert.LessOrEqual(t, n, 4, "%s: at most three requests besides the apply", path)
	}
}

// withoutFirstVersion applies an object in v1beta1, lets another client write it, and removes v1beta1 from the definition, which also gets
// the patches in more. It returns a function for manifests in v1.
func withoutFirstVersion(t *testing.T, a *apply.Applier, group, more string) func(spec string) *manifest.Manifest {
	t.Helper()
	widget := graduated(t, group)
	first := widget("v1beta1", "w", "{port: 80, note: old}")
	must(t, a, first)
	as(t, "other", first, types.MergePatchType, `{"metadata":{"labels":{"theirs":"kept"}}}`)
	crd := parse(t, strings.ReplaceAll(graduatedCRD, "GROUP", group))
	as(t, "tests", crd, types.JSONPatchType, `[{"op":"remove","path":"/spec/versions/0"}`+more+`]`)
	untilUnconvertible(t, widget("v1", "w", "{port: 80}"))
	return func(spec string) *manifest.Manifest { return widget("v1", "w", spec) }
}

// untilUnconvertible waits until the server cannot convert a live object to the version of an entry in its managedFields. The server uses a new
// definition to route requests shortly before it uses it to convert, so a request in a removed version may fail earlier.
func untilUnconvertible(t *testing.T, m *manifest.Manifest) {
	t.Helper()
	data, err := json.Marshal(m.Object)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		err := otherClient(t).Patch(t.Context(), m.Object.DeepCopy(), client.RawPatch(types.ApplyPatchType, data),
			client.FieldOwner("tests"), client.ForceOwnership, client.DryRunAll)
		return failure.IsConversion(err)
	}, eventually, tick)
}

// A definition that no longer has a version still leaves entries in that version: ours if the release moves the object at the same time,
// and others' at any time later. The server cannot convert to such a version.
func TestEntriesOfARemovedVersionAreMoved(t *testing.T) {
	var webhookCalls atomic.Int64
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		webhookCalls.Add(1)
		http.Error(w, "not expected", http.StatusInternalServerError)
	}))
	t.Cleanup(webhook.Close)
	for _, tt := range []struct{ name, group, more string }{
		{"if the server converts by renaming", "removed.example.com", ""},
		{"beside a webhook, which cannot convert to them", "removedhook.example.com", `,{"op":"add","path":"/spec/conversion","value":` + conversionWebhook(webhook) + `}`},
	} {
		t.Run("it moves them "+tt.name, func(t *testing.T) {
			a, _ := connect(t, owner)
			widget := withoutFirstVersion(t, a, tt.group, tt.more)
			must(t, a, widget("{port: 82}"))
			obj := live(t, widget("{}"))
			assert.EqualValues(t, 82, at(obj.Object, "spec.port"))
			assert.Nil(t, at(obj.Object, "spec.note"), "a field that the release drops disappears")
			assert.ElementsMatch(t, []string{api.FieldManager + " Apply v1", "other Update v1"}, managers(obj))
		})
	}
	assert.Zero(t, webhookCalls.Load(), "the server converts no object to the remaining version")
}

// The server discards all of managedFields if it cannot convert the object to the version of one entry, such as after a webhook broke.
func TestMoveKeepsOurEntryIfTheServerDiscardsAll(t *testing.T) {
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "broken", http.StatusInternalServerError)
	}))
	t.Cleanup(webhook.Close)
	const group = "brokenhook.example.com"
	text := strings.NewReplacer("GROUP", group, ", default: deny", "", "  versions:\n", alpha).Replace(graduatedCRD)
	crd := parse(t, text)
	serveCRD(t, crd)
	ns := namespace(t)
	widget := func(version, spec string) *manifest.Manifest {
		return parse(t, fmt.Sprintf("apiVersion: %s/%s\nkind: Widget\nmetadata: {name: w, namespace: %s}\nspec: %s", group, version, ns, spec))
	}
	a, _ := connect(t, owner)
	must(t, a, widget("v1beta1", "{port: 80, note: old}"))
	as(t, "other", widget("v1alpha1", "{}"), types.MergePatchType, `{"metadata":{"labels":{"theirs":"kept"}}}`)
	as(t, "tests", crd, types.JSONPatchType, `[{"op":"remove","path":"/spec/versions/1"},{"op":"add","path":"/spec/conversion","value":`+conversionWebhook(webhook)+`}]`)
	next := widget("v1", "{port: 82}")
	untilUnconvertible(t, next)
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the error names one of the two entries, and only one leads to a move
		_, err := a.Apply(t.Context(), next, release.Updating)
		assert.NoError(c, err)
	}, eventually, tick)
	obj := live(t, next)
	assert.Equal(t, []string{api.FieldManager + " Apply v1"}, managers(obj))
	assert.Equal(t, map[string]any{"port": int64(82)}, obj.Object["spec"], "a field that the release drops disappears")
	assert.Equal(t, "kept", obj.GetLabels()["theirs"])
}

// Another client may write the object between the read and the move.
func TestMoveIsRepeatedAfterAConflict(t *testing.T) {
	widget := graduated(t, "conflict.example.com")
	a, record := connect(t, owner)
	first, next := widget("v1beta1", "w", "{port: 80, note: old}"), widget("v1", "w", "{port: 81}")
	must(t, a, first)
	writeOnce := sync.OnceFunc(func() { as(t, "other", first, types.MergePatchType, `{"metadata":{"labels":{"theirs":"kept"}}}`) })
	record.before = func(r *http.Request) {
		if r.Header.Get("Content-Type") == string(types.JSONPatchType) {
			writeOnce()
		}
	}
	record.drain()
	must(t, a, next)
	move := []string{"PATCH json-patch+json", "PATCH apply-patch"}
	assert.Equal(t, slices.Concat([]string{"PATCH apply-patch", "GET", "GET"}, move, []string{"GET"}, move), methods(record.drain()))
	obj := live(t, next)
	assert.ElementsMatch(t, []string{api.FieldManager + " Apply v1", "other Update v1"}, managers(obj))
	assert.Equal(t, map[string]any{"port": int64(81), "accessPolicy": "deny"}, obj.Object["spec"])
	assert.Equal(t, "kept", obj.GetLabels()["theirs"])
}

// Whatever the server answers to a move, the number of requests is limited, and the error does not blame the control plane.
func TestMoveWithoutEffectIsInvalid(t *testing.T) {
	for _, tt := range []struct {
		name, group string
		prepare     func(t *testing.T, a *apply.Applier, group string) *manifest.Manifest
		remedy      string
	}{
		{"names the field that the older version lacks", "unmoved.example.com", func(t *testing.T, a *apply.Applier, group string) *manifest.Manifest {
			t.Helper()
			widget := graduated(t, group)
			must(t, a, widget("v1beta1", "w", "{port: 80}"))
			return widget("v1", "w", "{port: 81}")
		}, "(.spec.accessPolicy)"},
		{"names the field of another type", "unmovedtype.example.com", func(t *testing.T, a *apply.Applier, group string) *manifest.Manifest {
			t.Helper()
			serveCRD(t, parse(t, strings.NewReplacer("GROUP", group, "note: {type: string}, accessPolicy: {type: string, default: deny}",
				"note: {type: array, default: [new], items: {type: string}}").Replace(graduatedCRD)))
			ns := namespace(t)
			widget := func(version, spec string) *manifest.Manifest {
				return parse(t, fmt.Sprintf("apiVersion: %s/%s\nkind: Widget\nmetadata: {name: w, namespace: %s}\nspec: %s", group, version, ns, spec))
			}
			must(t, a, widget("v1beta1", "{port: 80}"))
			return widget("v1", "{port: 81}")
		}, "(.spec.note)"},
		{"names the conversion of a removed version", "unmovedversion.example.com", func(t *testing.T, a *apply.Applier, group string) *manifest.Manifest {
			t.Helper()
			return withoutFirstVersion(t, a, group, "")("{port: 81}")
		}, "repair the conversion in the kind's CustomResourceDefinition"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			next := tt.prepare(t, a, tt.group)
			record.before = func(r *http.Request) {
				if r.Header.Get("Content-Type") == string(types.JSONPatchType) {
					r.URL.RawQuery += "&dryRun=All" // the server stores nothing
				}
			}
			record.drain()
			_, err := a.Apply(t.Context(), next, release.Updating)
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
			assert.Contains(t, failed.Remedy, tt.remedy)
			var requests []string
			for _, e := range record.drain() {
				requests = append(requests, e.method)
			}
			assert.Equal(t, []string{"PATCH", "GET", "GET", "PATCH", "PATCH", "GET"}, requests, "one move, and the definition is read once")
		})
	}
}

// conversionWebhook returns the conversion of a definition as JSON.
func conversionWebhook(server *httptest.Server) string {
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return fmt.Sprintf(`{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q}}}`, server.URL, bundle)
}

// retyped serves a definition whose version v1 has another type for field note than v1beta1, and returns a constructor of its objects.
func retyped(t *testing.T, group string) func(version, name, spec string) *manifest.Manifest {
	text := strings.Replace(strings.ReplaceAll(graduatedCRD, "GROUP", group), "note: {type: string}, accessPolicy", "note: {type: array, items: {type: string}}, accessPolicy", 1)
	serveCRD(t, parse(t, text))
	ns := namespace(t)
	return func(version, name, spec string) *manifest.Manifest {
		return parse(t, fmt.Sprintf("apiVersion: %s/%s\nkind: Widget\nmetadata: {name: %s, namespace: %s}\nspec: %s", group, version, name, ns, spec))
	}
}

// Server-side apply cannot read an object with a value of another type than the manifest's version has. Another client may have made the
// server discard managedFields before, so no entry has another version.
func TestFieldsMayChangeTheirTypeBetweenVersions(t *testing.T) {
	widget := retyped(t, "typed.example.com")
	const labeled, discarded = `{"metadata":{"labels":{"theirs":"kept"}}}`, `{"metadata":{"managedFields":[{}],"labels":{"theirs":"kept"}}}`
	for _, tt := range []struct {
		name, patch, spec string
		want              any
		requests          int
	}{
		{"with a value of the new type", labeled, "{note: [new]}", []any{"new"}, 5},
		{"without the field", labeled, "{accessPolicy: allow}", nil, 5},
		{"with a value of the new type without managedFields", discarded, "{note: [new]}", []any{"new"}, 5},
		{"without the field and managedFields", discarded, "{accessPolicy: allow}", nil, 5},
	} {
		t.Run("it applies a manifest "+tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			first, next := widget("v1beta1", slug(tt.name), "{port: 80, note: old}"), widget("v1", slug(tt.name), tt.spec)
			applied := must(t, a, first)
			as(t, "other", first, types.MergePatchType, tt.patch)
			former := func(context.Context, manifest.ID) ([]*manifest.Manifest, error) {
				return []*manifest.Manifest{first}, nil
			}
			a = a.With(apply.Options{UID: applied.UID, Former: former})

			predicted, err := a.Predict(t.Context(), next, release.Updating)
			require.NoError(t, err)
			assert.Equal(t, tt.want, at(predicted.Object.Object, "spec.note"))
			record.drain()
			must(t, a, next)
			assert.Len(t, record.drain(), tt.requests)
			obj := live(t, next)
			assert.Equal(t, tt.want, at(obj.Object, "spec.note"))
			assert.Nil(t, at(obj.Object, "spec.port"), "a field that the release drops disappears")
			assert.Equal(t, "kept", obj.GetLabels()["theirs"])
			must(t, a, next)
			assert.Equal(t, []string{"PATCH apply-patch"}, methods(record.drain()))
		})
	}
}

func TestUnreadableObjectsStayIfReplacingDoesNotHelp(t *testing.T) {
	widget := retyped(t, "unreadable.example.com")
	for _, tt := range []struct{ name, patch string }{
		{"if the earlier release is not available", `{"metadata":{"managedFields":[{}]}}`},
		{"if another client owns the value", `{"spec":{"note":"theirs"}}`},
	} {
		t.Run("it names the remedy "+tt.name, func(t *testing.T) {
			a, _ := connect(t, owner)
			first, next := widget("v1beta1", slug(tt.name), "{port: 80, note: old}"), widget("v1", slug(tt.name), "{accessPolicy: allow}")
			must(t, a, first)
			as(t, "kubectl", first, types.MergePatchType, tt.patch)
			before := live(t, first)
			_, predicted := a.Predict(t.Context(), next, release.Updating)
			_, err := a.Apply(t.Context(), next, release.Updating)
			require.ErrorContains(t, err, ".spec.note: expected list, ")
			require.EqualError(t, predicted, err.Error())
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
			assert.Contains(t, failed.Remedy, "correct or remove the named value in the object")
			assert.False(t, failure.IsManifestError(err))
			assert.Equal(t, before, live(t, first), "the object is not replaced, because that would not help")
		})
	}
}

// The page docs/user/whose-fields.md describes this exception to the ownership of fields.
func TestApplyInAnEarlierVersionPrunesLaterFields(t *testing.T) {
	widget := graduated(t, "pruned.example.com", ", default: deny", "")
	a, _ := connect(t, owner)
	m := widget("v1beta1", "w", "{port: 80}")
	must(t, a, m)
	later := widget("v1", "w", "{}")
	as(t, "other", later, types.MergePatchType, `{"spec":{"accessPolicy":"allow","note":"theirs"}}`)
	must(t, a, m)
	assert.Equal(t, map[string]any{"port": int64(80), "note": "theirs"}, live(t, later).Object["spec"])
}

// A definition may also change the type of a field within a version.
func TestFieldsMayChangeTheirTypeWithinAVersion(t *testing.T) {
	widget := graduated(t, "retyped.example.com")
	a, _ := connect(t, owner)
	must(t, a, widget("v1", "w", "{port: 80, note: old}"))
	crd := parse(t, strings.ReplaceAll(graduatedCRD, "GROUP", "retyped.example.com"))
	as(t, "tests", crd, types.JSONPatchType, `[{"op":"replace","path":"/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/note",
  "value":{"type":"array","items":{"type":"string"}}}]`)
	next := widget("v1", "w", "{note: [new]}")
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the server uses the changed definition a moment later
		_, err := a.Apply(t.Context(), next, release.Updating)
		assert.NoError(c, err)
	}, eventually, tick)
	assert.Equal(t, map[string]any{"note": []any{"new"}, "accessPolicy": "deny"}, live(t, next).Object["spec"])
}

// The server can read the object in the manifest's version, but not in that of the entries. It is not replaced, so its fields keep their owners.
func TestDefaultsOfAnotherTypeNeedNoReplacement(t *testing.T) {
	const group = "defaults.example.com"
	text := strings.Replace(strings.ReplaceAll(graduatedCRD, "GROUP", group),
		"note: {type: string}, accessPolicy", "note: {type: array, default: [new], items: {type: string}}, accessPolicy", 1)
	serveCRD(t, parse(t, text))
	ns := namespace(t)
	widget := func(version, spec string) *manifest.Manifest {
		return parse(t, fmt.Sprintf("apiVersion: %s/%s\nkind: Widget\nmetadata: {name: w, namespace: %s}\nspec: %s", group, version, ns, spec))
	}
	a, record := connect(t, owner)
	must(t, a, widget("v1beta1", "{port: 80}"))
	next := widget("v1", "{}")
	record.drain()
	must(t, a, next)
	assert.Equal(t, []string{"PATCH apply-patch", "GET", "GET", "PATCH json-patch+json", "PATCH apply-patch"}, methods(record.drain()))
	assert.Equal(t, map[string]any{"note": []any{"new"}, "accessPolicy": "deny"}, live(t, next).Object["spec"])
	assert.Equal(t, []string{api.FieldManager + " Apply v1"}, managers(live(t, next)))
}

// If the manifest moves to the next version and drops the number of replicas, giving that up also moves the entries.
func TestReplicasAreGivenUpWithTheMove(t *testing.T) {
	a, widget := scaled(t, "scaled.example.com")
	first, next := widget("v1beta1", "w", "{port: 3, note: ours}"), widget("v1", "w", "{}")
	must(t, a, first)
	as(t, "other", first, types.MergePatchType, `{"metadata":{"labels":{"theirs":"kept"}}}`)
	must(t, a, next)
	obj := live(t, next)
	assert.ElementsMatch(t, []string{api.FieldManager + " Apply v1", "kept-scale Update scale v1", "other Update v1"}, managers(obj))
	assert.EqualValues(t, 3, at(obj.Object, "spec.port"))
	assert.Nil(t, at(obj.Object, "spec.note"))
}

// If the definition loses a version at the same time, no webhook can convert to it.
func TestReplicasAreGivenUpBesideEntriesOfARemovedVersion(t *testing.T) {
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not expected", http.StatusInternalServerError)
	}))
	t.Cleanup(webhook.Close)
	const group = "scaledhook.example.com"
	a, widget := scaled(t, group)
	must(t, a, widget("v1", "w", "{port: 3}"))
	as(t, "other", widget("v1beta1", "w", "{}"), types.MergePatchType, `{"spec":{"note":"theirs"}}`)
	crd := parse(t, strings.ReplaceAll(graduatedCRD, "GROUP", group))
	as(t, "tests", crd, types.JSONPatchType, `[{"op":"remove","path":"/spec/versions/0"},{"op":"add","path":"/spec/conversion","value":`+conversionWebhook(webhook)+`}]`)
	next := widget("v1", "w", "{accessPolicy: allow}")
	untilUnconvertible(t, next)
	must(t, a, next)
	obj := live(t, next)
	assert.ElementsMatch(t, []string{api.FieldManager + " Apply v1", "kept-scale Update scale v1", "other Update v1"}, managers(obj))
	assert.Equal(t, map[string]any{"port": int64(3), "note": "theirs", "accessPolicy": "allow"}, obj.Object["spec"])
}

// A webhook may know which fields a version has, so the server can convert the object. The paths of a webhook's versions may differ, so the
// entries stay in their version even if the webhook only renames.
func TestConversionWebhooksNeedNoMove(t *testing.T) {
	for _, tt := range []struct {
		name, group string
		removes     bool
		requests    []string
		failure     string
	}{
		{"if the webhook removes the new field", "webhook.example.com", true, []string{"PATCH apply-patch"}, ""},
		{"if the webhook only renames", "renaminghook.example.com", false, []string{"PATCH apply-patch", "GET", "GET"}, ".spec.accessPolicy"},
	} {
		t.Run("it moves nothing "+tt.name, func(t *testing.T) {
			webhook, calls := converter(t, tt.removes)
			widget := graduated(t, tt.group)
			crd := parse(t, strings.ReplaceAll(graduatedCRD, "GROUP", tt.group))
			as(t, "tests", crd, types.MergePatchType, `{"spec":{"conversion":`+conversionWebhook(webhook)+`}}`)

			a, record := connect(t, owner)
			first, next := widget("v1beta1", "w", "{port: 80}"), widget("v1", "w", "{port: 81}")
			require.EventuallyWithT(t, func(c *assert.CollectT) { // the server uses the webhook a moment later
				before := calls.Load()
				_, err := a.Apply(t.Context(), first, release.Updating)
				require.NoError(c, err)
				assert.Greater(c, calls.Load(), before)
			}, eventually, tick)
			record.drain()
			_, err := a.Apply(t.Context(), next, release.Updating)
			assert.Equal(t, tt.requests, methods(record.drain()))
			assert.Equal(t, "deny", at(live(t, next).Object, "spec.accessPolicy"))
			if tt.failure == "" {
				require.NoError(t, err)
				return
			}
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
			require.ErrorContains(t, err, tt.failure)
			assert.Equal(t, []string{api.FieldManager + " Apply v1beta1"}, managers(live(t, next)))
		})
	}
}

// converter returns a conversion webhook for graduatedCRD and the number of its calls. It changes apiVersion, and if it removes, it also
// removes the field that v1beta1 lacks.
func converter(t *testing.T, removes bool) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	calls := &atomic.Int64{}
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		review := &apiextensionsv1.ConversionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			obj := &unstructured.Unstructured{}
			if err := obj.UnmarshalJSON(raw.Raw); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			obj.SetAPIVersion(review.Request.DesiredAPIVersion)
			if removes && strings.HasSuffix(review.Request.DesiredAPIVersion, "v1beta1") {
				unstructured.RemoveNestedField(obj.Object, "spec", "accessPolicy")
			}
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: obj})
		}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(webhook.Close)
	return webhook, calls
}

// If another client writes an object in another version first, the server discards all of managedFields. Nothing then shows which fields
// were ours.
func TestDiscardedFieldsAreTakenBack(t *testing.T) {
	widget := graduated(t, "discarded.example.com")
	for _, tt := range []struct {
		name   string
		former apply.Former
		want   map[string]any
		note   string
	}{
		{
			"with the former manifest", func(_ context.Context, id manifest.ID) ([]*manifest.Manifest, error) {
				return []*manifest.Manifest{widget("v1beta1", id.Name, "{port: 79}"), widget("v1beta1", id.Name, "{port: 80, note: ours}")}, nil
			},
			map[string]any{"port": int64(81), "accessPolicy": "allow"},
			"",
		},
		{
			"without the former release", func(context.Context, manifest.ID) ([]*manifest.Manifest, error) {
				return nil, fmt.Errorf("%w: it is gone", apply.ErrNoFormer)
			},
			map[string]any{"port": int64(81), "accessPolicy": "allow", "note": "ours"},
			"; fields of the earlier release may remain: it is gone",
		},
	} {
		t.Run("it takes them back "+tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			name := slug(tt.name)
			first, next := widget("v1beta1", name, "{port: 80, note: ours}"), widget("v1", name, "{port: 81}")
			applied := must(t, a, first)
			as(t, "widget-operator", next, types.MergePatchType, `{"spec":{"accessPolicy":"allow"}}`)
			require.Empty(t, live(t, next).GetManagedFields(), "the server discards them")

			away := func(context.Context, manifest.ID) ([]*manifest.Manifest, error) {
				return nil, errors.New("the registry is away")
			}
			_, err := a.With(apply.Options{UID: applied.UID, Former: away}).Apply(t.Context(), next, release.Updating)
			require.ErrorContains(t, err, "taking back fields: the registry is away", "the caller repeats it")
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, api.ReasonPayloadRetrievalFailed, failed.Reason, "the control plane is well")
			ctx, cancel := context.WithCancel(t.Context())
			interrupted := func(context.Context, manifest.ID) ([]*manifest.Manifest, error) {
				cancel()
				return nil, ctx.Err()
			}
			_, err = a.With(apply.Options{UID: applied.UID, Former: interrupted}).Apply(ctx, next, release.Updating)
			require.ErrorIs(t, err, context.Canceled)
			var diagnosis *failure.Diagnosis
			assert.NotErrorAs(t, err, &diagnosis, "a shutdown is not a failure of the registry")
			record.drain()
			change := must(t, a.With(apply.Options{UID: applied.UID, Former: tt.former}), next)
			assert.LessOrEqual(t, len(record.drain()), 4)
			assert.Equal(t, "took back its fields, whose owners the server had discarded"+tt.note, change.Message)
			assert.Equal(t, change.Message, change.TakenBack)
			assert.Equal(t, tt.want, live(t, next).Object["spec"])
			assert.Contains(t, managers(live(t, next)), "before-first-apply Update v1", "fields of others stay theirs")

			again := must(t, a.With(apply.Options{UID: change.UID, Former: away}), next)
			assert.Equal(t, change.ResourceVersion, again.ResourceVersion, "once is enough")
			assert.Empty(t, again.Message)
			must(t, a, widget("v1", name, "{note: later}"))
			assert.Nil(t, at(live(t, next).Object, "spec.port"), "a field that a later release drops disappears")
		})
	}
}

// An object that another client created without managedFields keeps the fields that no manifest sets.
func TestFieldsOfAnUnownedObjectAreNotTakenBack(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	m := configMap(t, ns, "a", "{}", "{k: v}")
	other := m.Object.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(other.Object, "theirs", "data", "other"))
	require.NoError(t, otherClient(t).Create(t.Context(), other))
	as(t, "kubectl", m, types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
	applied := must(t, a, m)
	require.Empty(t, applied.Message)
	again := must(t, a.With(apply.Options{UID: applied.UID}), m)
	assert.Equal(t, "took back its fields, whose owners the server had discarded", again.Message)
	record.drain()
	assert.Empty(t, must(t, a.With(apply.Options{UID: applied.UID}), m).Message, "once is enough")
	assert.Equal(t, []string{"PATCH apply-patch"}, methods(record.drain()))
	must(t, a, configMap(t, ns, "a", "{}", "{}"))
	assert.Equal(t, map[string]any{"other": "theirs"}, live(t, m).Object["data"])
}

// TestWritesDuringATakeBackAreSeen lets another client change a field of ours between the apply and the write of managedFields. A result
// with the managedFields after that change would hide it from the watch.
func TestWritesDuringATakeBackAreSeen(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	m := configMap(t, ns, "a", "{}", "{k: v}")
	applied := must(t, a, m)
	as(t, "kubectl", m, types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
	writeOnce := sync.OnceFunc(func() { as(t, "other", m, types.MergePatchType, `{"data":{"k":"theirs"}}`) })
	record.before = func(r *http.Request) {
		if r.Header.Get("Content-Type") == string(types.JSONPatchType) {
			writeOnce()
		}
	}
	record.drain()
	change := must(t, a.With(apply.Options{UID: applied.UID}), m)
	assert.Equal(t, []string{"PATCH apply-patch", "PATCH json-patch+json", "PATCH apply-patch", "PATCH json-patch+json"}, methods(record.drain()))
	assert.NotEmpty(t, change.TakenBack)
	assert.Equal(t, map[string]any{"k": "v"}, live(t, m).Object["data"])
	assert.Equal(t, ownership.Ours(live(t, m).GetManagedFields()), change.Fields)
}

// A policy may protect managedFields. The apply itself has succeeded.
func TestDeniedTakeBackDoesNotBlockTheUpdate(t *testing.T) {
	for _, reason := range []string{"Invalid", "Forbidden"} {
		t.Run(reason, func(t *testing.T) {
			ns := namespace(t)
			a, _ := connect(t, owner)
			m := configMap(t, ns, "a", "{}", "{k: v}")
			applied := must(t, a, m)
			as(t, "kubectl", m, types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
			const byServer = "object.metadata.managedFields.exists(e, e.manager == 'before-first-apply')"
			deny(t, m, "{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [UPDATE]}",
				"!has(oldObject.metadata.managedFields) || !"+strings.Replace(byServer, "object", "oldObject", 1)+" || "+byServer, reason)

			change := must(t, a.With(apply.Options{UID: applied.UID}), m)
			assert.Equal(t, apply.Applied, change.Action)
			assert.Contains(t, change.Message, "cannot take back its fields, whose owners the server discarded: ")
			assert.Contains(t, change.Message, "owners stay")
			assert.Empty(t, change.TakenBack)
			assert.Contains(t, managers(live(t, m)), "before-first-apply Update")
		})
	}
}

// A probe that a release drops also has fields that the server has set. Without them the probe is incomplete.
func TestDiscardedObjectsWithDefaultsAreTakenBack(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	web := func(probe string) *manifest.Manifest {
		return parse(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: `+ns+`}, spec: {
  selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i`+probe+`}]}}}}`)
	}
	first, next := web(", livenessProbe: {httpGet: {path: /, port: 80}}"), web("")
	applied := must(t, a, first)
	as(t, "kubectl", first, types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
	former := func(context.Context, manifest.ID) ([]*manifest.Manifest, error) {
		return []*manifest.Manifest{first}, nil
	}
	change := must(t, a.With(apply.Options{UID: applied.UID, Former: former}), next)
	assert.Equal(t, "took back its fields, whose owners the server had discarded", change.Message)
	assert.NotContains(t, at(live(t, next).Object, podAt+"containers.0"), "livenessProbe")
}

// The server may also reject the first apply after it has discarded the owners of all fields, because a value contradicts the manifest.
func TestDiscardedFieldsAreTakenBackAfterARejection(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	web := func(metadata, env string) *manifest.Manifest {
		return parse(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: `+ns+metadata+`}, spec: {
  selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [
    {name: c, image: i, env: [{name: A, `+env+`}]}]}}}}`)
	}
	first, next := web(", annotations: {old: x}", "value: x"), web("", "value: z")
	applied := must(t, a, first)
	as(t, "kubectl", first, types.MergePatchType, `{"metadata":{"managedFields":[{}]},"spec":{"template":{"spec":{"containers":[
  {"name":"c","image":"i","env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}]}}}}`)
	former := func(context.Context, manifest.ID) ([]*manifest.Manifest, error) {
		return []*manifest.Manifest{first}, nil
	}
	change := must(t, a.With(apply.Options{UID: applied.UID, Former: former}), next)
	assert.Contains(t, change.Message, "took back its fields")
	assert.Equal(t, "z", at(live(t, next).Object, podAt+"containers.0.env.0.value"))
	assert.NotContains(t, live(t, next).GetAnnotations(), "old")
}

// If a list or map is owned as a whole in one version and by its entries in the next, the server does not know the owner of the entries.
func TestEntriesOfAFormerlyAtomicListDisappear(t *testing.T) {
	serveCRD(t, parse(t, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gauges.granular.example.com}
spec:
  group: granular.example.com
  scope: Namespaced
  names: {kind: Gauge, plural: gauges, singular: gauge, listKind: GaugeList}
  versions:
  - name: v1beta1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      first: {type: string},
      items: {type: array, items: {type: object, properties: {name: {type: string}, value: {type: string}}}},
      groups: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {
        name: {type: string}, set: {type: array, items: {type: string}}}}},
      map: {type: object, x-kubernetes-map-type: atomic, additionalProperties: {type: string}}}}}}}
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-validations: [{rule: "!has(self.first) || self.items.exists(i, i.name == self.first)"}], properties: {
      accessPolicy: {type: string, default: deny},
      first: {type: string},
      items: {type: array, maxItems: 9, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string}, value: {type: string}}}},
      groups: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {
        name: {type: string}, set: {type: array, x-kubernetes-list-type: set, items: {type: string}}}}},
      map: {type: object, additionalProperties: {type: string}}}}}}}
`))
	ns := namespace(t)
	gauge := func(version, name, spec string) *manifest.Manifest {
		return parse(t, fmt.Sprintf("apiVersion: granular.example.com/%s\nkind: Gauge\nmetadata: {name: %s, namespace: %s}\nspec: %s", version, name, ns, spec))
	}
	for _, tt := range []struct{ name, spec string }{
		{"without some entries", "{first: b, items: [{name: b, value: v}], groups: [{name: g, set: [a]}], map: {a/b~c: v}}"},
		{"with changed entries", "{items: [{name: b, value: changed}, {name: c}], groups: [{name: g, set: [b, c]}, {name: h}], map: {a/b~c: changed, d: v}}"},
		{"without lists and maps", "{groups: [{name: g}]}"},
	} {
		t.Run("it applies a manifest "+tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			first, next := gauge("v1beta1", slug(tt.name), "{first: b, items: [{name: a, value: v}, {name: b, value: v}], groups: [{name: g, set: [a, b]}], map: {a/b~c: v, b: v}}"), gauge("v1", slug(tt.name), tt.spec)
			must(t, a, first)
			predicted, err := a.Predict(t.Context(), next, release.Updating)
			require.NoError(t, err)
			record.drain()
			must(t, a, next)
			assert.LessOrEqual(t, len(record.drain()), 5)
			want := next.Object.DeepCopy()
			require.NoError(t, unstructured.SetNestedField(want.Object, "deny", "spec", "accessPolicy"))
			assert.Equal(t, want.Object["spec"], live(t, next).Object["spec"])
			assert.Equal(t, want.Object["spec"], predicted.Object.Object["spec"])

			must(t, a, gauge("v1", slug(tt.name), "{}"))
			assert.Equal(t, map[string]any{"accessPolicy": "deny"}, live(t, next).Object["spec"], "all fields are ours")
		})
	}

	// The shorter list is invalid without another field of the manifest.
	a, _ := connect(t, owner)
	first, next := gauge("v1beta1", "both", "{first: b, items: [{name: a}, {name: b}]}"), gauge("v1", "both", "{first: a, items: [{name: a}]}")
	must(t, a, first)
	must(t, a, next)
	assert.Equal(t, map[string]any{"first": "a", "items": []any{map[string]any{"name": "a"}}, "accessPolicy": "deny"}, live(t, next).Object["spec"])
}

// TestFieldsOfTheOriginalOperatorMoveAfterARejection has an object of which a field contradicts the manifest, so the server rejects the first apply.
func TestFieldsOfTheOriginalOperatorMoveAfterARejection(t *testing.T) {
	widget := graduated(t, "rejected.example.com", ", default: deny", "", "note: {type: string}}}, status", "note: {type: string}, extra: {type: string}}}, status",
		"      spec: {type: object, properties: {port: {type: integer}, note: {type: string}, accessPolicy",
		"      spec: {type: object, x-kubernetes-validations: [{rule: '!has(self.note) || !has(self.port) || self.port != 81', message: not both, fieldPath: .note}], "+
			"properties: {port: {type: integer}, note: {type: string}, extra: {type: string}, accessPolicy")
	a, _ := connect(t, owner)
	first, next := widget("v1beta1", "w", "{port: 80, note: dropped, extra: dropped}"), widget("v1", "w", "{port: 81}")
	first.Object.SetLabels(map[string]string{"dropped": "label"})
	require.NoError(t, otherClient(t).Create(t.Context(), first.Object.DeepCopy(), client.FieldOwner(api.FieldManager)))
	must(t, a, next)
	assert.Equal(t, map[string]any{"port": int64(81)}, live(t, next).Object["spec"])
	assert.NotContains(t, live(t, next).GetLabels(), "dropped")
}

// TestDefaultsThatAreNotStoredAreNotAdopted applies custom resources in version v1, whose default the stored version does not have. The server
// fills it in for each write in v1, calls it a field of the writer, and drops it.
func TestDefaultsThatAreNotStoredAreNotAdopted(t *testing.T) {
	stored := []string{"storage: false", "storage: true", "storage: true", "storage: false"}
	for _, crd := range []struct {
		name, group  string
		replacements []string
	}{
		{"the stored version is served", "unstored.example.com", stored},
		{"the stored version is not served", "unserved.example.com", append(stored, "- name: v1beta1\n    served: true", "- name: v1beta1\n    served: false")},
		{"the stored version has another default", "otherdefault.example.com", append(stored, "note: {type: string}}}, status", "note: {type: string}, legacy: {type: string, default: old}}}, status")},
	} {
		t.Run(crd.name, func(t *testing.T) {
			widget := graduated(t, crd.group, crd.replacements...)
			a, record := connect(t, owner)
			const before = "{port: 80, note: dropped}"
			check := func(name string, options apply.Options) {
				first, next := widget("v1", name, before), widget("v1", name, "{port: 81}")
				options.Former = func(context.Context, manifest.ID) ([]*manifest.Manifest, error) {
					return []*manifest.Manifest{first}, nil
				}
				a := a.With(options)
				must(t, a, next)
				assert.Equal(t, map[string]any{"port": int64(81)}, live(t, next).Object["spec"])
				record.drain()
				must(t, a, next)
				assert.Len(t, record.drain(), 1)
				must(t, a, widget("v1", name, "{note: kept}"))
				assert.Equal(t, map[string]any{"note": "kept"}, live(t, next).Object["spec"], "we still own what we set")
			}

			first := widget("v1", "original", before)
			require.NoError(t, otherClient(t).Create(t.Context(), first.Object.DeepCopy(), client.FieldOwner(api.FieldManager)))
			check("original", apply.Options{})
			if crd.group == "unserved.example.com" {
				return // no other client can write the stored version
			}
			uid := must(t, a, widget("v1", "discarded", before)).UID
			merge(t, widget("v1beta1", "discarded", before), `{"spec":{"note":"a"}}`)
			merge(t, widget("v1", "discarded", before), `{"spec":{"note":"b"}}`)
			check("discarded", apply.Options{UID: uid})
		})
	}
}
