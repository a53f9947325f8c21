package extract_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/author/extract"
	"github.com/cluster-version/cvo/pkg/author/extract/installconfig"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// tree returns the files in a folder.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(data)
		return err
	}))
	return files
}

// contents returns the files whose names start with strip. The keys omit strip.
func contents(files fstest.MapFS, strip string) map[string]string {
	out := map[string]string{}
	for name, f := range files {
		if rest, ok := strings.CutPrefix(name, strip); ok {
			out[rest] = string(f.Data)
		}
	}
	return out
}

func TestExtractWritesEveryByte(t *testing.T) {
	p := newPlatform(t)
	for layout, strip := range map[extract.Layout]string{"": "release-manifests/", extract.LayoutFlat: "release-manifests/", extract.LayoutImage: ""} {
		t.Run("it writes every byte in the layout "+string(layout), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "not", "there")
			out, err := extract.Files(t.Context(), p.open(), dir, extract.Options{Layout: layout})
			require.NoError(t, err)
			assert.Equal(t, contents(p.files, strip), tree(t, dir))
			assert.Equal(t, "1.2.3", out.Version)
			assert.Equal(t, epoch, out.Created)
			assert.Len(t, tree(t, dir), out.Files)
			entries, err := os.ReadDir(filepath.Dir(dir))
			require.NoError(t, err)
			assert.Len(t, entries, 1, "no temporary files are left")
		})
	}
	t.Run("it keeps identical files and rejects conflicts before moving any file", func(t *testing.T) {
		dir := t.TempDir()
		_, err := extract.Files(t.Context(), p.open(), dir, extract.Options{})
		require.NoError(t, err)
		out, err := extract.Files(t.Context(), p.open(), dir, extract.Options{})
		require.NoError(t, err)
		assert.Equal(t, out.Files, out.Unchanged)

		changed, linked := filepath.Join(dir, "0000_40_shiny.yaml"), filepath.Join(dir, "release-metadata")
		outside := filepath.Join(t.TempDir(), "outside")
		require.NoError(t, os.WriteFile(outside, []byte("not ours"), 0o644))
		require.NoError(t, os.WriteFile(changed, []byte("mine"), 0o644))
		require.NoError(t, os.Remove(linked))
		require.NoError(t, os.Symlink(outside, linked))
		require.NoError(t, os.Remove(filepath.Join(dir, "0000_50_console.yaml")))
		before := tree(t, dir)
		_, err = extract.Files(t.Context(), p.open(), dir, extract.Options{})
		conflict, ok := errors.AsType[*extract.ConflictError](err)
		require.True(t, ok, err)
		assert.Equal(t, []string{"0000_40_shiny.yaml", "release-metadata"}, conflict.Files)
		assert.Equal(t, before, tree(t, dir))

		_, err = extract.Files(t.Context(), p.open(), dir, extract.Options{Overwrite: true})
		require.NoError(t, err)
		assert.Equal(t, contents(p.files, "release-manifests/"), tree(t, dir))
		data, err := os.ReadFile(outside)
		require.NoError(t, err)
		assert.Equal(t, "not ours", string(data), "a link is replaced, not followed")
	})
	t.Run("it rejects a file in place of the folder", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o644))
		_, err := extract.Files(t.Context(), p.open(), file, extract.Options{})
		assert.ErrorContains(t, err, "is a file, not a folder")
	})
	t.Run("it rejects an image that is not a release", func(t *testing.T) {
		other, err := fixture.Append(empty.Image, make([]byte, 1024)) // an empty archive
		require.NoError(t, err)
		img, err := fixture.Push(t.Context(), p.registry, other, "platform/other:1")
		require.NoError(t, err)
		dir := filepath.Join(t.TempDir(), "x")
		_, err = extract.Files(t.Context(), inspect.Open(p.images, img), dir, extract.Options{})
		require.ErrorIs(t, err, inspect.ErrNoRelease)
		assert.NoDirExists(t, dir)
	})
}

