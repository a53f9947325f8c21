package manifest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/fixture"
)

const file = "0000_50_dns_x.yaml"

// object makes a minimal ConfigMap of a name, with more lines after it.
func object(name string, more ...string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n" + strings.Join(more, "\n") + "\n"
}

func names(all []*manifest.Manifest) []string {
	out := []string{}
	for _, m := range all {
		out = append(out, fmt.Sprintf("%d %s", m.Document, m.ID()))
	}
	return out
}

func TestParseDocuments(t *testing.T) {
	a, b := object("a"), object("b")
	jsonA := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	jsonB := strings.Replace(jsonA, `"a"`, `"b"`, 1)
	both := []string{"1 ConfigMap a", "2 ConfigMap b"}
	for _, tt := range []struct {
		name, data string
		want       []string
	}{
		{"splits at separators", a + "---\n" + b, both},
		{"takes a leading separator", "---\n" + a + "---\n" + b, both},
		{"takes a separator at the end", a + "---\n" + b + "---", both},
		{"takes a comment after a separator", a + "--- # next\n" + b, both},
		{"takes carriage returns", strings.ReplaceAll(a+"---\n"+b, "\n", "\r\n"), both},
		{"takes a document end marker", a + "...\n---\n" + b + "...\n", both},
		{"skips a chunk of comments before the first separator", "# licence\n#\n\n---\n" + a + "---\n" + b, both},
		{"skips empty documents", "---\n\n---\n" + a + "---\n# nothing\n---\n" + b, both},
		{"skips null documents", a + "---\nnull\n---\n~\n---\n" + b, both},
		{"takes a byte order mark", "\ufeff" + a + "---\n" + b, both},
		{"takes a byte order mark before a comment", "\ufeff# x\n" + a, both[:1]},
		{"takes JSON in a .yaml file", jsonA, both[:1]},
		{"takes JSON after a byte order mark", "\ufeff" + jsonA, both[:1]},
		{"takes JSON documents one after the other", jsonA + "\n" + jsonB, both},
		{"takes JSON documents between separators", jsonA + "\n---\n" + jsonB + "\n", both},
		{"takes YAML after JSON", jsonA + "\n---\n" + b, both},
		{"takes a flow mapping that is no JSON", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`, both[:1]},
		{"takes an indented separator for text", object("a", "data:", "  x: |", "    one", "    ---", "    two") + "---\n" + b, both},
		{"takes an empty file", "", []string{}},
		{"takes a file of comments", "# nothing here\n", []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := manifest.Parse(file, []byte(tt.data), manifest.Limits{})
			require.NoError(t, err)
			assert.Equal(t, tt.want, names(all))
		})
	}
}

func TestParseKeepsValues(t *testing.T) {
	all, err := manifest.Parse(file, []byte(object("a", `data:`, `  indented: |`, `    one`, `    ---`, `    two`,
		`spec:`, `  enum: ["=", "!="]`, `  plain:`, `  - =`, `  max: 9007199254740991`, `  minus: -1`, `  float: 1.5`, `  whole: 3.0`,
		`  text: '0755'`, `  yes: "yes"`, `  template: "{{ $labels.x }} ${VAR} $(VAR) <&>"`, `  none: null`, `  umlaut: äöü`, `  1: number`,
		`status:`, `  phase: ""`)), manifest.Limits{})
	require.NoError(t, err)
	spec := all[0].Object.Object["spec"].(map[string]any)
	assert.Equal(t, "one\n---\ntwo\n", all[0].Object.Object["data"].(map[string]any)["indented"])
	assert.Equal(t, []any{"="}, spec["plain"])
	assert.Equal(t, int64(9007199254740991), spec["max"])
	assert.Equal(t, int64(-1), spec["minus"])
	assert.InDelta(t, 1.5, spec["float"], 0)
	assert.Equal(t, int64(3), spec["whole"])
	assert.Equal(t, "0755", spec["text"])
	assert.Equal(t, "{{ $labels.x }} ${VAR} $(VAR) <&>", spec["template"])
	assert.Contains(t, spec, "none")
	assert.Equal(t, "number", spec["1"])
	assert.Contains(t, all[0].Object.Object, "status")
	assert.NotPanics(t, func() { all[0].Object.DeepCopy() })
}

func TestParseRaw(t *testing.T) {
	written := "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"a\"}\n}"
	compact := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	for _, tt := range []struct{ name, data, want string }{
		{"compacts YAML and sorts its keys", "kind: ConfigMap\nmetadata:\n  name: a\napiVersion: v1\n", compact},
		{"keeps JSON as it is written", "\n " + written + "\n\n", written},
		{"compacts JSON behind a separator, which makes the file YAML", "---\n" + written, compact},
		{"escapes as encoding/json does", object("a", `data: {x: "<a> & b"}`), `{"apiVersion":"v1","data":{"x":"\u003ca\u003e \u0026 b"},"kind":"ConfigMap","metadata":{"name":"a"}}`},
		{"keeps integers beyond 64 bits with sign", object("a", `x: 18446744073709551615`), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"x":18446744073709551615}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := manifest.Parse(file, []byte(tt.data), manifest.Limits{})
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(all[0].Raw))
		})
	}
}

func TestParseTakesTheLastOfRepeatedKeys(t *testing.T) {
	all, err := manifest.Parse(file, []byte(object("a", "data:", "  policy: File", "  policy: FallbackToLogsOnError")), manifest.Limits{})
	require.NoError(t, err)
	assert.Equal(t, "FallbackToLogsOnError", all[0].Object.Object["data"].(map[string]any)["policy"])
	all, err = manifest.Parse("x.json", []byte(`{"apiVersion":"v1","kind":"A","kind":"B","metadata":{"name":"a"}}`), manifest.Limits{})
	require.NoError(t, err)
	assert.Equal(t, "B", all[0].GVK().Kind)
}

func TestParseTakesObjectsOfMetadataAlone(t *testing.T) {
	all, err := manifest.Parse(file, []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: old\n  namespace: x\n  annotations:\n    release.openshift.io/delete: \"true\"\n"), manifest.Limits{})
	require.NoError(t, err)
	assert.True(t, all[0].Tombstone())
	assert.Equal(t, "Deployment.apps x/old", all[0].ID().String())
}

func TestParseLists(t *testing.T) {
	for _, tt := range []struct {
		name, data string
		want       []string
	}{
		{
			"expands v1 List", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: b, namespace: ns}}\n---\n" + object("c"),
			[]string{"1 ConfigMap a", "1 Deployment.apps ns/b", "2 ConfigMap c"},
		},
		{"gives items of a typed list its kind", "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleList\nmetadata: {}\nitems:\n- {metadata: {name: a, namespace: ns}}\n", []string{"1 Role.rbac.authorization.k8s.io ns/a"}},
		{"expands lists in lists", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMapList","items":[{"metadata":{"name":"a"}}]}]}`, []string{"1 ConfigMap a"}},
		{"takes an empty list", "apiVersion: v1\nkind: List\nitems: []\n", []string{}},
		{"takes a named object of such a kind as it is", "apiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: a}\nitems: [1, 2]\n", []string{"1 AllowList.example.com a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := manifest.Parse(file, []byte(tt.data), manifest.Limits{})
			require.NoError(t, err)
			assert.Equal(t, tt.want, names(all))
			for _, m := range all {
				assert.True(t, json.Valid(m.Raw))
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	deep := strings.Repeat("[", 500) + strings.Repeat("]", 500)
	for _, tt := range []struct{ name, data, want string }{
		{"names a missing kind", "apiVersion: v1\nmetadata: {name: a}\n", "[1]: kind: missing"},
		{"names a missing apiVersion", "kind: ConfigMap\nmetadata: {name: a}\n", "[1]: apiVersion: missing"},
		{"names a broken apiVersion", "apiVersion: a/b/c\nkind: X\nmetadata: {name: a}\n", `[1]: apiVersion: "a/b/c" is not <group>/<version>`},
		{"names a missing name", "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", "[1]: metadata.name: missing"},
		{"names missing metadata", "apiVersion: v1\nkind: ConfigMap\n", "[1]: metadata.name: missing"},
		{"names an empty name", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ''}\n", "[1]: metadata.name: missing"},
		{"names a name that is a number", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 7}\n", "[1]: metadata.name: is a number, not a string"},
		{"refuses generated names", "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n", "metadata.generateName: not possible in a release"},
		{"names a namespace of a wrong type", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: [x]}\n", "metadata.namespace: is a list, not a string"},
		{"names an annotation of a wrong type", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {x: true}}\n", "metadata.annotations[x]: is a boolean, not a string: quote it"},
		{"names labels of a wrong type", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: [x]}\n", "metadata.labels: is a list, not an object"},
		{"counts documents", object("a") + "---\n# c\n---\nkind: ConfigMap\nmetadata: {name: b}\n", file + "[2]: apiVersion: missing"},
		{"refuses text", "just words\n", "[1]: the document is a string, not an object"},
		{"refuses a list of objects", "- a\n- b\n", "[1]: the document is a list, not an object"},
		{"names the line of the file", object("a") + "---\n" + object("b", "data: [", "x: y"), "line 12 of the file"},
		{"refuses a second document without separator", "# c\n{apiVersion: v1, kind: A, metadata: {name: a}}\nfoo: bar\n", "parsing YAML"},
		{"names broken JSON", `{"apiVersion": "v1", `, "[1]: parsing JSON: unexpected EOF"},
		{"names broken JSON after whole ones", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}{"apiVersion":"v1","kind":"A","metadata":{"name":"b"}}{"x"`, "[3]: parsing JSON"},
		{"refuses one object twice", object("a") + "---\n" + strings.Replace(object("a"), "v1", "v2", 1), "[2]: ConfigMap a is in this file twice, first as document 1"},
		{"names the item of a list", "apiVersion: v1\nkind: List\nitems: [1]\n", "[1]: items[0]: the item is a number, not an object"},
		{"refuses NUL bytes", "apiVersion: v1\x00\n", file + ": NUL byte at offset 14"},
		{"refuses other encodings", "apiVersion: v1\nx: \xff\xfe\n", "not UTF-8 text (offset 18)"},
		{"refuses UTF-16", "\xff\xfea\x00", "NUL byte"},
		{"refuses binary values", object("a", "x: !!binary /w=="), "[1]: x: holds bytes that are not UTF-8"},
		{"refuses not-a-number", object("a", "spec: {list: [1, .nan]}"), "[1]: spec.list[1]: is NaN, which JSON cannot hold"},
		{"refuses YAML that nests too deep", object("a", "x: "+deep), "nests deeper than 128"},
		{"refuses JSON that nests too deep", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":` + deep + `}`, "nests too deep"},
		{"refuses keys that are lists", object("a", "? [a]", ": b"), "[1]: "},
		{"refuses keys that are equal as text", object("a", "x: {1: a, '1': b}"), `has the key "1" both as text and as another type`},
		{"refuses an unknown alias", object("a", "x: *nope"), "unknown anchor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := manifest.Parse("dir/"+file, []byte(tt.data), manifest.Limits{})
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, file)
			assert.Nil(t, all)
			var parseErr *manifest.Error
			require.ErrorAs(t, err, &parseErr)
			assert.Equal(t, file, parseErr.File)
		})
	}
}

func TestParseReportsAllErrorsSorted(t *testing.T) {
	data := "kind: A\n---\napiVersion: v1\nkind: A\n---\n" + object("fine") + "---\n{{{\n"
	_, err := manifest.Parse(file, []byte(data), manifest.Limits{})
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 4)
	assert.Equal(t, file+"[1]: apiVersion: missing", lines[0])
	assert.Equal(t, file+"[1]: metadata.name: missing", lines[1])
	assert.Equal(t, file+"[2]: metadata.name: missing", lines[2])
	assert.Contains(t, lines[3], file+"[4]: parsing YAML")
}

func TestParseLimits(t *testing.T) {
	var aliases strings.Builder
	aliases.WriteString(object("a") + "x: &x \"" + strings.Repeat("x", 100_000) + "\"\ny:\n")
	for range 1000 {
		aliases.WriteString("- *x\n")
	}
	laughs := object("a") + "l0: &l0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n"
	for i := 1; i < 10; i++ {
		laughs += fmt.Sprintf("l%d: &l%d [%s*l%d]\n", i, i, strings.Repeat(fmt.Sprintf("*l%d, ", i-1), 9), i-1)
	}
	for _, tt := range []struct {
		name, data string
		limits     manifest.Limits
		want       string
	}{
		{"refuses a large file", object("a"), manifest.Limits{FileBytes: 10}, "bytes, the limit is 10: split it"},
		{"refuses more objects than the limit", object("a") + "---\n" + object("b"), manifest.Limits{Documents: 1}, "more than 1 objects in one file"},
		{"refuses a large object", object("a", "x: "+strings.Repeat("y", 1000)), manifest.Limits{ObjectBytes: 500}, "bytes as JSON, the limit is 500"},
		{"refuses a large JSON object", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":"` + strings.Repeat("y", 1000) + `"}`, manifest.Limits{ObjectBytes: 500}, "bytes as JSON, the limit is 500"},
		{"refuses aliases that repeat a large text", aliases.String(), manifest.Limits{}, "once aliases are expanded"},
		{"refuses aliases of aliases", laughs, manifest.Limits{}, ""},
		{"refuses deep flow lists", object("a", "x: "+strings.Repeat("[", 200_000)), manifest.Limits{}, ""},
		{"refuses deep block lists", object("a", "x:", strings.Repeat("- ", 200_000)+"a"), manifest.Limits{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := manifest.Parse(file, []byte(tt.data), tt.limits)
			require.ErrorContains(t, err, tt.want)
			assert.Less(t, len(err.Error()), 2000)
		})
	}
}

func TestParseTakesHonestAliases(t *testing.T) {
	all, err := manifest.Parse(file, []byte(object("a", "x: &x {a: b}", "again: *x", "merged: {<<: *x, c: d}")), manifest.Limits{})
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"a": "b"}, all[0].Object.Object["again"])
	assert.Equal(t, map[string]any{"a": "b", "c": "d"}, all[0].Object.Object["merged"])
}

