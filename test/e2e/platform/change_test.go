package platform_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/e2e/platform"
)

// components returns a folder with the sources of a release: a list of images and a folder for each component.
func components(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for file, text := range map[string]string{
		"image-references":    "tags: []\n",
		"dns/10_service.yaml": "port: 53\n",
		"dns/20_version.yaml": "version: 0.0.1-snapshot\nalso: 0.0.1-snapshot\n",
		"dns-node/10.yaml":    "version: 0.0.1-snapshot\nport: 53\n",
		"console/10.yaml":     "version: 0.0.1-snapshot\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	return dir
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		files[path] = string(data)
		return err
	}))
	return files
}

func TestChangeEditsOneFile(t *testing.T) {
	all := contents(t, components(t))
	// but returns all files with changes, given as pairs of name and content. A file without content is removed.
	but := func(pairs ...string) map[string]string {
		want := maps.Clone(all)
		for i := 0; i < len(pairs); i += 2 {
			if want[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
				delete(want, pairs[i])
			}
		}
		return want
	}
	for _, test := range []struct {
		name   string
		change platform.Change
		want   map[string]string
	}{
		{"keeps only components with exactly these names and the list of images", platform.Only("dns"), but("dns-node/10.yaml", "", "console/10.yaml", "")},
		{"keeps several components", platform.Only("dns", "console"), but("dns-node/10.yaml", "")},
		{"removes a component", platform.Without("dns"), but("dns/10_service.yaml", "", "dns/20_version.yaml", "")},
		{"removes a file", platform.Without("dns", "10_service.yaml"), but("dns/10_service.yaml", "")},
		{"adds a file", platform.With("dns", "30.yaml", "more\n"), but("dns/30.yaml", "more\n")},
		{"adds a component", platform.With("network", "10.yaml", "new\n"), but("network/10.yaml", "new\n")},
		{"replaces a file", platform.With("dns", "10_service.yaml", "port: 5353\n"), but("dns/10_service.yaml", "port: 5353\n")},
		{"edits all files of only one component", platform.Edit("dns", "0.0.1-snapshot", "1"), but("dns/20_version.yaml", "version: 1\nalso: 1\n")},
		{
			"sets all components except some to a version", platform.Unchanged("1.0.0", "dns"),
			but("dns-node/10.yaml", "version: 1.0.0\nport: 53\n", "console/10.yaml", "version: 1.0.0\n"),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := components(t)
			require.NoError(t, test.change(dir))
			assert.Equal(t, test.want, contents(t, dir))
		})
	}
	for name, change := range map[string]platform.Change{
		"rejects a missing component":           platform.Without("dsn"),
		"rejects a missing file":                platform.Without("dns", "30.yaml"),
		"rejects a missing text":                platform.Edit("console", "port", ""),
		"rejects a component without manifests": platform.Edit("dsn", "version", ""),
	} {
		t.Run(name, func(t *testing.T) {
			dir := components(t)
			require.Error(t, change(dir))
			assert.Equal(t, all, contents(t, dir))
		})
	}
}