//threat:file-release-leads
func TestExtractWritesNothingFromABrokenImage(t *testing.T) {
	p := newPlatform(t)
	for name, fault := range map[string]fixture.Fault{
		"a changed image":   {Rewrite: func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
		"a truncated image": {Rewrite: func(b []byte) []byte { return b[:len(b)-1] }},
		"a missing image":   {Status: 404},
	} {
		t.Run("it writes no files from "+name, func(t *testing.T) {
			fault.Match = fixture.MatchPath("/platform/release/blobs/")
			t.Cleanup(p.registry.AddFault(fault))
			parent := t.TempDir()
			_, err := extract.Files(t.Context(), p.open(), filepath.Join(parent, "out"), extract.Options{})
			require.Error(t, err)
			entries, err := os.ReadDir(parent)
			require.NoError(t, err)
			assert.Empty(t, entries)
		})
	}
}

func TestExtractSelectsTheManifestsOfACluster(t *testing.T) {
	p := newPlatform(t)
	all := inclusion.Filter{Profile: "self-managed-high-availability", Gates: sets.New("Shiny"), Capabilities: inclusion.AllCapabilities(nil)}
	extracted := func(t *testing.T, selection extract.Selection) (map[string]string, *extract.Result) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "out")
		out, err := extract.Files(t.Context(), p.open(), dir, extract.Options{Selection: selection})
		require.NoError(t, err)
		return tree(t, dir), out
	}
	t.Run("it keeps a cluster's documents unchanged, with the comments above them", func(t *testing.T) {
		files, out := extracted(t, extract.Selection{Filter: &all})
		assert.Equal(t, "---\n# the first\napiVersion: v1\nkind: Namespace\nmetadata: {name: dns, "+included+"} # kept\n"+
			"---\n# the third\napiVersion: v1\nkind: Secret\nmetadata: {name: third, namespace: dns, "+included+"}", files["0000_10_dns_00.yaml"])
		assert.Equal(t, manifests()["release-manifests/0000_50_console.yaml"], files["0000_50_console.yaml"], "a completely selected file is unchanged")
		assert.Equal(t, manifests()["release-manifests/0000_20_dns_requests.yaml"], files["0000_20_dns_requests.yaml"], "CredentialsRequests need no annotations")
		assert.Contains(t, files["0000_60_list.yaml"], `"name":"in"`)
		assert.NotContains(t, files["0000_60_list.yaml"], `"name":"out"`)
		assert.Contains(t, files, "release-metadata")
		assert.NotContains(t, files, ".gitkeep", "a cluster gets only manifests")
		assert.NotContains(t, files, "0000_30_gates.json", "a cluster does not get manifests for installers")
		var left []string
		for _, l := range out.LeftOut {
			left = append(left, l.File+": "+l.Object.String())
		}
		assert.Equal(t, []string{"0000_10_dns_00.yaml: ConfigMap dns/other", "0000_30_gates.json: FeatureGate.config.openshift.io cluster", "0000_60_list.yaml: ConfigMap dns/out"}, left)
		for name, text := range files {
			if strings.HasSuffix(name, ".yaml") {
				_, err := manifest.Parse(name, []byte(text), manifest.Limits{})
				require.NoError(t, err, name)
			}
		}
	})
	t.Run("it applies gates, capabilities and overrides", func(t *testing.T) {
		fewer := all
		fewer.Gates = sets.New[string]()
		fewer.Capabilities, _ = inclusion.EnabledCapabilities(&configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: "None"}, nil, nil)
		fewer.Overrides = []configv1.ComponentOverride{{Kind: "Namespace", Name: "dns", Unmanaged: true}}
		files, _ := extracted(t, extract.Selection{Filter: &fewer})
		assert.NotContains(t, files, "0000_40_shiny.yaml")
		assert.NotContains(t, files, "0000_50_console.yaml")
		assert.NotContains(t, files["0000_10_dns_00.yaml"], "the first")
	})
	t.Run("it selects the CredentialsRequests for one cloud", func(t *testing.T) {
		provider, err := extract.ProviderOf("aws")
		require.NoError(t, err)
		files, _ := extracted(t, extract.Selection{CredentialsRequests: true, Provider: provider})
		assert.Equal(t, map[string]string{
			"0000_20_dns_requests.yaml": request("aws", "AWSProviderSpec", included) + "---\n" + request("plain", "AWSProviderSpec", ""),
		}, files)
		_, err = extract.ProviderOf("moon")
		assert.ErrorContains(t, err, "use one of alibabacloud, aws, azure")
	})
	t.Run("it rejects the image layout", func(t *testing.T) {
		_, err := extract.Files(t.Context(), p.open(), t.TempDir(), extract.Options{Layout: extract.LayoutImage, Selection: extract.Selection{Filter: &all}})
		assert.ErrorContains(t, err, "use the flat layout")
	})
}

