package payload_test

import (
	"crypto/sha256"
	"encoding/json"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/fixture"
)

const (
	metadata = `{"kind":"cincinnati-metadata-v0","version":"1.2.3","previous":["1.2.2"],"metadata":{
		"url":"https://example.com/notes","release.openshift.io/architecture":"multi",
		"io.openshift.upgrades.graph.release.channels":"stable-1,fast-1,"}}`
	references = `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3","creationTimestamp":"2026-08-22T01:02:03Z"},
		"spec":{"tags":[{"name":"console-plugin","from":{"kind":"DockerImage","Name":"registry.example/plugin@sha256:1"}},
		{"name":"alias","from":{"kind":"ImageStreamTag","name":"other:tag"}},{"name":"bare"}]}}`
	included = "    include.release.openshift.io/self-managed-high-availability: \"true\"\n"
)

// configMap returns an included ConfigMap with the given name and further lines.
func configMap(name string, more ...string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n  annotations:\n" + included + strings.Join(more, "\n") + "\n"
}

// files returns a release with metadata, references and the files nameContents: name, content, name, content.
func files(nameContents ...string) fstest.MapFS {
	out := fstest.MapFS{
		payload.MetadataFile:            {Data: []byte(metadata)},
		payload.ReferencesFile:          {Data: []byte(references)},
		"manifests/0000_00_cvo_00.yaml": {Data: []byte(configMap("cvo"))},
	}
	for i := 0; i < len(nameContents); i += 2 {
		out[nameContents[i]] = &fstest.MapFile{Data: []byte(nameContents[i+1])}
	}
	return out
}

func identities(p *payload.Payload) []string {
	var out []string
	for _, m := range p.Manifests {
		out = append(out, m.ID().Name)
	}
	return out
}

func TestLoadOrdersManifestsAndReadsMetadata(t *testing.T) {
	p, err := payload.Load(files(
		"release-manifests/0000_90_b_00.yaml", configMap("b90"),
		"release-manifests/0000_10_z_00.yml", configMap("z10")+"---\n"+configMap("z10-2"),
		"release-manifests/0000_10_a_00.json", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a10","annotations":{"include.release.openshift.io/self-managed-high-availability":"true"}}}`,
		"release-manifests/0000_10_a_01.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: out}\ndata: {x: y}\n",
		"release-manifests/0000_50_a_gen.sh", "#!/bin/sh",
		"release-manifests/0000_50_a_.gitkeep", "",
		"release-manifests/sub.yaml/0000_10_a_00.yaml", "{{{",
		"manifests/0000_90_cvo_00.yaml", configMap("cvo90"),
		"README.md", "nothing",
	), "registry.example/release@sha256:0", payload.Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"cvo", "cvo90", "a10", "z10", "z10-2", "b90"}, identities(p), "the operator's folder comes first; each folder is ordered by file name")
	assert.Equal(t, "1.2.3", p.Release.Version)
	assert.Equal(t, "registry.example/release@sha256:0", p.Release.Image)
	assert.Equal(t, "https://example.com/notes", p.Release.URL)
	assert.Equal(t, "Multi", p.Release.Architecture)
	assert.Equal(t, []string{"fast-1", "stable-1"}, p.Release.Channels)
	assert.Equal(t, time.Date(2026, 8, 22, 1, 2, 3, 0, time.UTC), p.Created)
	assert.Equal(t, map[string]string{"console-plugin": "registry.example/plugin@sha256:1"}, p.References)
	assert.Equal(t, []string{"release-manifests/release-metadata: metadata.io.openshift.upgrades.graph.release.channels: contains an empty name"}, p.Warnings)
	require.Len(t, p.Excluded, 1)
	assert.Equal(t, "out", p.Excluded[0].Manifest.ID().Name)
	assert.Equal(t, "no annotations", p.Excluded[0].Reason)
	assert.NotContains(t, p.Excluded[0].Manifest.Object.Object, "data")
}

