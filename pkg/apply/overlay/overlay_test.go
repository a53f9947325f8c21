package overlay

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/cluster-version/cvo/pkg/api"
)

// overlaid returns an overlay on an object of other writers whose items all have names. ours lists our fields.
func overlaid(t *testing.T, live, body, ours string) *Overlay {
	t.Helper()
	object := &unstructured.Unstructured{Object: decodeJSON(t, live)}
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{}}
		require.NoError(t, json.Unmarshal([]byte(fields), e.FieldsV1))
		return e
	}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{
		entry("somebody", metav1.ManagedFieldsOperationUpdate, `{"f:spec":{"f:l":{"k:{\"name\":\"theirs\"}":{}},"f:containers":{"k:{\"name\":\"theirs\"}":{}},"f:initContainers":{"k:{\"name\":\"theirs\"}":{}},"f:ports":{"k:{\"port\":1,\"protocol\":\"TCP\"}":{}}}}`),
		entry(api.FieldManager, metav1.ManagedFieldsOperationApply, ours),
	})
	return Lay(schema.GroupVersionKind{}, decodeJSON(t, body), object)
}

// items returns the items of a list, one for each letter.
func items(names string) (list []any) {
	for _, name := range names {
		list = append(list, map[string]any{"name": string(name)})
	}
	return list
}

func specOf(list []any) map[string]any { return map[string]any{"spec": map[string]any{"l": list}} }

func order(o *Overlay) (names string) {
	for _, item := range o.items(o.root().field("spec").field("l")) {
		names += (*item.path[len(item.path)-1].Key)[0].Value.AsString()
	}
	return names
}

// TestItemsAreOrderedAsInTheServer compares the order with structured-merge-diff's, because the positions in rejections depend on it.
func TestItemsAreOrderedAsInTheServer(t *testing.T) {
	parser, err := typed.NewParser(`types:
- {name: object, map: {fields: [{name: spec, type: {namedType: spec}}]}}
- {name: spec, map: {fields: [{name: l, type: {list: {elementType: {namedType: item}, elementRelationship: associative, keys: [name]}}}]}}
- {name: item, map: {fields: [{name: name, type: {scalar: string}}]}}`)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 1))
	some := func() (names string) {
		for _, i := range random.Perm(6)[:random.IntN(7)] {
			names += string(rune('a' + i))
		}
		return names
	}
	for range 2000 {
		live, body := some(), some()
		there, err := parser.Type("object").FromUnstructured(specOf(items(live)))
		require.NoError(t, err)
		laid, err := parser.Type("object").FromUnstructured(specOf(items(body)))
		require.NoError(t, err)
		merged, err := there.Merge(laid)
		require.NoError(t, err)
		want := ""
		list, _, _ := unstructured.NestedSlice(merged.AsValue().Unstructured().(map[string]any), "spec", "l")
		for _, item := range list {
			want += item.(map[string]any)["name"].(string)
		}
		o := overlaid(t, "{}", "{}", "{}")
		o.live, o.body = specOf(items(live)), specOf(items(body))
		require.Equal(t, want, order(o), "%s laid over %s", body, live)
	}
}

// TestIndexesShowNoKeys has an entry of a client that names an item by its index before another entry shows the key.
func TestIndexesShowNoKeys(t *testing.T) {
	o := overlaid(t, "{}", "{}", `{"f:spec":{"f:l":{"i:0":{}}}}`)
	o.live, o.body = specOf(items("ab")), specOf(items("b"))
	assert.Equal(t, "ab", order(o))
}

func TestOurDroppedItemsAreRemoved(t *testing.T) {
	o := overlaid(t, "{}", "{}", `{"f:spec":{"f:l":{"k:{\"name\":\"a\"}":{".":{}},"k:{\"name\":\"theirs\"}":{".":{}}}}}`)
	o.live = specOf(append(items("axb"), map[string]any{"name": "theirs"}))
	o.body = specOf(items("b"))
	assert.Equal(t, "xbtheirs", order(o), "items with foreign fields are kept")
}

