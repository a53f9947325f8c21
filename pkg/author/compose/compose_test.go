package compose_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/compose"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
)

const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// writeFolder returns a folder with one component. If address is not empty, the folder also lists an image at that address.
func writeFolder(t *testing.T, component, address string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, component), 0o755))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write(component+"/ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: "+component+"\n  annotations:\n    "+api.IncludePrefix+api.DefaultProfile+": \"true\"\n")
	if address != "" {
		write("image-references", "kind: ImageStream\nspec:\n  tags:\n  - name: shared\n    from: {kind: DockerImage, name: '"+address+"@"+digest+"'}\n")
	}
	return dir
}

// choices returns the options for a release from one folder without an operator, which reads no image.
func choices(t *testing.T) compose.Options {
	return compose.Options{
		Folders: []string{writeFolder(t, "dns", "registry.example/shared")}, Offline: true, BaseComponent: assemble.OperatorComponent,
		Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), NoOperator: true,
		Operator: fstest.MapFS{
			"0000_00_operator_00.yaml": {Data: []byte("kind: 'Namespace'\napiVersion: v1\nmetadata:\n  name: operator\n  labels:\n    level: {{if .BringYourOwnNetwork}}privileged{{else}}restricted{{end}}\n")},
			"0000_00_operator_01.yaml": {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kinds, namespace: operator}\n")},
			"0000_00_operator_30.yaml": {Data: []byte("image: '{{.ReleaseImage}}'")},
		},
		Monitoring: fstest.MapFS{"0000_90_monitor.yaml": {Data: []byte("apiVersion: v1\nkind: Service\nmetadata: {name: m, namespace: operator}\n")}},
	}
}

func TestGatherRejectsContradictions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*compose.Options)
		want   string
	}{
		{"an excluded and replaced image", func(o *compose.Options) {
			o.Exclude, o.Overrides = []string{"shared"}, map[string]string{"shared": "registry.example/other@" + digest}
		}, `component "shared" is both excluded and included`},
		{"an excluded and included image", func(o *compose.Options) {
			o.Exclude, o.Include = []string{"shared"}, []string{"shared"}
		}, `component "shared" is both excluded and included`},
		{"a component in two folders", func(o *compose.Options) { o.Folders = append(o.Folders, writeFolder(t, "dns", "")) }, `component "dns" is already in another source`},
		{"an image with two addresses", func(o *compose.Options) {
			o.Folders = append(o.Folders, writeFolder(t, "ntp", "mirror.example/shared"))
		}, `image "shared" has two addresses: select one with shared=PULLSPEC`},
		{"a required base without an image", func(o *compose.Options) { o.RequireBaseComponent, o.NoOperator = true, false }, "there is no image \"cluster-version-operator\" to build on"},
		{"a required base that --offline prevents reading", func(o *compose.Options) {
			o.RequireBaseComponent, o.NoOperator, o.BaseComponent, o.Offline = true, false, "shared", true
		}, "--offline prevents reading image \"shared\": omit --offline, "},
		{"platforms without an operator", func(o *compose.Options) { o.AllPlatforms = true }, "there is no base image"},
		{"platforms of one program", func(o *compose.Options) { o.AllPlatforms, o.NoOperator = true, false }, "add architectures of the operator with --arch"},
	} {
		t.Run("it rejects "+tt.name, func(t *testing.T) {
			opts := choices(t)
			tt.change(&opts)
			_, err := compose.Gather(t.Context(), opts)
			var contradiction *compose.ContradictionError
			require.ErrorAs(t, err, &contradiction)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestGatherBuildsOnTheOperatorsOwnManifests(t *testing.T) {
	opts := choices(t)
	opts.Folders = append(opts.Folders, writeFolder(t, "ntp", "registry.example/shared"))
	opts.Overrides = map[string]string{"cli": "registry.example/cli@" + digest}

	in, err := compose.Gather(t.Context(), opts)

	require.NoError(t, err)
	assert.Equal(t, "0.0.1-2026-03-01-120000", in.Options.Version)
	assert.Len(t, in.Options.Components, 2)
	var images, operator []string
	for _, tag := range in.Options.Images {
		images = append(images, tag.Name)
	}
	for _, f := range in.Options.Operator {
		operator = append(operator, f.Name)
	}
	assert.Equal(t, []string{"shared", "cli"}, images, "an image in two folders is listed once")
	assert.Equal(t, []string{"0000_00_operator_00.yaml", "0000_00_operator_01.yaml"}, operator,
		"without a base, the release contains no operator to deploy")
}

func TestLintableLeavesOutThisProgramsManifests(t *testing.T) {
	opts := choices(t)
	opts.AddMonitoring = true
	in, err := compose.Gather(t.Context(), opts)
	require.NoError(t, err)
	result, err := assemble.New(in.Options)
	require.NoError(t, err)

	files, disable, err := in.Lintable(result)

	require.NoError(t, err)
	assert.Equal(t, []string{"folder"}, disable)
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	assert.NotContains(t, strings.Join(names, " "), "monitor")
	assert.Contains(t, names, "release-manifests/0000_50_dns_ns.yaml")
	assert.NotContains(t, names, "manifests/0000_00_operator_01.yaml")
	assert.Contains(t, names, "manifests/0000_00_operator_00.yaml", "other manifests refer to this namespace")
}

func TestLintableKeepsTheAuthorsFilesOfTheOperator(t *testing.T) {
	opts := choices(t)
	dir := t.TempDir()
	file := filepath.Join(dir, assemble.OperatorComponent, "0000_00_operator_02.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"), 0o600))
	opts.Folders = append(opts.Folders, dir)
	in, err := compose.Gather(t.Context(), opts)
	require.NoError(t, err)
	result, err := assemble.New(in.Options)
	require.NoError(t, err)

	files, _, err := in.Lintable(result)

	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(files, func(f source.File) bool { return f.Origin == file }))
}

// TestLintFolderNamesTheFolderOfAnUnreadableFile has a file that cannot be opened.
func TestLintFolderNamesTheFolderOfAnUnreadableFile(t *testing.T) {
	dir := writeFolder(t, "dns", "")
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "broken")))
	_, _, _, err := compose.LintFolder(t.Context(), dir, choices(t))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "reading "+dir+": ")
}
