package apply_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// listsCRD has lists with keys, sets, and a list that is owned as a whole. In v1, note has another type, and accessPolicy is new.
const listsCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: panels.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Panel, plural: panels, singular: panel, listKind: PanelList}
  versions:
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      note: {type: string}, LISTS}}}}}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      note: {type: array, items: {type: string}}, accessPolicy: {type: string, default: deny}, LISTS}}}}}}
`

const panelLists = `
      whole: {type: array, items: {type: string}},
      names: {type: array, x-kubernetes-list-type: set, items: {type: string}},
      groups: {type: object, additionalProperties: {type: array, x-kubernetes-list-type: set, items: {type: string}}},
      ports: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [port, family], items: {type: object, required: [port], properties: {
        port: {type: integer}, family: {type: string, default: IPv4}, x: {type: string}}}}`

// Neither a move nor a replacement may remove what other clients added to our lists: a finalizer that is gone ends the wait of its client.
func TestEntriesOfOtherWritersAreKeptInANewVersion(t *testing.T) {
	const group = "lists.example.com"
	serveCRD(t, parse(t, strings.NewReplacer("LISTS", panelLists, "GROUP", group).Replace(listsCRD)))
	ns := namespace(t)
	panel := func(version, name, finalizers, spec string) *manifest.Manifest {
		return parse(t, fmt.Sprintf("apiVersion: %s/%s\nkind: Panel\nmetadata: {name: %s, namespace: %s, finalizers: [%s]}\nspec: {%s}", group, version, name, ns, finalizers, spec))
	}
	const before = "names: [a, dropped], groups: {g: [a, dropped]}, ports: [{port: 1}, {port: 9, family: IPv6}]"
	const after = "names: [a], groups: {g: [a]}, ports: [{port: 1}]"
	for _, tt := range []struct{ name, patch, before, after string }{
		{"in a move", "{}", before + ", whole: [a]", after + ", whole: [b]"},
		{"in a replacement", "{}", before + ", note: old", after + ", note: [new]"},
		{"in a replacement without managedFields", `{"metadata":{"managedFields":[{}]}}`, before + ", note: old", after + ", note: [new]"},
	} {
		t.Run("it keeps them "+tt.name, func(t *testing.T) {
			a, _ := connect(t, owner)
			first := panel("v1beta1", slug(tt.name), "example.com/ours, example.com/dropped", tt.before)
			next := panel("v1", slug(tt.name), "example.com/ours", tt.after)
			applied := must(t, a, first)
			as(t, "other", first, types.JSONPatchType, `[
				{"op":"add","path":"/metadata/finalizers/-","value":"example.com/theirs"},
				{"op":"add","path":"/metadata/ownerReferences/-","value":{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"5b5c5d5e-0000-4000-8000-00000000000a"}},
				{"op":"add","path":"/spec/names/-","value":"theirs"},
				{"op":"add","path":"/spec/groups/g/-","value":"theirs"},
				{"op":"add","path":"/spec/ports/0/x","value":"theirs"},
				{"op":"add","path":"/spec/ports/-","value":{"port":2,"family":"IPv6"}}]`)
			as(t, "other", first, types.MergePatchType, tt.patch)
			former := func(context.Context, manifest.ID) ([]*manifest.Manifest, error) {
				return []*manifest.Manifest{first}, nil
			}
			a = a.With(apply.Options{UID: applied.UID, Former: former})

			predicted, err := a.Predict(t.Context(), next, release.Updating)
			require.NoError(t, err)
			must(t, a, next)
			obj := live(t, next)
			assert.ElementsMatch(t, []string{"example.com/ours", "example.com/theirs"}, obj.GetFinalizers())
			assert.Len(t, obj.GetOwnerReferences(), 2)
			assert.ElementsMatch(t, []any{"a", "theirs"}, at(obj.Object, "spec.names"))
			assert.ElementsMatch(t, []any{"a", "theirs"}, at(obj.Object, "spec.groups.g"))
			assert.ElementsMatch(t, []any{
				map[string]any{"port": int64(1), "family": "IPv4", "x": "theirs"}, map[string]any{"port": int64(2), "family": "IPv6"},
			}, at(obj.Object, "spec.ports"), "the server sets a key by default")
			assert.Equal(t, obj.Object["spec"], predicted.Object.Object["spec"])
			assert.Equal(t, obj.GetFinalizers(), predicted.Object.GetFinalizers())
			as(t, "other", next, types.MergePatchType, `{"metadata":{"finalizers":null}}`)
		})
	}
}

// A list may get keys. The server cannot read the items of the earlier release, which lack them.
func TestListsMayGetKeys(t *testing.T) {
	const group = "keyed.example.com"
	definition := func(key string) *manifest.Manifest {
		return parse(t, strings.NewReplacer("GROUP", group, "LISTS", "ports: {type: array, "+key+" properties: {port: {type: integer}, name: {type: string}}}}").Replace(listsCRD))
	}
	serveCRD(t, definition("items: {type: object,"))
	ns := namespace(t)
	panel := func(name, spec string) *manifest.Manifest {
		return parse(t, fmt.Sprintf("apiVersion: %s/v1\nkind: Panel\nmetadata: {name: %s, namespace: %s}\nspec: %s", group, name, ns, spec))
	}
	a, _ := connect(t, owner)
	must(t, a, panel("owned", "{ports: [{port: 1}]}"))
	applied := must(t, a, panel("discarded", "{ports: [{port: 1}]}"))
	as(t, "other", panel("discarded", "{}"), types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
	must(t, a, panel("theirs", "{}"))
	as(t, "kubectl", panel("theirs", "{}"), types.MergePatchType, `{"spec":{"ports":[{"port":1}]}}`)
	must(t, a, definition("x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name],"))

	require.EventuallyWithT(t, func(c *assert.CollectT) { // the server uses the changed definition a moment later
		_, err := a.Apply(t.Context(), panel("theirs", "{accessPolicy: allow}"), release.Updating)
		assert.ErrorContains(c, err, "correct or remove the named value in the object", "the list belongs to another client")
	}, eventually, tick)
	assert.Equal(t, []any{map[string]any{"port": int64(1)}}, at(live(t, panel("theirs", "{}")).Object, "spec.ports"))
	must(t, a, panel("owned", "{ports: [{name: a, port: 1}]}"))
	must(t, a.With(apply.Options{UID: applied.UID}), panel("discarded", "{ports: [{name: a, port: 1}]}"))
	for _, name := range []string{"owned", "discarded"} {
		assert.Equal(t, []any{map[string]any{"name": "a", "port": int64(1)}}, at(live(t, panel(name, "{}")).Object, "spec.ports"), name)
	}
}
