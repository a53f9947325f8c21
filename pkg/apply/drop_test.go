package apply

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestUnknownFields(t *testing.T) {
	const about = `failed to create typed patch object (ns/a; apps/v1, Kind=Deployment): `
	for _, tt := range []struct {
		name, err string
		want      []string
	}{
		{"reads one", about + ".userNames: field not declared in schema", []string{".userNames"}},
		{
			"reads several, each once", about + "errors:\n  .a: field not declared in schema\n  .b[name=\"x: y\"].c: field not declared in schema\n" +
				"  .a: field not declared in schema\n  .d: expected string, got 5", []string{".a", `.b[name="x: y"].c`},
		},
		{"reads nothing of other type errors", about + ".spec.replicas: expected numeric, got string", nil},
		{"reads nothing of others' messages", `admission webhook "x" denied: .spec: field not declared in schema`, nil},
		{"reads nothing of a message cut short", "failed to create typed patch object (", nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, unknownFields(errors.New(tt.err))) })
	}
	assert.Nil(t, unknownFields(nil))
}

func TestUnknownFieldWarnings(t *testing.T) {
	var w unknownFieldWarnings
	for _, tt := range []struct {
		code int
		text string
	}{
		{299, `unknown field "spec.a[0].b"`},
		{299, `unknown field "spec.\"q\""`},
		{299, `duplicate field "spec.c"`},
		{299, `policy/v1beta1 is deprecated`},
		{299, `unknown field "\z"`},
		{199, `unknown field "spec.d"`},
	} {
		w.HandleWarningHeaderWithContext(t.Context(), tt.code, "", tt.text)
	}
	assert.Equal(t, []string{".spec.a[0].b", `.spec."q"`}, w.paths)
}

func TestDrop(t *testing.T) {
	const object = `{"a":{"b":1,"b.c":2,"b.c[d":{"e":3}},"l":[{"n":"x","p":1},{"n":"y","p":2,"t":true,"v":[[{"z":1}]]},"text"],"":{"k":1}}`
	for _, tt := range []struct{ path, want string }{
		{".a.b", `{"a":{"b.c":2,"b.c[d":{"e":3}},"l":[{"n":"x","p":1},{"n":"y","p":2,"t":true,"v":[[{"z":1}]]},"text"],"":{"k":1}}`},
		{".a.b.c", `{"a":{"b":1,"b.c[d":{"e":3}},"l":[{"n":"x","p":1},{"n":"y","p":2,"t":true,"v":[[{"z":1}]]},"text"],"":{"k":1}}`},
		{".a.b.c[d.e", `{"a":{"b":1,"b.c":2,"b.c[d":{}},"l":[{"n":"x","p":1},{"n":"y","p":2,"t":true,"v":[[{"z":1}]]},"text"],"":{"k":1}}`},
		{`.l[n="y"].p`, `{"a":{"b":1,"b.c":2,"b.c[d":{"e":3}},"l":[{"n":"x","p":1},{"n":"y","t":true,"v":[[{"z":1}]]},"text"],"":{"k":1}}`},
		{`.l[p=2,t=true].n`, `{"a":{"b":1,"b.c":2,"b.c[d":{"e":3}},"l":[{"n":"x","p":1},{"p":2,"t":true,"v":[[{"z":1}]]},"text"],"":{"k":1}}`},
		{`.l[n="x",q="default"].n`, `{"a":{"b":1,"b.c":2,"b.c[d":{"e":3}},"l":[{"p":1},{"n":"y","p":2,"t":true,"v":[[{"z":1}]]},"text"],"":{"k":1}}`},
		{`.l[1].v[0][0].z`, `{"a":{"b":1,"b.c":2,"b.c[d":{"e":3}},"l":[{"n":"x","p":1},{"n":"y","p":2,"t":true,"v":[[{}]]},"text"],"":{"k":1}}`},
		{"..k", `{"a":{"b":1,"b.c":2,"b.c[d":{"e":3}},"l":[{"n":"x","p":1},{"n":"y","p":2,"t":true,"v":[[{"z":1}]]},"text"],"":{}}`},
	} {
		t.Run(tt.path, func(t *testing.T) {
			body := decodeJSON(t, object)
			got, removed := dropFields(body, []string{tt.path, ".nothing"})
			assert.Equal(t, []string{tt.path}, removed)
			assert.Equal(t, decodeJSON(t, tt.want), got)
			assert.Equal(t, decodeJSON(t, object), body)
		})
	}
	for _, path := range []string{
		"", "a", ".c", ".a.", ".a.d", ".a[0]", ".a.b.x", ".l.n", ".l[0]", ".l[0", ".l[9].n", ".l[-1].n", ".l[].n", ".l[n].n", ".l[n=x].n",
		`.l[n="z"].n`, `.l[n="x"`, `.l[n="x"x].n`, `.l[n="x",].n`, `.l[="text"].n`, `.l[2].n`, `.l[p=5].n`, `.l[n="x].n`, `.l[q=].z`,
	} {
		body := decodeJSON(t, object)
		got, removed := dropFields(body, []string{path})
		assert.Empty(t, removed, path)
		assert.Equal(t, body, got)
	}
}

func decodeJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &object))
	return object
}

// FuzzDropFields drops any path from any object: it must not panic, and must leave the object itself alone.
func FuzzDropFields(f *testing.F) {
	for _, seed := range []struct{ object, path string }{
		{`{"userNames":["a"]}`, ".userNames"},
		{`{"spec":{"containers":[{"name":"x","foo":1}]}}`, `.spec.containers[name="x"].foo`},
		{`{"spec":{"ports":[{"containerPort":2,"foo":1}]}}`, `.spec.ports[containerPort=2,protocol="TCP"].foo`},
		{`{"rules":[{"foo":1}]}`, `.rules[0].foo`},
		{`{"a.b":{"c]":1},"a":{"b":{"c]":2}}}`, `.a.b.c]`},
		{`{"l":[{"n":"\"]"}]}`, `.l[n="\"]"].n`},
		{`{"":{"":1}}`, `..`},
	} {
		f.Add(seed.object, seed.path)
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		var object map[string]any
		if json.Unmarshal([]byte(text), &object) != nil || object == nil {
			t.Skip()
		}
		before := runtime.DeepCopyJSON(object)
		without, removed := dropFields(object, []string{path})
		require.Equal(t, before, object)
		if len(removed) == 0 {
			require.Equal(t, before, without)
		} else {
			require.NotEqual(t, before, without)
		}
		unknownFields(errors.New(typeError + "/a; v1, Kind=X): " + path))
		cutListStep(path)
	})
}
