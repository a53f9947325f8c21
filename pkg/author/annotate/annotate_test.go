package annotate

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/manifest"
)

const profile = "self-managed-high-availability"

func TestManifestsWithoutProfileAreAnnotated(t *testing.T) {
	const key = "include.release.openshift.io/" + profile
	for _, tt := range []struct{ name, in, want string }{
		{
			name: "adds annotations to block style",
			in:   "apiVersion: v1\nkind: ConfigMap\nmetadata: # the identity\n  # the name\n  name: a\ndata: {a: b}\n",
			want: "apiVersion: v1\nkind: ConfigMap\nmetadata: # the identity\n  annotations:\n    " + key + ": \"true\"\n  # the name\n  name: a\ndata: {a: b}\n",
		},
		{
			name: "adds to annotations that select no profile",
			in:   "apiVersion: v1\nkind: ConfigMap\nmetadata:\n    name: a\n    annotations:\n       release.openshift.io/delete: \"true\"\n",
			want: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n    name: a\n    annotations:\n       " + key + ": \"true\"\n       release.openshift.io/delete: \"true\"\n",
		},
		{
			name: "adds to flow style",
			in:   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ä, namespace: b}\n",
			want: "apiVersion: v1\nkind: ConfigMap\nmetadata: {\"annotations\": {\"" + key + "\": \"true\"}, name: ä, namespace: b}\n",
		},
		{
			name: "adds to empty annotations",
			in:   "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations: {}\n  name: a\n",
			want: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations: {\"" + key + "\": \"true\"}\n  name: a\n",
		},
		{
			name: "adds to annotations without a value",
			in:   "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations: # none\n  name: a\n",
			want: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations: {\"" + key + "\": \"true\"} # none\n  name: a\n",
		},
		{
			name: "adds to JSON",
			in:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"a":"b"},"name":"a"}}`,
			want: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"` + key + `": "true", "a":"b"},"name":"a"}}`,
		},
		{
			name: "keeps line breaks of Windows",
			in:   "apiVersion: v1\r\nkind: ConfigMap\r\nmetadata:\r\n  name: a\r\n",
			want: "apiVersion: v1\r\nkind: ConfigMap\r\nmetadata:\r\n  annotations:\r\n    " + key + ": \"true\"\r\n  name: a\r\n",
		},
		{
			name: "adds to each document that needs it",
			in: "# first\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n" +
				"  annotations: {exclude.release.openshift.io/x: \"true\"}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c",
			want: "# first\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:\n    " + key + ": \"true\"\n  name: a\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n" +
				"  annotations: {exclude.release.openshift.io/x: \"true\"}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:\n    " + key + ": \"true\"\n  name: c",
		},
		{
			name: "adds to the items of a list",
			in: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: a\n" +
				"- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: b\n    annotations:\n      " + key + ": \"false\"\n",
			want: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    annotations:\n      " + key + ": \"true\"\n    name: a\n" +
				"- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: b\n    annotations:\n      " + key + ": \"false\"\n",
		},
		{
			name: "keeps a manifest with another profile",
			in:   "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations:\n    include.release.openshift.io/edge: \"true\"\n",
			want: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations:\n    include.release.openshift.io/edge: \"true\"\n",
		},
		{name: "keeps an invalid file", in: "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", want: "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got, err := File("a.yaml", []byte(tt.in), profile)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got.Data))
			assert.Equal(t, tt.in != tt.want, len(got.Objects) > 0)
			kept := slices.Collect(strings.Lines(tt.want))
			for _, line := range slices.Backward(got.Lines) {
				kept = slices.Delete(kept, line-1, line)
			}
			assert.Len(t, kept, strings.Count(strings.TrimSuffix(tt.in, "\n"), "\n")+1, "the other lines are those of the file")
		})
	}
}

func TestAnnotatedManifestsAreNamed(t *testing.T) {
	got, err := File("a.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: a}\n"), profile)
	require.NoError(t, err)
	assert.Equal(t, []manifest.ID{{Kind: "Namespace", Name: "a"}, {Kind: "ConfigMap", Namespace: "a", Name: "b"}}, got.Objects)
}

func TestManifestsThatCannotBeAnnotatedAreErrors(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"an alias", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: &l {a: b}\n  annotations: *l\n", "a.yaml[1]: adding annotation include."},
		{
			"annotations that another field shares", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: &l\n    a: b\n  labels: *l\n",
			"cannot be added without changing other fields: add it to the file",
		},
		{"an explicit null", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: null\n", "its annotations are null"},
		{
			"an object that the annotation makes too large", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: " + strings.Repeat("x", 3<<19-100) + "}\n",
			"with annotation include.release.openshift.io/" + profile + ", which the file needs: a.yaml[1]: the object is too large: ",
		},
		{"two objects on one line", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`, "it shares a line"},
	} {
		t.Run("it rejects "+tt.name, func(t *testing.T) {
			_, err := File("a.yaml", []byte(tt.in), profile)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// FuzzFile annotates arbitrary text. The result is either an error or a file with the same objects, each of which names a profile.
//
//threat:templates-manifests
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n{}",
		"\xef\xbb\xbf{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: X, metadata: {name: a}}]",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: &a !!map\n  ? name\n  : a\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out, err := File("a.yaml", []byte(in), profile)
		if err != nil || len(out.Objects) == 0 {
			return
		}
		manifests, err := manifest.Parse("a.yaml", out.Data, manifest.Limits{})
		require.NoError(t, err)
		for _, m := range manifests {
			assert.False(t, namesNoProfile(m.Object.GetAnnotations()), m.String())
		}
		assert.Equal(t, strings.Count(in, "kind"), strings.Count(string(out.Data), "kind"))
	})
}