func TestExtractReportsAllUnreadableManifests(t *testing.T) {
	p := newPlatform(t)
	p.files["release-manifests/0000_70_a.yaml"] = &fstest.MapFile{Data: []byte("a: [")}
	p.files["release-manifests/0000_70_b.yaml"] = &fstest.MapFile{Data: []byte("kind: X\n")}
	img, err := fixture.PushRelease(t.Context(), p.registry, p.files, "platform/release:broken")
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "out")
	_, err = extract.Files(t.Context(), inspect.Open(p.images, img), dir, extract.Options{Selection: extract.Selection{CredentialsRequests: true}})
	require.ErrorContains(t, err, "0000_70_a.yaml[1]")
	require.ErrorContains(t, err, "0000_70_b.yaml[1]: apiVersion: missing")
	assert.NoDirExists(t, dir)
	_, err = extract.Files(t.Context(), inspect.Open(p.images, img), dir, extract.Options{})
	require.NoError(t, err, "without a selection, manifests are not parsed")
	assert.Equal(t, "a: [", tree(t, dir)["0000_70_a.yaml"])
}

func TestInstallConfigSelectsManifests(t *testing.T) {
	p := newPlatform(t)
	parse := func(t *testing.T, text string) *installconfig.Config {
		t.Helper()
		config, err := installconfig.Parse([]byte(text))
		require.NoError(t, err)
		return config
	}
	t.Run("it uses the release's gates and individually set gates", func(t *testing.T) {
		config := parse(t, "apiVersion: v1\nfeatureSet: TechPreviewNoUpgrade\nplatform: {aws: {region: x}}\ncapabilities: {baselineCapabilitySet: None, additionalEnabledCapabilities: [Console, Ingress]}\n")
		assert.Equal(t, "aws", config.Platform)
		filter, err := extract.ClusterFilter(t.Context(), p.open(), config, "self-managed-high-availability")
		require.NoError(t, err)
		assert.Equal(t, []string{"Shiny"}, sets.List(filter.Gates))
		assert.Equal(t, uint64(1), *filter.MajorVersion)
		assert.ElementsMatch(t, []configv1.ClusterVersionCapability{"Console", "Ingress"}, filter.Capabilities.Enabled.UnsortedList())

		filter, err = extract.ClusterFilter(t.Context(), p.open(), parse(t, "apiVersion: v1\nfeatureSet: CustomNoUpgrade\nfeatureGates: [Dull=true, Shiny=false]\n"), "self-managed-high-availability")
		require.NoError(t, err)
		assert.Equal(t, []string{"Dull"}, sets.List(filter.Gates))

		filter, err = extract.ClusterFilter(t.Context(), p.open(), parse(t, "apiVersion: v1\n"), "self-managed-high-availability")
		require.NoError(t, err)
		assert.Empty(t, filter.Gates)
	})
	t.Run("it reads each layer once", func(t *testing.T) {
		p.registry.Reset()
		r := p.open()
		filter, err := extract.ClusterFilter(t.Context(), r, parse(t, "apiVersion: v1\n"), "self-managed-high-availability")
		require.NoError(t, err)
		_, err = extract.Files(t.Context(), r, t.TempDir(), extract.Options{Selection: extract.Selection{Filter: &filter}})
		require.NoError(t, err)
		var blobs []string
		for _, request := range p.registry.Requests() {
			if strings.Contains(request.Path, "/blobs/") {
				blobs = append(blobs, request.Path)
			}
		}
		assert.NotEmpty(t, blobs)
		assert.Len(t, slices.Compact(slices.Sorted(slices.Values(blobs))), len(blobs))
	})
}

