package apply_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestUnknownFieldsAreDroppedAndReported(t *testing.T) {
	ns := namespace(t)
	serveCRD(t, widgets(t, "unknown.example.com"))
	for _, tt := range []struct {
		name, manifest string
		want           []string
	}{
		{"drops a field of the object", `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: unknown}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: x}
subjects: [{kind: User, name: u, apiGroup: rbac.authorization.k8s.io}]
userNames: [system:admin]
groupNames: null
`, []string{".userNames", ".groupNames"}},
		{"drops fields of the metadata", `apiVersion: v1
kind: ConfigMap
metadata: {namespace: NS, name: meta, foo: {bar: 1}}
`, []string{".metadata.foo"}},
		{"drops fields in lists and keyed lists, several at once", `apiVersion: apps/v1
kind: Deployment
metadata: {namespace: NS, name: nested}
spec:
  selector: {matchLabels: {app: a}}
  oops: 1
  template:
    metadata: {labels: {app: a}}
    spec:
      containers:
      - {name: a, image: b, ports: [{containerPort: 1}, {containerPort: 2, name: p, foo: x}, {containerPort: 2, protocol: UDP, foo: y}]}
      - {name: b, image: b, foo: 1, bar: {baz: 2}, env: [{name: "A],\"B", value: c, foo: 3}]}
      tolerations: [{key: a}, {key: b, foo: 4}]
`, []string{
			".spec.oops",
			`.spec.template.spec.containers[name="a"].ports[containerPort=2,protocol="TCP"].foo`,
			`.spec.template.spec.containers[name="a"].ports[containerPort=2,protocol="UDP"].foo`,
			`.spec.template.spec.containers[name="b"].foo`, `.spec.template.spec.containers[name="b"].bar`,
			`.spec.template.spec.containers[name="b"].env[name="A],\"B"].foo`, `.spec.template.spec.tolerations[1].foo`,
		}},
		{"finds names with dots and brackets", `apiVersion: unknown.example.com/v1
kind: Widget
metadata: {namespace: NS, name: names}
spec: {byName: {a: {known: x}, a.b: {known: x, foo: 1}, "a.b[c] d: e": {foo.bar: 2}}, sp.ec: 3}
`, []string{".spec.byName.a.b.foo", ".spec.byName.a.b[c] d: e.foo.bar", ".spec.sp.ec"}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			m := parse(t, strings.ReplaceAll(tt.manifest, "NS", ns))
			before := m.Object.DeepCopy()
			change := must(t, a, m)
			assert.Equal(t, apply.Created, change.Action)
			assert.ElementsMatch(t, tt.want, change.Dropped)
			assert.Equal(t, before, m.Object, "the manifest must not change")
			assert.LessOrEqual(t, len(record.drain()), len(tt.want)+1)
			assert.NotContains(t, fmt.Sprint(live(t, m).Object["spec"]), "foo")

			again := must(t, a, m)
			assert.Equal(t, change.ResourceVersion, again.ResourceVersion)
			assert.ElementsMatch(t, tt.want, again.Dropped)
		})
	}
}

func TestStrictApplierRejectsUnknownFields(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	m := parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: "+ns+", name: strict}, data: {a: b}, oops: 1}")
	_, err := a.With(apply.Options{Strict: true}).Apply(t.Context(), m, release.Updating)
	require.ErrorContains(t, err, ".oops: field not declared in schema")
	assert.Len(t, record.drain(), 1)
	assert.Equal(t, []string{".oops"}, must(t, a, m).Dropped, "the applier itself still omits them")
}

func TestTooManyUnknownFieldsAreAnError(t *testing.T) {
	a, record := connect(t, owner)
	m := configMap(t, namespace(t), "a", "{}", "{}")
	for i := range 100 {
		m.Object.Object[fmt.Sprintf("unknown%d", i)] = int64(i)
	}
	_, err := a.Apply(t.Context(), m, release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
	assert.Less(t, len(record.drain()), 40)
}

// TestUnsentUnknownFieldIsNotRetried uses a server that complains about a field that was not sent. Retrying would never end.
func TestUnsentUnknownFieldIsNotRetried(t *testing.T) {
	a := answering(t, 500, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,
		"message":"failed to create typed patch object (/a; example.com/v1, Kind=Thing): .spec.nothing: field not declared in schema"}`)
	_, err := a.Apply(t.Context(), thing(t, ""), release.Updating)
	require.ErrorContains(t, err, ".spec.nothing: field not declared in schema")
}

func TestUnknownFieldsOfRealBindingsAreDropped(t *testing.T) {
	a, _ := connect(t, owner)
	dropped := 0
	for _, m := range realManifests(t, "rbac.authorization.k8s.io", "ClusterRoleBinding") {
		if m.Tombstone() {
			continue
		}
		change := must(t, a, m)
		dropped += len(change.Dropped)
		_, kept, _ := unstructured.NestedFieldNoCopy(m.Object.Object, "userNames")
		assert.Equal(t, kept, len(change.Dropped) > 0, "%s: %v", m, change.Dropped)
	}
	assert.Positive(t, dropped)
}
