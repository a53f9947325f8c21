package apply

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/cluster-version/cvo/pkg/api"
)

// overlaid is an overlay of objects that others made, all of whose items have names; ours says which fields are.
func overlaid(t *testing.T, live, body, ours string) *overlay {
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
	return lay(decodeJSON(t, body), object)
}

// items makes the items of a list, one of each letter.
func items(names string) (list []any) {
	for _, name := range names {
		list = append(list, map[string]any{"name": string(name)})
	}
	return list
}

func specOf(list []any) map[string]any { return map[string]any{"spec": map[string]any{"l": list}} }

func order(o *overlay) (names string) {
	for _, item := range o.items(o.root().field("spec").field("l")) {
		names += (*item.path[len(item.path)-1].Key)[0].Value.AsString()
	}
	return names
}

// TestOrderOfItems compares with structured-merge-diff: on its order the positions in refusals rest.
func TestOrderOfItems(t *testing.T) {
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

func TestOurItemsGo(t *testing.T) {
	o := overlaid(t, "{}", "{}", `{"f:spec":{"f:l":{"k:{\"name\":\"a\"}":{".":{}},"k:{\"name\":\"theirs\"}":{".":{}}}}}`)
	o.live = specOf(append(items("axb"), map[string]any{"name": "theirs"}))
	o.body = specOf(items("b"))
	assert.Equal(t, "xbtheirs", order(o), "but what others have something of stays")
}

func TestInTheWay(t *testing.T) {
	const live = `{"metadata":{"annotations":{"a":"b"}},"spec":{"type":"a","rolling":{"x":1},"other":1,"l":[{"name":"v","a":{},"n":1},{"name":"theirs","b":{}}],
		"containers":[{"name":"c","x":1},{"name":"theirs"}],"ports":[{"port":1,"protocol":"TCP","name":"p","nodePort":5},{"port":2,"protocol":"TCP","name":"q","nodePort":5}]}}`
	const body = `{"spec":{"type":"a","l":[{"name":"v","c":{}}],"containers":[{"name":"c"}],"initContainers":[{"name":"theirs"}],"ports":[{"port":2,"name":"q"},{"port":3,"name":"p","nodePort":5}]}}`
	const invalid, forbidden, required = metav1.CauseTypeFieldValueInvalid, metav1.CauseTypeForbidden, metav1.CauseTypeFieldValueRequired
	const duplicate, missing = metav1.CauseTypeFieldValueDuplicate, metav1.CauseTypeFieldValueNotFound
	for _, tt := range []struct {
		name string
		list []cause
		want []string
	}{
		{"takes a field that the body lacks", []cause{{"spec.rolling", forbidden, "no"}}, []string{".spec.rolling"}},
		{"takes it once", []cause{{"spec.rolling", forbidden, "no"}, {"spec.rolling.x", invalid, "no"}}, []string{".spec.rolling"}},
		{"takes none that the body has", []cause{{"spec.type", forbidden, "no"}}, nil},
		{"takes what lacks a part", []cause{{"spec.rolling.needed", required, "no"}}, []string{".spec.rolling"}},
		{"takes none of ours that lacks a part", []cause{{"spec.l[0].c.needed", required, "no"}}, nil},
		{"takes none that is nowhere", []cause{{"spec.x", invalid, "no"}, {"spec.l[7].x", invalid, "no"}, {"", forbidden, "no"}}, nil},
		{"takes no metadata", []cause{{"metadata.annotations[a]", invalid, "no"}}, nil},
		{"takes a whole spec only if nothing is left of it", []cause{{"spec", invalid, "whim must stay"}}, nil},
		{"takes an item that cannot stand", []cause{{"spec.l[1].x.y", required, "no"}}, []string{`.spec.l[name="theirs"]`}},
		{"takes the other member", []cause{{"spec.l[0].c", forbidden, "may not specify more than 1 type"}}, []string{`.spec.l[name="v"].a`}},
		{"takes the member that is named", []cause{{"spec.l[0].a", forbidden, "may not specify more than 1 type"}}, []string{`.spec.l[name="v"].a`}},
		{"takes what is quoted", []cause{{"spec.l[0].c", invalid, "must not be below `other`"}}, []string{".spec.other"}},
		{"takes what is named next to it", []cause{{"spec.l[0]", required, "exactly one of a or c is required"}}, []string{`.spec.l[name="v"].a`}},
		{"takes nothing that is only mentioned", []cause{{"spec.l[0].c", invalid, "a is nice"}}, nil},
		{"takes their item with our value", []cause{{"spec.ports[2].name", duplicate, "p"}}, []string{`.spec.ports[port=1,protocol="TCP"]`}},
		{"takes their item with our value that is named itself", []cause{{"spec.ports[0].name", duplicate, "p"}}, []string{`.spec.ports[port=1,protocol="TCP"]`}},
		{"takes their value in our item", []cause{{"spec.ports", duplicate, "duplicate nodePort: {TCP 5}"}}, []string{`.spec.ports[port=1,protocol="TCP"]`, `.spec.ports[port=2,protocol="TCP"].nodePort`}},
		{"takes a container that has the name of another kind's", []cause{{"spec.initContainers[0].name", duplicate, "theirs"}}, []string{`.spec.containers[name="theirs"]`}},
		{"looks for what is missing last", []cause{{"spec.l[1].b", missing, "x"}, {"spec.rolling", forbidden, "no"}}, []string{".spec.rolling"}},
		{"takes what misses something", []cause{{"spec.l[1].b", missing, "x"}}, []string{`.spec.l[name="theirs"]`}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			var got []string
			for _, path := range overlaid(t, live, body, `{}`).inTheWay(tt.list) {
				got = append(got, path.String())
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestFieldSteps(t *testing.T) {
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
