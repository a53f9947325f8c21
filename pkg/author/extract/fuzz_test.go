package extract_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/extract"
	"github.com/cluster-version/cvo/pkg/author/extract/installconfig"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// folder opens a release with the given files.
func folder(files map[string]string) *inspect.Release {
	root := fstest.MapFS{}
	for name, text := range files {
		root["release-manifests/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return inspect.OpenFS("fuzz", root)
}

// FuzzInstallConfig reads arbitrary installer configurations. An accepted configuration must result in a filter.
//
//threat:install-config
func FuzzInstallConfig(f *testing.F) {
	for _, text := range []string{
		"apiVersion: v1\nfeatureSet: TechPreviewNoUpgrade\nplatform: {aws: {}}\n", "apiVersion: v1\nfeatureGates: [A=true, B=0]\n",
		"apiVersion: v1\ncapabilities: {baselineCapabilitySet: None, additionalEnabledCapabilities: [Console]}\n", "apiVersion: v1\nplatform:\n  none:\n", "a: &a [*a]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := installconfig.Parse(data)
		if err != nil {
			return
		}
		r := folder(map[string]string{"release-metadata": manifests()["release-manifests/release-metadata"]})
		_, err = extract.ClusterFilter(t.Context(), r, config, "self-managed-high-availability")
		require.NoError(t, err)
	})
}

// FuzzIncluded selects objects from arbitrary manifest files. The result must be readable and contain exactly the selected objects.
//
//threat:inclusion-annotations
func FuzzIncluded(f *testing.F) {
	for name, text := range manifests() {
		if strings.HasSuffix(name, ".yaml") {
			f.Add(text)
		}
	}
	f.Add("\ufeff---\n# x\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n...\n---  # y\napiVersion: v1\nkind: B\nmetadata: {name: b, " + included + "}\n")
	f.Add("{\"apiVersion\":\"v1\",\"kind\":\"A\",\"metadata\":{\"name\":\"a\"}}{\"apiVersion\":\"v1\",\"kind\":\"B\",\"metadata\":{\"name\":\"b\"," +
		"\"annotations\":{\"include.release.openshift.io/self-managed-high-availability\":\"true\"}}}")
	filter := inclusion.Filter{Profile: "self-managed-high-availability", Capabilities: inclusion.AllCapabilities(nil)}
	f.Fuzz(func(t *testing.T, text string) {
		r := folder(map[string]string{"release-metadata": "{}", "0000_50_x.yaml": text})
		dir := filepath.Join(t.TempDir(), "out")
		out, err := extract.Files(t.Context(), r, dir, extract.Options{Selection: extract.Selection{Filter: &filter}})
		all, parseErr := manifest.Parse("0000_50_x.yaml", []byte(text), manifest.Limits{})
		if parseErr != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		var want, got []string
		for _, m := range all {
			_, excluded := filter.Exclude(m)
			request := m.Is("cloudcredential.openshift.io", "CredentialsRequest") && len(m.Object.GetAnnotations()) == 0
			if !excluded || request {
				want = append(want, string(m.Raw))
			}
		}
		assert.Len(t, out.LeftOut, len(all)-len(want))
		kept, err := manifest.Parse("0000_50_x.yaml", []byte(tree(t, dir)["0000_50_x.yaml"]), manifest.Limits{})
		require.NoError(t, err)
		for _, m := range kept {
			got = append(got, string(m.Raw))
		}
		assert.Equal(t, want, got)
	})
}
