package drop

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestUnknownFieldsAreFoundInErrors(t *testing.T) {
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
		{"ignores other type errors", about + ".spec.replicas: expected numeric, got string", nil},
		{"ignores messages from other programs", `admission webhook "x" denied: .spec: field not declared in schema`, nil},
		{"ignores a truncated message", "failed to create typed patch object (", nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, unknownFields(errors.New(tt.err))) })
	}
	assert.Nil(t, unknownFields(nil))
}

func TestDropRemovesOnePath(t *testing.T) {
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

// FuzzDropFields drops arbitrary paths from arbitrary objects. It must neither panic nor modify the object.
//
//threat:errors-api-server
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
		unknownFields(errors.New("failed to create typed patch object (/a; v1, Kind=X): " + path))
		cutListStep(path)
	})
}

func TestDropRepeatedKeepsTheLastEntry(t *testing.T) {
	const about = `failed to create typed patch object (/a; v1, Kind=X): `
	for _, tt := range []struct{ name, object, line, want string }{
		{"keeps the last", `{"l":[{"n":"a","v":1},{"n":"b"},{"n":"a","v":2}]}`, `.l: duplicate entries for key [n="a"]`, `{"l":[{"n":"b"},{"n":"a","v":2}]}`},
		{"keeps the last member", `{"l":["a","b","a"]}`, `.l: duplicate entries for key [="a"]`, `{"l":["b","a"]}`},
		{"keeps the last number", `{"l":[1,2,1]}`, `.l: duplicate entries for key [=1]`, `{"l":[2,1]}`},
		{"finds a list in a list", `{"m":[{"n":"x","l":["a","a"]},{"n":"y","l":["a","a"]}]}`, `.m[n="y"].l: duplicate entries for key [="a"]`, `{"m":[{"n":"x","l":["a","a"]},{"n":"y","l":["a"]}]}`},
		{"finds a name with dots", `{"a.b":{"c":["a","a"]}}`, `.a.b.c: duplicate entries for key [="a"]`, `{"a.b":{"c":["a"]}}`},
		{"keeps a single entry", `{"l":["a"]}`, `.l: duplicate entries for key [="a"]`, ""},
		{"keeps a field that is not a list", `{"l":{"a":1}}`, `.l: duplicate entries for key [="a"]`, ""},
		{"does not read a broken key", `{"l":["a","a"]}`, `.l: duplicate entries for key [`, ""},
		{"does not read a position", `{"l":["a","a"]}`, `.l: duplicate entries for key [0]`, ""},
		{"does not read other texts", `{"l":["a","a"]}`, `.l: expected string`, ""},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			object := decodeJSON(t, tt.object)
			got, removed := Refused(object, errors.New(about+tt.line))
			assert.Equal(t, decodeJSON(t, tt.object), object)
			if tt.want == "" {
				assert.Empty(t, removed)
				assert.Equal(t, object, got)
				return
			}
			assert.Len(t, removed, 1)
			assert.Equal(t, decodeJSON(t, tt.want), got)
		})
	}
}

// FuzzRefusals uses arbitrary objects and arbitrary error texts. It must neither panic nor modify the object.
//
//threat:errors-api-server
func FuzzRefusals(f *testing.F) {
	f.Add(`{"l":[{"n":"a"},{"n":"a"}]}`, `.l: duplicate entries for key [n="a"]`)
	f.Add(`{"":["a"]}`, `Invalid value: {"a":1}: field is immutable`)
	f.Fuzz(func(t *testing.T, text, words string) {
		var object map[string]any
		if json.Unmarshal([]byte(text), &object) != nil || object == nil {
			t.Skip()
		}
		before := runtime.DeepCopyJSON(object)
		without, removed := Refused(object, errors.New("failed to create typed patch object (/a; v1, Kind=X): "+words))
		require.Equal(t, before, object)
		if len(removed) == 0 {
			require.Equal(t, before, without)
		}
	})
}
