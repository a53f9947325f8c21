package apply_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
)

func TestListOwnedReturnsOurObjects(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, body.Owner{Name: "list-owned", UID: owner.UID})
	want := map[string]bool{}
	const more = 210 // more than one page
	for i := range more {
		name := "a" + strings.Repeat("x", i)
		want[name] = true
		must(t, a, parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+", namespace: "+ns+"}"))
	}
	foreign := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: foreign, namespace: "+ns+"}")
	require.NoError(t, otherClient(t).Create(t.Context(), foreign.Object.DeepCopy()))
	record.drain()
	got := map[string]bool{}
	require.NoError(t, a.ListOwned(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, func(data json.RawMessage) error {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(append([]byte(`{"apiVersion":"v1","kind":"ConfigMap",`), data[1:]...), object); err != nil {
			return err
		}
		got[object.GetName()] = true
		return nil
	}))
	assert.Equal(t, want, got)
	assert.Len(t, record.drain(), 2)
}

func TestLiveReturnsTheExistingObject(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	m := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: "+ns+"}\ndata: {a: b}")
	object, err := a.Live(t.Context(), m)
	require.NoError(t, err)
	assert.Nil(t, object)
	must(t, a, m)
	object, err = a.Live(t.Context(), m)
	require.NoError(t, err)
	assert.Equal(t, live(t, m), object)
	none := parse(t, "apiVersion: nowhere.example.com/v1\nkind: Nothing\nmetadata: {name: a}")
	_, err = a.Live(t.Context(), none)
	require.ErrorIs(t, err, kinds.ErrNoMatch)
}
