package apply_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podOf returns a workload whose pods contain the given text.
func podOf(kind, pod string) (apiVersion, text, at string) {
	if kind == "CronJob" {
		return "batch/v1", cronJob(pod), "spec.jobTemplate.spec.template.spec."
	}
	return "apps/v1", workload("", "", pod), podAt
}

func TestDroppedServiceAccountsAreRemoved(t *testing.T) {
	ns := namespace(t)
	for _, kind := range []string{"Deployment", "DaemonSet", "StatefulSet", "CronJob"} {
		for _, field := range []string{"serviceAccountName", "serviceAccount"} {
			t.Run(kind+" "+field, func(t *testing.T) {
				a, record := connect(t, owner)
				apiVersion, text, path := podOf(kind, field+": x, ")
				first, next := change{apiVersion: apiVersion, kind: kind, text: text, old: field + ": x, ", next: ""}.manifests(t, ns, slug(kind+" "+field), "note: x")
				created := must(t, a, first)
				assert.Equal(t, created.ResourceVersion, must(t, a, first).ResourceVersion)
				as(t, "kubectl-edit", first, types.MergePatchType, nested(path, `{"serviceAccountName":"y","serviceAccount":"y"}`))
				must(t, a, first)
				assert.Equal(t, "x", at(live(t, first).Object, path+"serviceAccountName"))
				assert.Equal(t, "x", at(live(t, first).Object, path+"serviceAccount"))
				record.drain()
				must(t, a, next)
				assert.Len(t, record.drain(), 1)
				assert.Nil(t, at(live(t, first).Object, path+"serviceAccountName"))
				assert.Nil(t, at(live(t, first).Object, path+"serviceAccount"))
			})
		}
	}
}

// nested puts JSON under a path that ends with a dot.
func nested(path, text string) string {
	steps := splitPath(path)
	for _, step := range slices.Backward(steps) {
		text = `{"` + step + `":` + text + `}`
	}
	return text
}

func TestForeignServiceAccountsAreKept(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	_, text, path := podOf("Deployment", "serviceAccountName: x, ")
	first, next := change{apiVersion: "apps/v1", kind: "Deployment", text: text, old: "serviceAccountName: x, ", next: ""}.manifests(t, ns, "a", "note: x")
	require.NoError(t, otherClient(t).Create(t.Context(), first.Object.DeepCopy(), client.FieldOwner("kubectl-create")))
	must(t, a, first)
	must(t, a, next)
	assert.Equal(t, "x", at(live(t, first).Object, path+"serviceAccountName"))
}

func splitPath(path string) []string { return strings.Split(strings.TrimSuffix(path, "."), ".") }
