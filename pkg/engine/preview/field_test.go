package preview

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/difference"
)

// thing parses an object from YAML. Its numbers are float64, which does not matter for a comparison.
func thing(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
	if object.Object == nil {
		object.Object = map[string]any{}
	}
	if object.GetKind() == "" {
		object.SetAPIVersion("example.com/v1")
		object.SetKind("Thing")
	}
	if object.GetName() == "" {
		object.SetName("thing")
	}
	return object
}

// owned adds a writer's set of fields, as JSON.
func owned(object *unstructured.Unstructured, fields string) *unstructured.Unstructured {
	if fields == "" {
		return object
	}
	entry := metav1.ManagedFieldsEntry{Manager: "m", Operation: "Apply", APIVersion: object.GetAPIVersion(), FieldsType: "FieldsV1"}
	entry.FieldsV1 = metav1.NewFieldsV1(fields)
	object.SetManagedFields(append(object.GetManagedFields(), entry))
	return object
}

func TestCompareListsDifferences(t *testing.T) {
	containers := `{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{}}}}}}`
	finalizers := `{"f:metadata":{"f:finalizers":{".":{},"v:\"x\"":{}}}}`
	for _, tt := range []struct {
		name          string
		before, after string
		owned         string
		want          []difference.Field
	}{
		{name: "it finds no difference in equal objects", before: `{spec: {a: [1, {b: c}]}}`, after: `{spec: {a: [1, {b: c}]}}`},
		{
			name:   "it ignores fields that the server maintains",
			before: `{metadata: {name: a, resourceVersion: "1", generation: 1, uid: u, creationTimestamp: x, selfLink: s, annotations: {deprecated.daemonset.template.generation: "1"}}, status: {a: 1}}`,
			after:  `{metadata: {name: a, resourceVersion: "2", generation: 2, annotations: {deprecated.daemonset.template.generation: "2"}}, status: {a: 2}}`,
		},
		{
			name: "it treats null as absent", before: `{spec: {a: null}}`, after: `{spec: {}}`,
		},
		{
			name:   "it compares maps by key",
			before: `{spec: {a: {b: 1, c: 1, d: 1}}}`, after: `{spec: {a: {b: 2, c: 1, e: 1}}}`,
			want: []difference.Field{
				{Op: difference.Modified, Path: "spec.a.b", Old: 1.0, New: 2.0},
				{Op: difference.Removed, Path: "spec.a.d", Old: 1.0},
				{Op: difference.Added, Path: "spec.a.e", New: 1.0},
			},
		},
		{
			name:   "it reports an added or removed map as one difference",
			before: `{spec: {gone: {a: 1, b: 2}}}`, after: `{spec: {new: {a: {b: 2}}}}`,
			want: []difference.Field{
				{Op: difference.Removed, Path: "spec.gone", Old: map[string]any{"a": 1.0, "b": 2.0}},
				{Op: difference.Added, Path: "spec.new", New: map[string]any{"a": map[string]any{"b": 2.0}}},
			},
		},
		{
			name:   "it quotes names with special characters",
			before: `{metadata: {annotations: {a.b/c: x}}}`, after: `{metadata: {annotations: {a.b/c: q}}}`,
			want: []difference.Field{{Op: difference.Modified, Path: `metadata.annotations["a.b/c"]`, Old: "x", New: "q"}},
		},
		{
			name:   "it reports a change of type",
			before: `{spec: {a: "1", b: {c: 1}, d: [1]}}`, after: `{spec: {a: 1, b: [1], d: {"0": 1}}}`,
			want: []difference.Field{
				{Op: difference.Modified, Path: "spec.a", Old: "1", New: 1.0},
				{Op: difference.Modified, Path: "spec.b", Old: map[string]any{"c": 1.0}, New: []any{1.0}},
				{Op: difference.Modified, Path: "spec.d", Old: []any{1.0}, New: map[string]any{"0": 1.0}},
			},
		},
		{
			name:   "it compares a list without ownership information by position",
			before: `{spec: {args: [a, b, c]}}`, after: `{spec: {args: [a, x]}}`,
			want: []difference.Field{
				{Op: difference.Modified, Path: "spec.args[1]", Old: "b", New: "x"}, {Op: difference.Removed, Path: "spec.args[2]", Old: "c"},
			},
		},
		{
			name:   "it does not report moved entries of a list without ownership information",
			before: `{spec: {args: [a, b, c, d, e, f]}}`, after: `{spec: {args: [a, new, b, x, d, f, last]}}`,
			want: []difference.Field{
				{Op: difference.Added, Path: "spec.args[1]", New: "new"},
				{Op: difference.Modified, Path: "spec.args[3]", Old: "c", New: "x"},
				{Op: difference.Removed, Path: "spec.args[4]", Old: "e"},
				{Op: difference.Added, Path: "spec.args[6]", New: "last"},
			},
		},
		{
			name:   "it compares the entries of a list without ownership information",
			before: `{spec: {rules: [{verbs: [get]}]}}`, after: `{spec: {rules: [{verbs: [get, list]}, {verbs: [watch]}]}}`,
			want: []difference.Field{
				{Op: difference.Added, Path: "spec.rules[0].verbs[1]", New: "list"},
				{Op: difference.Added, Path: "spec.rules[1]", New: map[string]any{"verbs": []any{"watch"}}},
			},
		},
		{
			name:  "it matches the entries of a list by their key",
			owned: containers, before: `{spec: {containers: [{name: gone}, {name: a, image: x}]}}`,
			after: `{spec: {containers: [{name: new}, {name: a, image: q}]}}`,
			want: []difference.Field{
				{Op: difference.Removed, Path: `spec.containers[name="gone"]`, Old: map[string]any{"name": "gone"}},
				{Op: difference.Added, Path: `spec.containers[name="new"]`, New: map[string]any{"name": "new"}},
				{Op: difference.Modified, Path: `spec.containers[name="a"].image`, Old: "x", New: "q"},
			},
		},
		{
			name: "it matches entries of nested lists by several keys", owned: containers,
			before: `{spec: {containers: [{name: a, ports: [{containerPort: 80, protocol: TCP, name: x}, {containerPort: 80, protocol: UDP}]}]}}`,
			after:  `{spec: {containers: [{name: a, ports: [{containerPort: 80, protocol: TCP, name: q}, {containerPort: 80, protocol: UDP}]}]}}`,
			want:   []difference.Field{{Op: difference.Modified, Path: `spec.containers[name="a"].ports[containerPort=80,protocol="TCP"].name`, Old: "x", New: "q"}},
		},
		{
			name: "it reports a changed order", owned: containers,
			before: `{spec: {containers: [{name: a}, {name: b}, {name: c}]}}`, after: `{spec: {containers: [{name: b}, {name: a}, {name: d}]}}`,
			want: []difference.Field{
				{Op: difference.Removed, Path: `spec.containers[name="c"]`, Old: map[string]any{"name": "c"}},
				{Op: difference.Added, Path: `spec.containers[name="d"]`, New: map[string]any{"name": "d"}},
				{Op: difference.Reordered, Path: "spec.containers", Old: []string{`[name="a"]`, `[name="b"]`}, New: []string{`[name="b"]`, `[name="a"]`}},
			},
		},
		{
			name: "it compares by position if keys are not unique", owned: containers,
			before: `{spec: {containers: [{name: a, image: x}, {name: a, image: q}]}}`,
			after:  `{spec: {containers: [{name: a, image: x}, {name: a, image: z}]}}`,
			want:   []difference.Field{{Op: difference.Modified, Path: "spec.containers[1].image", Old: "q", New: "z"}},
		},
		{
			name: "it matches the entries of a set by value", owned: finalizers,
			before: `{metadata: {finalizers: [x, q]}}`, after: `{metadata: {finalizers: [q, z]}}`,
			want: []difference.Field{
				{Op: difference.Removed, Path: `metadata.finalizers[="x"]`, Old: "x"}, {Op: difference.Added, Path: `metadata.finalizers[="z"]`, New: "z"},
			},
		},
		{
			name:   "it hides the values of a Secret",
			before: `{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {gone: s3cret, changed: s3cret, same: s3cret}, type: Opaque}`,
			after: `{apiVersion: v1, kind: Secret, metadata: {name: a, annotations: {kubectl.kubernetes.io/last-applied-configuration: s3cret, x: q}},
				data: {new: s3cret, changed: s3cret2, same: s3cret}, stringData: {text: s3cret}, type: Opaque}`,
			want: []difference.Field{
				{Op: difference.Modified, Path: "data.changed", Hidden: true},
				{Op: difference.Removed, Path: "data.gone", Hidden: true},
				{Op: difference.Added, Path: "data.new", Hidden: true},
				{Op: difference.Added, Path: `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`, Hidden: true},
				{Op: difference.Added, Path: "metadata.annotations.x", New: "q"},
				{Op: difference.Added, Path: "stringData.text", Hidden: true},
			},
		},
		{
			name:   "it shows the data of other kinds",
			before: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: b}}`,
			after:  `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: c}}`,
			want:   []difference.Field{{Op: difference.Modified, Path: "data.a", Old: "b", New: "c"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, after := thing(t, tt.before), owned(thing(t, tt.after), tt.owned)
			assert.Equal(t, tt.want, compare(before, after))
			assert.Equal(t, tt.want, compare(owned(before, tt.owned), thing(t, tt.after)), "with the field owners of the live object")
			assert.Empty(t, compare(after, after))
		})
	}
}