func TestRejectionsNameTheBlockingField(t *testing.T) {
	const live = `{"metadata":{"annotations":{"a":"b"}},"spec":{"type":"a","rolling":{"x":1},"l":[{"name":"v","a":{},"n":1},{"name":"theirs","b":{}}],
		"containers":[{"name":"c","x":1},{"name":"theirs"}],"ports":[{"port":1,"protocol":"TCP","name":"p"},{"port":2,"protocol":"TCP","name":"q"}]}}`
	const body = `{"spec":{"type":"a","l":[{"name":"v","c":{}}],"containers":[{"name":"c"}],"initContainers":[{"name":"theirs"}],"ports":[{"port":2,"name":"q"},{"port":3,"name":"p"}]}}`
	const invalid, forbidden, required = metav1.CauseTypeFieldValueInvalid, metav1.CauseTypeForbidden, metav1.CauseTypeFieldValueRequired
	const duplicate, missing = metav1.CauseTypeFieldValueDuplicate, metav1.CauseTypeFieldValueNotFound
	for _, tt := range []struct {
		name string
		list []Rejection
		// named are the values that the rejections name. near are the values around the rejected fields.
		named, near []string
	}{
		{name: "names a field that the body lacks", list: []Rejection{{"spec.rolling", forbidden}}, named: []string{".spec.rolling"}},
		{name: "names a field once", list: []Rejection{{"spec.rolling", forbidden}, {"spec.rolling.x", invalid}}, named: []string{".spec.rolling"}},
		{name: "names a value that lacks a part", list: []Rejection{{"spec.rolling.needed", required}}, named: []string{".spec.rolling"}},
		{name: "does not name a value of ours that lacks a part", list: []Rejection{{"spec.l[0].c.needed", required}}, near: []string{`.spec.l[name="v"].a`, `.spec.l[name="theirs"]`}},
		{name: "does not name a missing value", list: []Rejection{{"x", invalid}, {"", forbidden}}},
		{name: "does not name metadata", list: []Rejection{{"metadata.annotations[a]", invalid}}},
		{name: "does not name the whole spec", list: []Rejection{{"spec", invalid}}, near: []string{".spec.rolling"}},
		{name: "names an item that lacks a part", list: []Rejection{{"spec.l[1].x.y", required}}, named: []string{`.spec.l[name="theirs"]`}},
		{name: "points to an item with our value", list: []Rejection{{"spec.ports[2].name", duplicate}}, near: []string{`.spec.ports[port=1,protocol="TCP"]`}},
		{name: "points to a container with the name of an init container", list: []Rejection{{"spec.initContainers[0].name", duplicate}}, near: []string{`.spec.containers[name="theirs"]`}},
		{name: "searches for missing parts last", list: []Rejection{{"spec.l[1].b", missing}, {"spec.rolling", forbidden}}, named: []string{".spec.rolling"}},
		{name: "names a value with a missing part", list: []Rejection{{"spec.l[1].b", missing}}, named: []string{`.spec.l[name="theirs"]`}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			o := overlaid(t, live, body, `{}`)
			var named []string
			for _, v := range o.Named(tt.list) {
				named = append(named, v.Path.String())
			}
			assert.Equal(t, tt.named, named)
			var near []string
			for _, v := range o.Near(tt.list) {
				near = append(near, v.Path.String())
			}
			assert.Subset(t, near, tt.near)
		})
	}
}

func TestUnionMembersAreRecognizedByKind(t *testing.T) {
	kind := func(group, version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	field := func(names ...string) (path fieldpath.Path) {
		for _, name := range names {
			if name == "[]" {
				path = append(path, fieldpath.PathElement{Key: &value.FieldList{}})
				continue
			}
			path = append(path, fieldName(name))
		}
		return path
	}
	deployment, service := kind("apps", "v1", "Deployment"), kind("", "v1", "Service")
	for _, tt := range []struct {
		name string
		kind schema.GroupVersionKind
		path fieldpath.Path
		want bool
	}{
		{"a source of a volume", deployment, field("spec", "template", "spec", "volumes", "[]", "configMap"), true},
		{"the name of a volume", deployment, field("spec", "template", "spec", "volumes", "[]", "name"), false},
		{"a handler of a probe", deployment, field("spec", "template", "spec", "containers", "[]", "livenessProbe", "exec"), true},
		{"the period of a probe", deployment, field("spec", "template", "spec", "containers", "[]", "livenessProbe", "periodSeconds"), false},
		{"parameters of a strategy", deployment, field("spec", "strategy", "rollingUpdate"), true},
		{"replicas", deployment, field("spec", "replicas"), false},
		{"a container", deployment, field("spec", "template", "spec", "containers", "[]"), false},
		{"parameters of an affinity", service, field("spec", "sessionAffinityConfig"), true},
		{"ports", service, field("spec", "ports"), false},
		{"a field that does not exist", service, field("spec", "nothing", "at", "all"), false},
		{"a custom resource", kind("example.com", "v1", "Thing"), field("spec", "strategy", "rollingUpdate"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, (&Overlay{kind: tt.kind}).isMember(tt.path))
		})
	}
}