// TestInventoryMarksExcludedCreateOnlyObjects has an object that the cluster excludes, so that Excluded contains it without its content.
func TestInventoryMarksExcludedCreateOnlyObjects(t *testing.T) {
	p, err := payload.Load(files(
		"release-manifests/0000_10_a_01.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: once, annotations: {"+api.CreateOnlyAnnotation+": \"true\"}}\n",
		"release-manifests/0000_10_a_02.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: out}\n",
	), "x", payload.Options{})
	require.NoError(t, err)
	require.Len(t, p.Excluded, 2)
	once, out := manifest.ID{Kind: "ConfigMap", Name: "once"}, manifest.ID{Kind: "ConfigMap", Name: "out"}
	named, skipped := p.Named()
	inv := inventory.Plan(inventory.Inventory{}.With(inventory.Record{ID: once}, inventory.Record{ID: out}), named, skipped, p.Release.Version)
	assert.Empty(t, inv.Orphans(), "the release contains both")
	assert.True(t, inv.Records[once].CreateOnly)
	assert.False(t, inv.Records[out].CreateOnly)
}

func TestLoadFiltersByTheMajorVersion(t *testing.T) {
	crd := func(name, majors string) string {
		return "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: " + name + "\n  annotations:\n" + included + "    release.openshift.io/major-version: \"" + majors + "\"\n"
	}
	p, err := payload.Load(files("release-manifests/crd.yaml", crd("one", "1,2")+crd("four", "4")), "x", payload.Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"cvo", "one"}, identities(p))
	p, err = payload.Load(files("release-manifests/crd.yaml", crd("one", "1,2")+crd("zero", "0"),
		payload.MetadataFile, strings.ReplaceAll(metadata, "1.2.3", "0.9.0"), payload.ReferencesFile, strings.ReplaceAll(references, "1.2.3", "0.9.0")), "x", payload.Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"cvo", "zero"}, identities(p), "0 is a valid major version")
}

// TestHashMatchesTheDefinition compares the hash with a constant that was computed independently from the definition of FNV-1 over the raw
// documents in load order. Excluded documents do not count, except one that is excluded only by an unknown capability.
func TestHashMatchesTheDefinition(t *testing.T) {
	fsys := files(
		"manifests/0000_00_cvo_00.yaml", configMap("a"),
		"release-manifests/0000_10_a_00.yaml", "\n{ \"kind\": \"ConfigMap\", \"apiVersion\": \"v1\",\n  \"metadata\": {\"name\": \"b\", \"annotations\": {\"include.release.openshift.io/self-managed-high-availability\": \"true\"}} }\n",
		"release-manifests/0000_10_a_01.yaml", configMap("c", "    capability.openshift.io/name: New"),
		"release-manifests/0000_10_a_02.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: out}\n",
	)
	const want = "lMvMBLDq5RE="
	for _, tt := range []struct {
		name   string
		filter inclusion.Filter
		count  int
	}{
		{"covers the loaded manifests", inclusion.Filter{}, 3},
		{"does not depend on capabilities", inclusion.Filter{Capabilities: inclusion.AllCapabilities(nil)}, 2},
		{"does not depend on overrides", inclusion.Filter{Overrides: []configv1.ComponentOverride{{Kind: "ConfigMap", Name: "b", Unmanaged: true}}}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := payload.Load(fsys, "x", payload.Options{Filter: tt.filter})
			require.NoError(t, err)
			assert.Len(t, p.Manifests, tt.count)
			assert.Equal(t, want, p.Hash)
		})
	}
}