// TestExtractMatchesRealReleases compares the extracted files of real releases with the original files.
func TestExtractMatchesRealReleases(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	images, err := image.New(image.Options{})
	require.NoError(t, err)
	for _, version := range []string{"4.22.9", "4.23.0"} {
		root := filepath.Join(fixture.Testdata(t), "payloads", version)
		img, err := fixture.PushRelease(t.Context(), fixture.StartRegistry(t), os.DirFS(root), "ocp/release:"+version)
		require.NoError(t, err)
		t.Run("it writes "+version+" byte for byte", func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			out, err := extract.Files(t.Context(), inspect.Open(images, img), dir, extract.Options{Layout: extract.LayoutImage})
			require.NoError(t, err)
			assert.Equal(t, tree(t, root), tree(t, dir))
			assert.Equal(t, version, out.Version)
		})
		t.Run("it finds the requests for each cloud in "+version, func(t *testing.T) {
			for _, cloud := range []string{"aws", "powervs", "vsphere"} {
				provider, err := extract.ProviderOf(cloud)
				require.NoError(t, err)
				dir := filepath.Join(t.TempDir(), "out")
				_, err = extract.Files(t.Context(), inspect.Open(images, img), dir, extract.Options{Selection: extract.Selection{CredentialsRequests: true, Provider: provider}})
				require.NoError(t, err)
				files := tree(t, dir)
				assert.Greater(t, len(files), 3)
				for name, text := range files {
					for _, m := range manifest.Examine(name, []byte(text)).Manifests {
						kind, _, _ := unstructured.NestedString(m.Object.Object, "spec", "providerSpec", "kind")
						assert.Equal(t, provider, kind, name)
					}
				}
			}
		})
		t.Run("it reads the gates of a feature set from "+version, func(t *testing.T) {
			sizes := map[string]int{}
			for _, set := range []string{"Default", "TechPreviewNoUpgrade", "DevPreviewNoUpgrade"} {
				config := &installconfig.Config{FeatureSet: set}
				filter, err := extract.ClusterFilter(t.Context(), inspect.Open(images, img), config, "self-managed-high-availability")
				require.NoError(t, err)
				sizes[set] = filter.Gates.Len()
			}
			assert.Greater(t, sizes["Default"], 10)
			assert.Greater(t, sizes["TechPreviewNoUpgrade"], sizes["Default"])
			assert.GreaterOrEqual(t, sizes["DevPreviewNoUpgrade"], sizes["TechPreviewNoUpgrade"])
		})
	}
}

// BenchmarkExtract extracts a real release from a local registry. Without one, it extracts a generated release of about the same size.
func BenchmarkExtract(b *testing.B) {
	files := fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.0.0"}`)},
		"release-manifests/image-references": {Data: []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.0.0"}}`)},
	}
	for n := range 900 {
		name := "release-manifests/0000_50_part_" + strings.Repeat("x", n%50) + string(rune('a'+n%26)) + ".yaml"
		files[name] = &fstest.MapFile{Data: slices.Repeat([]byte("a line of a manifest: true\n"), 700)}
	}
	var source fs.FS = files
	if dir := os.Getenv(fixture.TestdataEnv); dir != "" {
		source = os.DirFS(filepath.Join(dir, "payloads", "4.23.0"))
	}
	img, err := fixture.PushRelease(b.Context(), fixture.StartRegistry(b), source, "platform/release:bench")
	require.NoError(b, err)
	images, err := image.New(image.Options{})
	require.NoError(b, err)
	benchmark := func(b *testing.B, run func(dir string, img release.Image) error) {
		b.ReportAllocs()
		dir := b.TempDir()
		for b.Loop() {
			out := filepath.Join(dir, "out")
			require.NoError(b, run(out, img))
			b.StopTimer()
			require.NoError(b, os.RemoveAll(out))
			b.StartTimer()
		}
	}
	b.Run("flat", func(b *testing.B) {
		benchmark(b, func(dir string, img release.Image) error {
			_, err := extract.Files(b.Context(), inspect.Open(images, img), dir, extract.Options{})
			return err
		})
	})
	b.Run("info", func(b *testing.B) {
		benchmark(b, func(_ string, img release.Image) error {
			_, err := inspect.Describe(b.Context(), inspect.Open(images, img))
			return err
		})
	})
}