// FuzzRejections uses arbitrary objects and rejected fields. It must neither panic nor modify the object.
//
//threat:errors-api-server
func FuzzRejections(f *testing.F) {
	f.Add(`{"spec":{"volumes":[{"name":"a","x":1}]}}`, `spec.volumes[0].x`)
	f.Add(`{"spec":{"l":null}}`, `spec.l[0][1].x`)
	f.Fuzz(func(t *testing.T, text, name string) {
		var object map[string]any
		if json.Unmarshal([]byte(text), &object) != nil || object == nil {
			t.Skip()
		}
		before := runtime.DeepCopyJSON(object)
		for _, kind := range []metav1.CauseType{metav1.CauseTypeForbidden, metav1.CauseTypeFieldValueDuplicate} {
			o := Lay(schema.GroupVersionKind{Version: "v1", Kind: "Service"}, map[string]any{}, &unstructured.Unstructured{Object: object})
			for _, v := range append(o.Named([]Rejection{{name, kind}}), o.Near([]Rejection{{name, kind}})...) {
				Without(object, v.Path)
			}
			o.Object()
		}
		require.Equal(t, before, object)
	})
}

func TestFieldPathsAreSplit(t *testing.T) {
	for field, want := range map[string][]string{
		"":                      nil,
		"spec.ports[1].name":    {"spec", "ports", "[1", "name"},
		"data[a.b]":             {"data", "[a.b"},
		"a[0][b]":               {"a", "[0", "[b"},
		"a[unfinished":          {"a", "[unfinished"},
		"spec.versions[0].name": {"spec", "versions", "[0", "name"},
	} {
		assert.Equal(t, want, fieldSteps(field), field)
	}
}

func decodeJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &object))
	return object
}

// Another writer may have set a part of an object, a list with keys or a set, so Drop removes these only in parts.
func TestDroppedValuesAreRemoved(t *testing.T) {
	o := Lay(schema.GroupVersionKind{}, decodeJSON(t, `{"metadata":{"finalizers":["b"]},"a":{"f":1}}`), &unstructured.Unstructured{Object: decodeJSON(t,
		`{"metadata":{"finalizers":["a","x"],"ownerReferences":[{"uid":"a","name":"n"},{"uid":"x"}]},"a":{"b":1,"c":["x"]},"m":{"a":1,"x":1},"e":"f"}`)})
	o.Drop(func(path fieldpath.Path) bool { return !strings.Contains(path.String(), "x") })
	assert.Equal(t, decodeJSON(t, `{"metadata":{"finalizers":["x","b"],"ownerReferences":[{"uid":"x"}]},"a":{"f":1},"m":{"x":1}}`), o.Object())
}

func TestListsOfASchemaAreMerged(t *testing.T) {
	const crd = `{"properties":{
		"set":{"items":{"type":"string"},"x-kubernetes-list-type":"set"},
		"whole":{"items":{"type":"string"}},
		"ports":{"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port","family"],"items":{"properties":{
			"port":{},"family":{"default":4},"sets":{"additionalProperties":{"x-kubernetes-list-type":"set"}}}}}}}`
	var lists apiextensionsv1.JSONSchemaProps
	require.NoError(t, json.Unmarshal([]byte(crd), &lists))
	for _, tt := range []struct{ name, live, body, want string }{
		{"unites sets", `{"set":["a","x"]}`, `{"set":["b","a"]}`, `{"set":["b","a","x"]}`},
		{"replaces other lists", `{"whole":["a","x"]}`, `{"whole":["b"]}`, `{"whole":["b"]}`},
		{
			"finds items by the default of a key", `{"ports":[{"port":1,"family":4,"a":1},{"port":1,"family":6}]}`, `{"ports":[{"port":1}]}`,
			`{"ports":[{"port":1,"family":4,"a":1},{"port":1,"family":6}]}`,
		},
		{"looks into items and maps", `{"ports":[{"port":1,"sets":{"m":["x"]}}]}`, `{"ports":[{"port":1,"sets":{"m":["a"]}}]}`, `{"ports":[{"port":1,"sets":{"m":["x","a"]}}]}`},
		{"replaces a list whose items had no keys", `{"ports":["a"]}`, `{"ports":[{"port":1}]}`, `{"ports":[{"port":1}]}`},
		{"replaces a set whose members were objects", `{"set":[{"a":1}]}`, `{"set":["a"]}`, `{"set":["a"]}`},
		{"replaces another value", `{"set":"a","ports":{"a":1}}`, `{"set":["a"],"ports":[{"port":1}]}`, `{"set":["a"],"ports":[{"port":1}]}`},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			o := Lay(schema.GroupVersionKind{}, decodeJSON(t, tt.body), &unstructured.Unstructured{Object: decodeJSON(t, tt.live)})
			got, err := json.Marshal(o.With(NewLists(&lists)).Object())
			require.NoError(t, err)
			assert.JSONEq(t, tt.want, string(got))
		})
	}
}