//threat:templates-loop-nest
func TestLoadRendersTemplates(t *testing.T) {
	load := func(t *testing.T, text string, opts payload.Options) (*payload.Payload, error) {
		t.Helper()
		return payload.Load(files("manifests/0000_00_cvo_01.yaml", configMap("templated", "data:", "  x: "+text),
			"release-manifests/0000_10_a_00.yaml", configMap("literal", `data: {x: "{{ .ReleaseImage }}"}`)), "registry.example/r@sha256:0", opts)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"inserts the release image", "'{{.ReleaseImage}}'", "registry.example/r@sha256:0"},
		{"inserts the profile", "{{ .ClusterProfile }}", "self-managed-high-availability"},
		{"inserts an image", `'{{index .Images "console-plugin"}}'`, "registry.example/plugin@sha256:1"},
		{"resolves escapes", `'{{ "{{ $labels.x }}" }}'`, "{{ $labels.x }}"},
		{"inserts BringYourOwnNetwork", `'{{ if .BringYourOwnNetwork }}we{{ else }}they{{ end }}'`, "we"},
		{"concatenates values", `'{{ print "a" 1 2 true "b" .ClusterProfile nil nil }}'`, "a1 2 trueb" + "self-managed-high-availability<nil> <nil>"},
		{"evaluates conditions", `'{{ if eq .ClusterProfile "hypershift" }}a{{ else }}b{{ end }}'`, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := load(t, tt.text, payload.Options{BringYourOwnNetwork: true})
			require.NoError(t, err)
			require.Equal(t, []string{"cvo", "templated", "literal"}, identities(p))
			assert.Equal(t, tt.want, p.Manifests[1].Object.Object["data"].(map[string]any)["x"])
			assert.Equal(t, "{{ .ReleaseImage }}", p.Manifests[2].Object.Object["data"].(map[string]any)["x"])
		})
	}
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown field", "{{ .Tomorrow }}", "Tomorrow"},
		{"an unknown image", `{{ index .Images "nope" }}`, `the release has no image "nope"`},
		{"broken syntax", "{{ if }}", "missing value for if"},
		{"a loop", "{{ range 1000000000 }}{{ end }}", "is not available"},
		{"a loop in a branch", "{{ if true }}{{ range .Images }}{{ end }}{{ end }}", "is not available"},
		{"recursion", `{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}`, "defines templates"},
		{"printf and its widths", `{{ printf "%1000000000d" 1 }}`, `function "printf" is not available`},
		{"a value that keeps doubling", "{{ with print .ReleaseImage }}" + strings.Repeat("{{ with print . . }}", 14) + strings.Repeat("{{ end }}", 15), "its output has more than 65536 bytes"},
		{"a variable that keeps doubling", "{{ $x := .ReleaseImage }}" + strings.Repeat("{{ $x = print $x $x }}", 14), "its output has more than 65536 bytes"},
		{"very deep conditions", strings.Repeat("{{if 1}}", 1_000_000), "it has 1000000 actions, the limit is 10000"},
		{"functions in brackets", `{{ (printf "%9999999d" 1).x }}`, `function "printf" is not available`},
	} {
		t.Run("skips a file with "+tt.name, func(t *testing.T) {
			p, err := load(t, tt.text, payload.Options{})
			require.NoError(t, err)
			assert.Equal(t, []string{"cvo", "literal"}, identities(p))
			require.Len(t, p.Warnings, 2)
			assert.Contains(t, p.Warnings[1], "manifests/0000_00_cvo_01.yaml: skipped: ")
			assert.Contains(t, p.Warnings[1], tt.want)
			require.Len(t, p.Skipped, 1)
			assert.Equal(t, "0000_00_cvo_01.yaml", p.Skipped[0].File)
			_, err = load(t, tt.text, payload.Options{TemplateErrors: true})
			require.ErrorContains(t, err, tt.want)
		})
	}
}

//threat:one-object-twice
func TestLoadRejectsDuplicates(t *testing.T) {
	gated := configMap("x", "    release.openshift.io/feature-gate: A")
	fsys := files("release-manifests/0000_10_a_00.yaml", gated, "release-manifests/0000_10_b_00.yaml", configMap("x"))
	p, err := payload.Load(fsys, "x", payload.Options{})
	require.NoError(t, err, "variants are allowed if the filter keeps only one")
	assert.Equal(t, []string{"cvo", "x"}, identities(p))
	_, err = payload.Load(fsys, "x", payload.Options{Filter: inclusion.Filter{Gates: sets.New("A")}})
	require.ErrorContains(t, err, "ConfigMap x is in two files, 0000_10_a_00.yaml and 0000_10_b_00.yaml")
}

// TestLoadDropsNamespacesOfClusterScopedObjects covers a built-in kind and a kind that an excluded CRD defines. All objects share their
// metadata.
func TestLoadDropsNamespacesOfClusterScopedObjects(t *testing.T) {
	const namespaced = "  namespace: stray"
	as := func(apiVersion, kind, name string) string {
		return strings.Replace(configMap(name, namespaced), "apiVersion: v1\nkind: ConfigMap", "apiVersion: "+apiVersion+"\nkind: "+kind, 1) + "---\n"
	}
	crd := func(kind, scope string) string {
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + strings.ToLower(kind) + "s.example.com}\n" +
			"spec: {group: example.com, scope: " + scope + ", names: {kind: " + kind + "}}\n---\n"
	}
	p, err := payload.Load(files(
		"release-manifests/a.yaml", configMap("a", namespaced)+"---\n"+as("rbac.authorization.k8s.io/v1", "ClusterRole", "a")+
			as("rbac.authorization.k8s.io/v1", "Role", "a")+as("example.com/v1", "Shop", "a")+as("example.com/v1", "Bill", "a"),
		"release-manifests/b.yaml", crd("Shop", "Cluster")+crd("Bill", "Namespaced")+
			"apiVersion: example.com/v1\nkind: Shop\nmetadata: {name: out, namespace: stray}",
	), "x", payload.Options{})
	require.NoError(t, err)
	var got []string
	for _, m := range p.Manifests[1:] {
		got = append(got, m.ID().String())
	}
	assert.Equal(t, []string{
		"ConfigMap stray/a", "ClusterRole.rbac.authorization.k8s.io a", "Role.rbac.authorization.k8s.io stray/a", "Shop.example.com a", "Bill.example.com stray/a",
	}, got)
	require.Len(t, p.Excluded, 3)
	assert.Equal(t, "Shop.example.com out", p.Excluded[2].Manifest.ID().String())
}

