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

// components is a folder as a release is made of: a list of images, and a folder for each component.
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

func TestChange(t *testing.T) {
	all := contents(t, components(t))
	// but is all files, with those in pairs of name and content; a file without content is not there.
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
		{"keeps only components of exactly these names, and the list of images", platform.Only("dns"), but("dns-node/10.yaml", "", "console/10.yaml", "")},
		{"keeps several", platform.Only("dns", "console"), but("dns-node/10.yaml", "")},
		{"takes a component away", platform.Without("dns"), but("dns/10_service.yaml", "", "dns/20_version.yaml", "")},
		{"takes a file away", platform.Without("dns", "10_service.yaml"), but("dns/10_service.yaml", "")},
		{"adds a file", platform.With("dns", "30.yaml", "more\n"), but("dns/30.yaml", "more\n")},
		{"adds a component", platform.With("network", "10.yaml", "new\n"), but("network/10.yaml", "new\n")},
		{"replaces a file", platform.With("dns", "10_service.yaml", "port: 5353\n"), but("dns/10_service.yaml", "port: 5353\n")},
		{"edits all of a component, and nothing else", platform.Edit("dns", "0.0.1-snapshot", "1"), but("dns/20_version.yaml", "version: 1\nalso: 1\n")},
		{
			"leaves all at a version but some", platform.Unchanged("1.0.0", "dns"),
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
		"a component that is not there": platform.Without("dsn"),
		"a file that is not there":      platform.Without("dns", "30.yaml"),
		"a text that is not there":      platform.Edit("console", "port", ""),
		"a component without manifests": platform.Edit("dsn", "version", ""),
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			dir := components(t)
			require.Error(t, change(dir))
			assert.Equal(t, all, contents(t, dir))
		})
	}
}
