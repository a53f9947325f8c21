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

// object returns a minimal ConfigMap with the given name and further lines.
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

//threat:byte-order-mark accepts a byte order mark
func TestParseSeparatesDocuments(t *testing.T) {
	a, b := object("a"), object("b")
	jsonA := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	jsonB := strings.Replace(jsonA, `"a"`, `"b"`, 1)
	both := []string{"1 ConfigMap a", "2 ConfigMap b"}
	for _, tt := range []struct {
		name, data string
		want       []string
	}{
		{"splits at separators", a + "---\n" + b, both},
		{"accepts a leading separator", "---\n" + a + "---\n" + b, both},
		{"accepts a separator at the end", a + "---\n" + b + "---", both},
		{"accepts a comment after a separator", a + "--- # next\n" + b, both},
		{"accepts carriage returns", strings.ReplaceAll(a+"---\n"+b, "\n", "\r\n"), both},
		{"accepts a document end marker", a + "...\n---\n" + b + "...\n", both},
		{"skips comments before the first separator", "# licence\n#\n\n---\n" + a + "---\n" + b, both},
		{"skips empty documents", "---\n\n---\n" + a + "---\n# nothing\n---\n" + b, both},
		{"skips null documents", a + "---\nnull\n---\n~\n---\n" + b, both},
		{"accepts a byte order mark", "\ufeff" + a + "---\n" + b, both},
		{"accepts a byte order mark before a comment", "\ufeff# x\n" + a, both[:1]},
		{"accepts JSON in a .yaml file", jsonA, both[:1]},
		{"accepts JSON after a byte order mark", "\ufeff" + jsonA, both[:1]},
		{"accepts JSON documents in sequence", jsonA + "\n" + jsonB, both},
		{"accepts JSON documents between separators", jsonA + "\n---\n" + jsonB + "\n", both},
		{"accepts YAML after JSON", jsonA + "\n---\n" + b, both},
		{"accepts a flow mapping that is not JSON", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`, both[:1]},
		{"reads an indented separator as text", object("a", "data:", "  x: |", "    one", "    ---", "    two") + "---\n" + b, both},
		{"accepts a byte order mark after a separator", a + "---\n\ufeff" + b, both},
		{"accepts a separator with blanks after it", a + "--- \t\n" + b, both},
		{"accepts a comment directly after a separator", a + "---# next\n" + b, both},
		{"accepts carriage returns as line breaks", "# first\r" + strings.ReplaceAll(a, "\n", "\r"), both[:1]},
		{"accepts an empty file", "", []string{}},
		{"accepts a file of comments", "# nothing here\n", []string{}},
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

func TestParseKeepsTheRawDocument(t *testing.T) {
	written := "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"a\"}\n}"
	compact := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	for _, tt := range []struct{ name, data, want string }{
		{"compacts YAML and sorts its keys", "kind: ConfigMap\nmetadata:\n  name: a\napiVersion: v1\n", compact},
		{"keeps JSON as written", "\n " + written + "\n\n", written},
		{"compacts JSON after a separator, because the file is YAML", "---\n" + written, compact},
		{"escapes markup as encoding/json does", object("a", `data: {x: "<a> & b"}`), `{"apiVersion":"v1","data":{"x":"\u003ca\u003e \u0026 b"},"kind":"ConfigMap","metadata":{"name":"a"}}`},
		{"keeps integers beyond the signed 64-bit range", object("a", `x: 18446744073709551615`), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"x":18446744073709551615}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := manifest.Parse(file, []byte(tt.data), manifest.Limits{})
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(all[0].Raw))
		})
	}
}

// TestParseTerminatesTheLastLine checks scalars whose value depends on the line break at the end of the file.
func TestParseTerminatesTheLastLine(t *testing.T) {
	for _, tt := range []struct{ name, scalar, want string }{
		{"a literal", "|", "text\n"},
		{"a literal that keeps line breaks", "|+", "text\n"},
		{"a literal that drops line breaks", "|-", "text"},
		{"a folded scalar", ">", "text\n"},
	} {
		t.Run("of "+tt.name, func(t *testing.T) {
			all, err := manifest.Parse(file, []byte(object("a", "data:", "  x: "+tt.scalar)+"    text"), manifest.Limits{})
			require.NoError(t, err)
			assert.Equal(t, tt.want, all[0].Object.Object["data"].(map[string]any)["x"])
		})
	}
}

//threat:duplicate-keys
func TestParseUsesTheLastRepeatedKey(t *testing.T) {
	all, err := manifest.Parse(file, []byte(object("a", "data:", "  policy: File", "  policy: FallbackToLogsOnError")), manifest.Limits{})
	require.NoError(t, err)
	assert.Equal(t, "FallbackToLogsOnError", all[0].Object.Object["data"].(map[string]any)["policy"])
	all, err = manifest.Parse("x.json", []byte(`{"apiVersion":"v1","kind":"A","kind":"B","metadata":{"name":"a"}}`), manifest.Limits{})
	require.NoError(t, err)
	assert.Equal(t, "B", all[0].GVK().Kind)
}

func TestParseAcceptsObjectsWithMetadataOnly(t *testing.T) {
	all, err := manifest.Parse(file, []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: old\n  namespace: x\n  annotations:\n    release.openshift.io/delete: \"true\"\n"), manifest.Limits{})
	require.NoError(t, err)
	assert.True(t, all[0].Tombstone())
	assert.Equal(t, "Deployment.apps x/old", all[0].ID().String())
}

func TestParseExpandsLists(t *testing.T) {
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
		{"accepts an empty list", "apiVersion: v1\nkind: List\nitems: []\n", []string{}},
		{"keeps a named object of such a kind", "apiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: a}\nitems: [1, 2]\n", []string{"1 AllowList.example.com a"}},
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

//threat:deep-nesting rejects deeply nested YAML
//threat:one-object-twice rejects one object twice
//threat:nul-bytes rejects NUL bytes
//threat:text-utf-8 rejects other encodings
func TestParseErrorsNameTheField(t *testing.T) {
	deep := strings.Repeat("[", 500) + strings.Repeat("]", 500)
	for _, tt := range []struct{ name, data, want string }{
		{"names a missing kind", "apiVersion: v1\nmetadata: {name: a}\n", "[1]: kind: missing"},
		{"names a missing apiVersion", "kind: ConfigMap\nmetadata: {name: a}\n", "[1]: apiVersion: missing"},
		{"names a broken apiVersion", "apiVersion: a/b/c\nkind: X\nmetadata: {name: a}\n", `[1]: apiVersion: "a/b/c" is not <group>/<version>`},
		{"names a missing name", "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", "[1]: metadata.name: missing"},
		{"names missing metadata", "apiVersion: v1\nkind: ConfigMap\n", "[1]: metadata.name: missing"},
		{"names an empty name", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ''}\n", "[1]: metadata.name: missing"},
		{"names a name that is a number", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 7}\n", "[1]: metadata.name: must be a string, not a number"},
		{"rejects a name that is a path", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a/b}\n", `[1]: metadata.name: "a/b" is not a valid name: may not contain '/'`},
		{"rejects a namespace that leads elsewhere", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: ../shop}\n", `[1]: metadata.namespace: "../shop" is not a valid name: may not contain '/'`},
		{"rejects the name of a folder", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ..}\n", `[1]: metadata.name: ".." is not a valid name: may not be '..'`},
		{"rejects generated names", "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n", "metadata.generateName: not allowed, because"},
		{"names a namespace of a wrong type", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: [x]}\n", "metadata.namespace: must be a string, not a list"},
		{"names an annotation of a wrong type", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {x: true}}\n", "metadata.annotations[x]: must be a string, not a boolean: quote it"},
		{"names labels of a wrong type", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: [x]}\n", "metadata.labels: must be an object, not a list"},
		{"counts documents", object("a") + "---\n# c\n---\nkind: ConfigMap\nmetadata: {name: b}\n", file + "[2]: apiVersion: missing"},
		{"rejects text after a separator", object("a") + "---x: y\n" + object("b"), `[2]: text after the separator ---: "x: y". Move it to its own line`},
		{"rejects a document after a separator", "--- {apiVersion: v1, kind: A, metadata: {name: a}}\n", "[1]: text after the separator ---"},
		{"rejects text after an end marker", object("a") + "...\n" + object("b"), "[1]: parsing YAML: line 6 of the file: did not find expected <document start>"},
		{"rejects a lone separator after JSON", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}---`, "parsing JSON"},
		{"rejects text", "just words\n", "[1]: the document is a string, not an object"},
		{"rejects a list of objects", "- a\n- b\n", "[1]: the document is a list, not an object"},
		{"names the line of the file", object("a") + "---\n" + object("b", "data: [", "x: y"), "line 12 of the file"},
		{"rejects a second document without separator", "# c\n{apiVersion: v1, kind: A, metadata: {name: a}}\nfoo: bar\n", "parsing YAML"},
		{"names broken JSON", `{"apiVersion": "v1", `, "[1]: parsing JSON: unexpected EOF"},
		{"names broken JSON after whole ones", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}{"apiVersion":"v1","kind":"A","metadata":{"name":"b"}}{"x"`, "[3]: parsing JSON"},
		{"rejects one object twice", object("a") + "---\n" + strings.Replace(object("a"), "v1", "v2", 1), "[2]: ConfigMap a occurs twice in this file, first as document 1"},
		{"names the item of a list", "apiVersion: v1\nkind: List\nitems: [1]\n", "[1]: items[0]: the item is a number, not an object"},
		{"rejects NUL bytes", "apiVersion: v1\x00\n", file + ": NUL byte at offset 14"},
		{"rejects other encodings", "apiVersion: v1\nx: \xff\xfe\n", "not UTF-8 text (offset 18)"},
		{"rejects UTF-16", "\xff\xfea\x00", "NUL byte"},
		{"rejects binary values", object("a", "x: !!binary /w=="), "[1]: x: contains bytes that are not UTF-8"},
		{"rejects not-a-number", object("a", "spec: {list: [1, .nan]}"), "[1]: spec.list[1]: is NaN, which JSON cannot represent"},
		{"rejects deeply nested YAML", object("a", "x: "+deep), "is nested deeper than 128 levels"},
		{"rejects deeply nested JSON", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":` + deep + `}`, "is nested too deeply"},
		{"rejects keys that are lists", object("a", "? [a]", ": b"), "[1]: "},
		{"rejects keys that are equal as text", object("a", "x: {1: a, '1': b}"), `has the key "1" both as a string and as another type`},
		{"rejects an unknown alias", object("a", "x: *nope"), "unknown anchor"},
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

//threat:yaml-alias-bombs rejects aliases of aliases
//threat:huge-documents-many
//threat:objects-above-1 rejects a large object
func TestParseEnforcesItsLimits(t *testing.T) {
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
		{"rejects a large file", object("a"), manifest.Limits{FileBytes: 10}, "bytes, the limit is 10: split it"},
		{"rejects more objects than the limit", object("a") + "---\n" + object("b"), manifest.Limits{Documents: 1}, "more than 1 objects in one file"},
		{"rejects a large object", object("a", "x: "+strings.Repeat("y", 1000)), manifest.Limits{ObjectBytes: 500}, "bytes as JSON, the limit is 500"},
		{"rejects a large JSON object", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":"` + strings.Repeat("y", 1000) + `"}`, manifest.Limits{ObjectBytes: 500}, "bytes as JSON, the limit is 500"},
		{"rejects aliases that repeat a large text", aliases.String(), manifest.Limits{}, "once aliases are expanded"},
		{"rejects aliases of aliases", laughs, manifest.Limits{}, ""},
		{"rejects deep flow lists", object("a", "x: "+strings.Repeat("[", 200_000)), manifest.Limits{}, ""},
		{"rejects deep block lists", object("a", "x:", strings.Repeat("- ", 200_000)+"a"), manifest.Limits{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := manifest.Parse(file, []byte(tt.data), tt.limits)
			require.ErrorContains(t, err, tt.want)
			assert.Less(t, len(err.Error()), 2000)
		})
	}
}

func TestParseAcceptsSmallAliases(t *testing.T) {
	all, err := manifest.Parse(file, []byte(object("a", "x: &x {a: b}", "again: *x", "merged: {<<: *x, c: d}")), manifest.Limits{})
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"a": "b"}, all[0].Object.Object["again"])
	assert.Equal(t, map[string]any{"a": "b", "c": "d"}, all[0].Object.Object["merged"])
}