func TestLoadMergesImageStreams(t *testing.T) {
	stream := func(tags string) string {
		return "apiVersion: image.openshift.io/v1\nkind: ImageStream\nmetadata:\n  name: s\n  annotations:\n" + included + tags
	}
	fsys := files(
		"release-manifests/0000_10_a_00.yaml", stream("spec:\n  tags: [{name: one, from: {name: a}}, {name: two}]\n"),
		"release-manifests/0000_10_b_00.yaml", stream("spec:\n  tags: [{name: three}, {name: one, from: {name: b}}]\n"),
		"release-manifests/0000_10_c_00.yaml", stream(""),
	)
	p, err := payload.Load(fsys, "x", payload.Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"cvo", "s"}, identities(p))
	m := p.Manifests[1]
	assert.Equal(t, "0000_10_a_00.yaml", m.File)
	tags, _, err := unstructured.NestedSlice(m.Object.Object, "spec", "tags")
	require.NoError(t, err)
	assert.Equal(t, []any{
		map[string]any{"name": "one", "from": map[string]any{"name": "b"}}, map[string]any{"name": "two"}, map[string]any{"name": "three"},
	}, tags)
	assert.Equal(t, sha256.Sum256([]byte(text(t, m))), m.Content)
	assert.Len(t, p.Warnings, 3)

	for name, broken := range map[string]string{
		"spec.tags must be a list":         "spec: {tags: x}\n",
		"spec.tags[0] must be an object":   "spec: {tags: [x]}\n",
		"spec.tags[0].name: missing":       "spec: {tags: [{}]}\n",
		"ImageStream.image.openshift.io s": "spec: {tags: [{name: 1}]}\n",
	} {
		fsys := maps.Clone(fsys)
		fsys["release-manifests/0000_10_c_00.yaml"] = &fstest.MapFile{Data: []byte(stream(broken))}
		_, err = payload.Load(fsys, "x", payload.Options{})
		require.ErrorContains(t, err, name)
	}
}

// TestEmptyPayloadListsTheReasons checks that a payload without manifests for the cluster explains why, with the most frequent reason
// first.
func TestEmptyPayloadListsTheReasons(t *testing.T) {
	fsys := files("release-manifests/0000_10_a.yaml", configMap("a"), "release-manifests/0000_10_b.yaml", configMap("b", "    "+api.CapabilityAnnotation+": Nonesuch"))
	p, err := payload.Load(fsys, "x", payload.Options{Filter: inclusion.Filter{ExcludeID: "x"}})
	require.NoError(t, err)
	assert.Empty(t, p.Nothing())
	p, err = payload.Load(fsys, "x", payload.Options{Filter: inclusion.Filter{Profile: "edge"}})
	require.NoError(t, err)
	const want = "none of the 3 manifests of release 1.2.3 is for this cluster: no annotation include.release.openshift.io/edge (3)"
	assert.Equal(t, want, p.Nothing())
	assert.Contains(t, p.Warnings, want)
	excluded := func(reasons ...string) (list []payload.Exclusion) {
		for _, reason := range reasons {
			list = append(list, payload.Exclusion{Reason: reason})
		}
		return list
	}
	p = &payload.Payload{Excluded: excluded("e", "a", "d", "b", "c", "b")}
	assert.Contains(t, p.Nothing(), "none of the 6 manifests of release  is for this cluster: b (2), a (1), c (1), and 2 more reasons")
	assert.Contains(t, (&payload.Payload{}).Nothing(), "has no manifests")
}

