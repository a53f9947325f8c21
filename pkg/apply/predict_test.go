package apply_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// stored returns a copy of an object without its status and without metadata that varies; nil for nil.
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

const predictedDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: NS}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: a, image: "example.com/a:1"}, {name: b, image: "example.com/b:1"}]}
`

// TestPredictMatchesTheApply compares the prediction with the result of Apply.
func TestPredictMatchesTheApply(t *testing.T) {
	ns := namespace(t)
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, namespace: NS}\n"
	for _, tt := range []struct {
		name          string
		before, after string
		want          apply.Action
		does          apply.Action // if it differs from want
		dropped       []string
	}{
		{name: "it predicts a creation", after: strings.Replace(config, "NAME", "created", 1) + "data: {a: b}", want: apply.Created},
		{
			name: "it predicts changes", want: apply.Applied,
			before: strings.Replace(predictedDeployment, "name: a, n", "name: changes, n", 1),
			after:  strings.NewReplacer("name: a, n", "name: changes, n", "a:1", "a:2", `, {name: b, image: "example.com/b:1"}`, "").Replace(predictedDeployment),
		},
		{
			name: "it omits fields that are unknown to the server", want: apply.Created, dropped: []string{".spec.template.spec.noSuchField"},
			after: strings.NewReplacer("name: a, n", "name: unknown, n", "spec: {containers", "spec: {noSuchField: 1, containers").Replace(predictedDeployment),
		},
		{
			name: "it predicts the removal of a default that blocks the apply", want: apply.Applied,
			before: strings.Replace(predictedDeployment, "name: a, n", "name: default, n", 1),
			after:  strings.NewReplacer("name: a, n", "name: default, n", "spec:\n  sel", "spec:\n  strategy: {type: Recreate}\n  sel").Replace(predictedDeployment),
		},
		{
			name: "it predicts a recreation", want: apply.Recreated,
			before: strings.Replace(config, "NAME", "recreated", 1) + "immutable: true\ndata: {a: b}",
			after:  strings.Replace(config, "{name: NAME,", "{name: recreated, annotations: {release.openshift.io/on-immutable: recreate},", 1) + "immutable: true\ndata: {a: c}",
		},
		{
			name: "it keeps a create-only object", want: apply.Kept,
			before: strings.Replace(config, "{name: NAME,", "{name: once, annotations: {release.openshift.io/create-only: 'true'},", 1) + "data: {a: b}",
			after:  strings.Replace(config, "{name: NAME,", "{name: once, annotations: {release.openshift.io/create-only: 'true'},", 1) + "data: {a: c}",
		},
		{
			name: "it predicts the creation of a create-only object", want: apply.Created,
			after: strings.Replace(config, "{name: NAME,", "{name: once-more, annotations: {release.openshift.io/create-only: 'true'},", 1) + "data: {a: b}",
		},
		{
			name: "it predicts a deletion", want: apply.Deleting, does: apply.Deleted,
			before: strings.Replace(config, "NAME", "deleted", 1),
			after:  strings.Replace(config, "{name: NAME,", "{name: deleted, annotations: {release.openshift.io/delete: 'true'},", 1),
		},
		{
			name: "it reports that there is nothing to delete", want: apply.Deleted,
			after: strings.Replace(config, "{name: NAME,", "{name: never-was, annotations: {release.openshift.io/delete: 'true'},", 1),
		},
		{
			name: "it accepts a tombstone of an unserved kind", want: apply.Deleted,
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
			record.drain()

			f, err := a.Predict(t.Context(), m, release.Updating)
			require.NoError(t, err)
			assert.Equal(t, tt.want, f.Action)
			assert.Equal(t, tt.dropped, f.Dropped)
			for _, e := range record.drain() {
				assert.True(t, e.method == http.MethodGet || strings.Contains(e.query, "dryRun=All"), "%s %s?%s", e.method, e.path, e.query)
			}
			untouched, _ := read(t, m)
			assert.Equal(t, before, untouched, "a dry run must not store anything")

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

// TestPredictReportsRejectionsOfTheApply compares the errors of Predict and Apply.
func TestPredictReportsRejectionsOfTheApply(t *testing.T) {
	ns := namespace(t)
	job := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, namespace: NS}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: 'example.com/a:1'}]}}}"
	for _, tt := range []struct{ name, before, after string }{
		{"it reports an immutable field", predictedDeployment, strings.ReplaceAll(predictedDeployment, "app: a", "app: b")},
		{"it reports an existing Job", job, strings.Replace(job, "a:1", "a:2", 1)},
		{"it reports an invalid object", "", strings.NewReplacer("name: a, n", "name: Invalid, n").Replace(predictedDeployment)},
		{"it reports a missing namespace", "", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: NS-missing}"},
		{"it reports a missing kind", "", "apiVersion: nowhere.example.com/v1\nkind: Nothing\nmetadata: {name: a}"},
		{"it reports a wrong type", "", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: NS}\ndata: [a]"},
		{"it reports malformed values", "", "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: NS}\ndata: {a: '%'}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _ := connect(t, owner)
			if tt.before != "" {
				must(t, a, parse(t, strings.ReplaceAll(tt.before, "NS", ns)))
			}
			m := parse(t, strings.ReplaceAll(tt.after, "NS", ns))
			_, predicted := a.Predict(t.Context(), m, release.Updating)
			require.Error(t, predicted)
			_, err := a.Apply(t.Context(), m, release.Updating)
			require.EqualError(t, predicted, err.Error())
			assert.NotEmpty(t, failure.Explain(err))
			assert.NotContains(t, failure.Explain(err), m.File, "the explanation must not name the manifest")
		})
	}
}