// realFiles returns the YAML files of one real release, by path.
func realFiles(t testing.TB, version string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(fixture.Testdata(t), "payloads", version, "release-manifests", "*.yaml"))
	require.NoError(t, err)
	out := make(map[string][]byte, len(paths))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		out[path] = data
	}
	return out
}

// TestParseRealFiles compares what the short way makes of every real document with the library's way over text.
func TestParseRealFiles(t *testing.T) {
	for _, version := range []string{"4.22.9", "4.23.0"} {
		t.Run(version, func(t *testing.T) {
			for path, data := range realFiles(t, version) {
				all, err := manifest.Parse(path, data, manifest.Limits{})
				require.NoError(t, err)
				for _, m := range all {
					raw, err := yaml.YAMLToJSON(m.Raw)
					require.NoError(t, err)
					object, err := json.Marshal(m.Object.Object)
					require.NoError(t, err)
					assert.Equal(t, string(raw), string(object), m.String())
				}
				if len(all) == 1 && data[0] != '{' {
					raw, err := yaml.YAMLToJSON(data)
					require.NoError(t, err)
					if string(raw) != "null" { // else a chunk of comments comes first
						assert.Equal(t, string(raw), string(all[0].Raw), path)
					}
				}
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		object("a") + "---\n" + object("b"),
		"\ufeff# c\n---\n" + object("a", "x: &x [1, 2.0, 1e3, -0.0, 18446744073709551615]", "y: *x"),
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}]}`,
		`{"a":1}` + "\n---\n" + `{a: b}`,
		"a: b\n...\n%YAML 1.1\n---\n!!binary aGk=\n",
		"? [a]\n: {<<: {x: y}}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		start, limits := time.Now(), manifest.Limits{FileBytes: 1 << 16}
		all, err := manifest.Parse(file, data, limits)
		require.Less(t, time.Since(start), 5*time.Second, "a file of 64 KiB takes too long")
		again, errAgain := manifest.Parse(file, data, limits)
		if err != nil {
			require.ErrorContains(t, errAgain, err.Error())
			return
		}
		require.Len(t, again, len(all))
		for i, m := range all {
			require.True(t, json.Valid(m.Raw))
			require.Equal(t, string(m.Raw), string(again[i].Raw))
			require.NotEmpty(t, m.ID().Name)
			require.NotPanics(t, func() { m.Object.DeepCopy() })
			reread, err := manifest.Parse(file, m.Raw, manifest.Limits{})
			require.NoError(t, err)
			require.Len(t, reread, 1)
			require.Equal(t, reread[0].Object, m.Object)
		}
	})
}

// BenchmarkParse reads a whole real release, one file after the other.
func BenchmarkParse(b *testing.B) {
	all := realFiles(b, "4.23.0")
	size := 0
	for _, data := range all {
		size += len(data)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for path, data := range all {
			if _, err := manifest.Parse(path, data, manifest.Limits{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