// realFiles returns the YAML files of a real release by path.
func realFiles(t testing.TB, version string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(fixture.Testdata(t), "payloads", version, "release-manifests", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths, version)
	out := make(map[string][]byte, len(paths))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		out[path] = data
	}
	return out
}

// TestRealFilesDecodeLikeTheOriginal compares every document of two real releases with the result of the original's decoder,
// k8s.io/apimachinery.
func TestRealFilesDecodeLikeTheOriginal(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, version := range []string{"4.22.9", "4.23.0"} {
		t.Run(version, func(t *testing.T) {
			for path, data := range realFiles(t, version) {
				require.True(t, checkDecoded(t, data), path)
				all, err := manifest.Parse(path, data, manifest.Limits{})
				require.NoError(t, err)
				for _, m := range all {
					raw, err := yaml.YAMLToJSON(m.Raw)
					require.NoError(t, err)
					object, err := json.Marshal(m.Object.Object)
					require.NoError(t, err)
					assert.Equal(t, string(raw), string(object), m.String())
				}
			}
		})
	}
}

//threat:manifests-under-limits
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
		start, limits := fixture.ProcessorTime(t), manifest.Limits{FileBytes: 1 << 16}
		all, err := manifest.Parse(file, data, limits)
		require.Less(t, fixture.ProcessorTime(t)-start, 5*time.Second, "a file of 64 KiB takes too long")
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

// BenchmarkParse parses a whole real release, file by file.
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