// TestManifestsOfTheOperatorAloneInstallNothing has releases of which the cluster gets the operator's own manifests.
func TestManifestsOfTheOperatorAloneInstallNothing(t *testing.T) {
	const operator = "manifests/0000_00_cluster-version-operator_03_deployment.yaml"
	preview := "    " + api.FeatureSetAnnotation + ": TechPreviewNoUpgrade"
	for _, tt := range []struct {
		name  string
		files fstest.MapFS
		want  string
	}{
		{"the release has nothing else", files(operator, configMap("o")), ""},
		{"another manifest is included", files(operator, configMap("o"), "release-manifests/0000_10_a_a.yaml", configMap("a")), ""},
		{
			"no other manifest is included", files(operator, configMap("o"), "release-manifests/0000_10_a_a.yaml", configMap("a", preview)),
			"none of the 1 manifests of release 1.2.3, except the operator's own, is for this cluster: ",
		},
	} {
		delete(tt.files, "manifests/0000_00_cvo_00.yaml")
		p, err := payload.Load(tt.files, "x", payload.Options{})
		require.NoError(t, err, tt.name)
		assert.True(t, strings.HasPrefix(p.Nothing(), tt.want) && (tt.want == "") == (p.Nothing() == ""), "%s: %s", tt.name, p.Nothing())
	}
}

