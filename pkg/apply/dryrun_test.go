package apply_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/release"
)

// stored is what a manifest says of an object, and what the server makes of it.
func stored(object *unstructured.Unstructured) map[string]any {
	if object == nil {
		return nil
	}
	object = object.DeepCopy()
	delete(object.Object, "status")
	for _, field := range []string{"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "resourceVersion", "uid"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	return object.Object
}

const foretoldDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: NS}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: a, image: "example.com/a:1"}, {name: b, image: "example.com/b:1"}]}
`

// TestForetell compares what is foretold with what becomes of the object.
func TestForetell(t *testing.T) {
	ns := namespace(t)
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, namespace: NS}\n"
	for _, tt := range []struct {
		name          string
		before, after string
		want          apply.Action
		does          apply.Action // if it is another
		dropped       []string
	}{
		{name: "it tells that an object is created", after: strings.Replace(config, "NAME", "created", 1) + "data: {a: b}", want: apply.Created},
		{
			name: "it tells what changes", want: apply.Applied,
			before: strings.Replace(foretoldDeployment, "name: a, n", "name: changes, n", 1),
			after:  strings.NewReplacer("name: a, n", "name: changes, n", "a:1", "a:2", `, {name: b, image: "example.com/b:1"}`, "").Replace(foretoldDeployment),
		},
		{
			name: "it leaves out what the server does not know", want: apply.Created, dropped: []string{".spec.template.spec.noSuchField"},
			after: strings.NewReplacer("name: a, n", "name: unknown, n", "spec: {containers", "spec: {noSuchField: 1, containers").Replace(foretoldDeployment),
		},
		{
			name: "it tells what goes with a default that is in the way", want: apply.Applied,
			before: strings.Replace(foretoldDeployment, "name: a, n", "name: default, n", 1),
			after:  strings.NewReplacer("name: a, n", "name: default, n", "spec:\n  sel", "spec:\n  strategy: {type: Recreate}\n  sel").Replace(foretoldDeployment),
		},
		{
			name: "it tells that an object is recreated", want: apply.Recreated,
			before: strings.Replace(config, "NAME", "recreated", 1) + "immutable: true\ndata: {a: b}",
			after:  strings.Replace(config, "{name: NAME,", "{name: recreated, annotations: {release.openshift.io/on-immutable: recreate},", 1) + "immutable: true\ndata: {a: c}",
		},
		{
			name: "it keeps what is created only", want: apply.Kept,
			before: strings.Replace(config, "{name: NAME,", "{name: once, annotations: {release.openshift.io/create-only: 'true'},", 1) + "data: {a: b}",
			after:  strings.Replace(config, "{name: NAME,", "{name: once, annotations: {release.openshift.io/create-only: 'true'},", 1) + "data: {a: c}",
		},
		{
			name: "it tells that what is created only is created", want: apply.Created,
			after: strings.Replace(config, "{name: NAME,", "{name: once-more, annotations: {release.openshift.io/create-only: 'true'},", 1) + "data: {a: b}",
		},
		{
			name: "it tells that an object is deleted", want: apply.Deleting, does: apply.Deleted,
			before: strings.Replace(config, "NAME", "deleted", 1),
			after:  strings.Replace(config, "{name: NAME,", "{name: deleted, annotations: {release.openshift.io/delete: 'true'},", 1),
		},
		{
			name: "it tells that there is nothing to delete", want: apply.Deleted,
			after: strings.Replace(config, "{name: NAME,", "{name: never-was, annotations: {release.openshift.io/delete: 'true'},", 1),
		},
		{
			name: "it does not fail for a tombstone of a kind that is not served", want: apply.Deleted,
			after: "apiVersion: nowhere.example.com/v1\nkind: Nothing\nmetadata: {name: a, annotations: {release.openshift.io/delete: 'true'}}",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			if tt.before != "" {
				must(t, a, parse(t, strings.ReplaceAll(tt.before, "NS", ns)))
			}
			m := parse(t, strings.ReplaceAll(tt.after, "NS", ns))
			before, _ := read(t, m)
			record.take()

			f, err := a.Foretell(t.Context(), m, release.Updating)
			require.NoError(t, err)
			assert.Equal(t, tt.want, f.Action)
			assert.Equal(t, tt.dropped, f.Dropped)
			for _, e := range record.take() {
				assert.True(t, e.method == http.MethodGet || strings.Contains(e.query, "dryRun=All"), "%s %s?%s", e.method, e.path, e.query)
			}
			untouched, _ := read(t, m)
			assert.Equal(t, before, untouched, "nothing is stored")

			does := tt.want
			if tt.does != "" {
				does = tt.does
			}
			change := must(t, a, m)
			assert.Equal(t, does, change.Action)
			assert.Equal(t, f.Dropped, change.Dropped)
			if after, err := read(t, m); err == nil && f.Object != nil {
				assert.Equal(t, stored(after), stored(f.Object))
			}
		})
	}
}

// TestForetellRefusals compares errors.
func TestForetellRefusals(t *testing.T) {
	ns := namespace(t)
	job := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, namespace: NS}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: 'example.com/a:1'}]}}}"
	for _, tt := range []struct{ name, before, after string }{
		{"it tells of an immutable field", foretoldDeployment, strings.ReplaceAll(foretoldDeployment, "app: a", "app: b")},
		{"it tells of a Job that is there", job, strings.Replace(job, "a:1", "a:2", 1)},
		{"it tells of an invalid object", "", strings.NewReplacer("name: a, n", "name: Invalid, n").Replace(foretoldDeployment)},
		{"it tells of a missing namespace", "", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: NS-missing}"},
		{"it tells of a missing kind", "", "apiVersion: nowhere.example.com/v1\nkind: Nothing\nmetadata: {name: a}"},
		{"it tells of a wrong type", "", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: NS}\ndata: [a]"},
		{"it tells of values of a wrong form", "", "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: NS}\ndata: {a: '%'}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _ := connect(t, owner)
			if tt.before != "" {
				must(t, a, parse(t, strings.ReplaceAll(tt.before, "NS", ns)))
			}
			m := parse(t, strings.ReplaceAll(tt.after, "NS", ns))
			_, foretold := a.Foretell(t.Context(), m, release.Updating)
			require.Error(t, foretold)
			_, err := a.Apply(t.Context(), m, release.Updating)
			require.EqualError(t, foretold, err.Error())
			assert.NotEmpty(t, apply.Explain(err))
			assert.NotContains(t, apply.Explain(err), m.File, "it leaves out what everybody knows")
		})
	}
}

func TestIsManifestError(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	for text, want := range map[string]bool{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: NS}\ndata: [a]":   true,
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: NS}\ndata: {a: '%'}": true,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}":                             true,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: NS-missing}":      false,
	} {
		_, err := a.Foretell(t.Context(), parse(t, strings.ReplaceAll(text, "NS", ns)), release.Updating)
		require.Error(t, err)
		assert.Equal(t, want, apply.IsManifestError(err), err)
	}
	assert.False(t, apply.IsManifestError(nil))
}

func TestListOwned(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, apply.Owner{Name: "list-owned", UID: owner.UID})
	want := map[string]bool{}
	const more = 210 // than one page
	for i := range more {
		name := "a" + strings.Repeat("x", i)
		want[name] = true
		must(t, a, parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+", namespace: "+ns+"}"))
	}
	foreign := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: foreign, namespace: "+ns+"}")
	require.NoError(t, somebody(t).Create(t.Context(), foreign.Object.DeepCopy()))
	record.take()
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
	assert.Len(t, record.take(), 2)
}

func TestLive(t *testing.T) {
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
	require.ErrorIs(t, err, apply.ErrNoMatch)
}