//threat:payload-does-parse
func TestLoadReportsBrokenReleases(t *testing.T) {
	without := func(drop ...string) fstest.MapFS {
		fsys := files()
		for _, name := range drop {
			delete(fsys, name)
		}
		return fsys
	}
	large := strings.Repeat("#", 9<<20)
	for _, tt := range []struct {
		name string
		fsys fs.FS
		want []string
	}{
		{"names missing folders", fstest.MapFS{}, []string{"manifests: no such folder", "release-manifests: no such folder", "release-metadata: no such file", "image-references: no such file"}},
		{"names a missing operator folder", without("manifests/0000_00_cvo_00.yaml"), []string{"manifests: no such folder"}},
		{"names missing metadata", without(payload.MetadataFile), []string{"release-manifests/release-metadata: no such file"}},
		{"names a file in place of a folder", fstest.MapFS{"manifests": {Data: []byte("x")}}, []string{"manifests: not a folder"}},
		{"names metadata of another kind", files(payload.MetadataFile, `{"kind":"x","version":"1.2.3"}`), []string{`kind is "x", not "cincinnati-metadata-v0"`}},
		{"names a missing version", files(payload.MetadataFile, `{"kind":"cincinnati-metadata-v0"}`), []string{"version: missing"}},
		{"names a version that is not strict", files(payload.MetadataFile, `{"kind":"cincinnati-metadata-v0","version":"v1.2"}`), []string{`version: "v1.2" is not a semantic version`}},
		{"names a version that does not fit into a status", files(payload.MetadataFile, `{"kind":"cincinnati-metadata-v0","version":"1.2.3-`+strings.Repeat("x", 300)+`"}`), []string{"version: is longer than 256 bytes"}},
		{"names broken metadata", files(payload.MetadataFile, "{"), []string{"release-manifests/release-metadata: "}},
		{"names large metadata", files(payload.MetadataFile, large), []string{"the limit is 4194304"}},
		{"names references of another kind", files(payload.ReferencesFile, `{"kind":"ConfigMap","apiVersion":"v1"}`), []string{`kind is "ConfigMap" in "v1", not ImageStream`}},
		{"names references of another version", files(payload.ReferencesFile, strings.Replace(references, "1.2.3", "1.2.4", 1)), []string{`metadata.name is "1.2.4", but the version in release-manifests/release-metadata is "1.2.3"`}},
		{"names a large file", files("release-manifests/a.yaml", large), []string{"release-manifests/a.yaml: too large: 9437184 bytes, the limit is 8388608"}},
		{"names metadata that is not UTF-8", files(payload.MetadataFile, "\xff"), []string{"not UTF-8 text"}},
		{
			"reports all errors at once, sorted",
			files("release-manifests/c.yaml", "kind: A\n---\n"+configMap("dup"), "release-manifests/a.yaml", "apiVersion: v1\nkind: A\n---\n{{", "manifests/b.yaml", "\x00"),
			[]string{"a.yaml[1]: metadata.name: missing\na.yaml[2]: parsing", "\nb.yaml: NUL byte at offset 0", "\nc.yaml[1]: apiVersion: missing\nc.yaml[1]: metadata.name: missing"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := payload.Load(tt.fsys, "registry.example/r", payload.Options{})
			assert.Nil(t, p)
			require.ErrorContains(t, err, "loading payload registry.example/r: ")
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
			var payloadErr *payload.Error
			require.ErrorAs(t, err, &payloadErr)
			assert.Equal(t, api.ReasonPayloadIntegrity, payloadErr.Reason)
		})
	}
	_, err := payload.Load(fstest.MapFS{}, "", payload.Options{})
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

//threat:long-texts
func TestInvalidMetadataCausesWarnings(t *testing.T) {
	for _, tt := range []struct{ name, metadata, want string }{
		{"an address that is not a string", `{"url": 7}`, "metadata.url: must be a string"},
		{"an invalid address", `{"url": "http://a b"}`, `metadata.url: "http://a b" is not a URL`},
		{"an address that does not fit into a status", `{"url": "https://example.com/` + strings.Repeat("x", 3<<20) + `"}`, "metadata.url: is longer than 8192 bytes"},
		{"an invalid address that does not fit into a message", `{"url": " http://` + strings.Repeat("x", 3<<20) + `"}`, "metadata.url: is longer than 8192 bytes"},
		{"channels that do not fit into a status", `{"io.openshift.upgrades.graph.release.channels": "` + strings.Repeat("x,", 1<<20) + `"}`, "metadata.io.openshift.upgrades.graph.release.channels: is longer than 8192 bytes"},
		{"another architecture", `{"release.openshift.io/architecture": "amd64"}`, `"amd64" is unknown: only "multi" is allowed`},
	} {
		t.Run("warns about "+tt.name, func(t *testing.T) {
			p, err := payload.Load(files(payload.MetadataFile, `{"kind":"cincinnati-metadata-v0","version":"1.2.3","metadata":`+tt.metadata+`}`), "x", payload.Options{})
			require.NoError(t, err)
			require.Len(t, p.Warnings, 1)
			assert.Contains(t, p.Warnings[0], tt.want)
			assert.Empty(t, p.Release.URL)
			assert.Empty(t, p.Release.Channels)
			assert.Empty(t, p.Release.Architecture)
		})
	}
}

//threat:release-metadata
func FuzzReadMetadata(f *testing.F) {
	f.Add([]byte(metadata))
	f.Add([]byte("kind: cincinnati-metadata-v0\nversion: 1.0.0\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := payload.ReadMetadata(fstest.MapFS{payload.MetadataFile: {Data: data}})
		if err != nil {
			require.ErrorContains(t, err, "release-metadata")
			return
		}
		r, _ := m.Release("x")
		require.NotEmpty(t, r.Version)
	})
}

//threat:templates-loop-nest
//threat:templates-manifests
func FuzzTemplate(f *testing.F) {
	f.Add(`{{.ReleaseImage}}{{ index .Images "console-plugin" }}{{ "{{" }}`)
	f.Add(`{{ with $x := .Images }}{{ $x.y }}{{ end }}`)
	f.Fuzz(func(t *testing.T, text string) {
		start := fixture.ProcessorTime(t)
		_, _ = payload.Load(files("manifests/0000_00_cvo_01.yaml", text), "x", payload.Options{Limits: manifest.Limits{FileBytes: 1 << 16}})
		require.Less(t, fixture.ProcessorTime(t)-start, 5*time.Second)
	})
}

// text returns a manifest's object as compact JSON.
func text(t *testing.T, m *manifest.Manifest) string {
	t.Helper()
	data, err := json.Marshal(m.Object.Object)
	require.NoError(t, err)
	return string(data)
}

// countedFiles counts how often each file is opened.
type countedFiles struct {
	fs.FS
	opened map[string]int
}

func (c countedFiles) Open(name string) (fs.File, error) {
	c.opened[name]++
	return c.FS.Open(name)
}

// TestManifestsAreOpenedOnce reads manifests from a file system that can only open files, as that of an image.
func TestManifestsAreOpenedOnce(t *testing.T) {
	counted := countedFiles{fstest.MapFS{"a/0000_10_a_a.yaml": {Data: []byte(configMap("a"))}, "a/b.yaml/c": {}}, map[string]int{}}
	manifests, err := payload.ReadManifests(counted, "a", "", "", nil)
	require.NoError(t, err)
	require.Len(t, manifests, 1, "the folder b.yaml is not a manifest")
	assert.Equal(t, 1, counted.opened["a/0000_10_a_a.yaml"])
}
