package compose_test

import (
	"archive/tar"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/compose"
	"github.com/cluster-version/cvo/test/fixture"
)

// Files that an author may choose as the operator.
const (
	amd64, otherAMD64, arm64, dynamic, macOS = "cvo", "other-cvo", "cvo-arm64", "cvo-dynamic", "cvo-macos"
)

// programs returns a folder with those files.
func programs(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, data := range map[string][]byte{
		amd64: fixture.StaticProgram(elf.EM_X86_64, "this"), otherAMD64: fixture.StaticProgram(elf.EM_X86_64, "other"),
		arm64: fixture.StaticProgram(elf.EM_AARCH64, "this"), dynamic: fixture.DynamicProgram(elf.EM_X86_64), macOS: []byte("\xcf\xfa\xed\xfe"),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir
}

// withOperator returns the options for a release with the operator. The running program is a file in the folder.
func withOperator(t *testing.T, dir, running string) compose.Options {
	opts := choices(t)
	opts.NoOperator, opts.Operator, opts.Architecture = false, manifests.FS(), "amd64"
	opts.Executable = func() (string, error) { return filepath.Join(dir, running), nil }
	return opts
}

func build(t *testing.T, opts compose.Options) *assemble.Result {
	t.Helper()
	in, err := compose.Gather(t.Context(), opts)
	require.NoError(t, err)
	r, err := assemble.New(in.Options)
	require.NoError(t, err)
	return r
}

// filesOf returns the regular files of the release image by path.
func filesOf(t *testing.T, r *assemble.Result) map[string]string {
	t.Helper()
	content := mutate.Extract(r.Image)
	defer content.Close()
	files := map[string]string{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[header.Name] = string(data)
	}
}

func TestRunningProgramIsTheOperatorOfARelease(t *testing.T) {
	dir := programs(t)
	opts := withOperator(t, dir, amd64)
	r := build(t, opts)

	platforms, err := r.Platforms()
	require.NoError(t, err)
	assert.Equal(t, []string{"linux/amd64"}, platforms)
	config, err := r.Image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, []string{"/cvo"}, config.Config.Entrypoint)
	assert.Equal(t, "65532:65532", config.Config.User)
	files := filesOf(t, r)
	assert.Equal(t, string(fixture.StaticProgram(elf.EM_X86_64, "this")), files["cvo"])
	assert.Contains(t, files["etc/ssl/certs/ca-certificates.crt"], "BEGIN CERTIFICATE")
	assert.Contains(t, files["manifests/0000_00_cluster-version-operator_30_deployment.yaml"], "{{.ReleaseImage}}")

	assert.Equal(t, r.Digest, build(t, opts).Digest, "the same program results in the same digest")
	require.NoError(t, os.Rename(filepath.Join(dir, otherAMD64), filepath.Join(dir, amd64)))
	assert.NotEqual(t, r.Digest, build(t, opts).Digest)
}

func TestReleasesShareTheLayerOfTheirProgram(t *testing.T) {
	dir := programs(t)
	opts := withOperator(t, dir, amd64)
	first := build(t, opts)
	opts.Created = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	second := build(t, opts)
	assert.NotEqual(t, first.Digest, second.Digest)
	one, err := first.Image.Layers()
	require.NoError(t, err)
	two, err := second.Image.Layers()
	require.NoError(t, err)
	for i := range 2 { // certificates and the program
		want, err := one[i].Digest()
		require.NoError(t, err)
		got, err := two[i].Digest()
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestProgramsForOtherArchitectures(t *testing.T) {
	dir := programs(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, tt := range []struct {
		name, running string
		programs      map[string]string
		want          []string
	}{
		{"are added to the running program", amd64, map[string]string{"arm64": in(arm64)}, []string{"linux/amd64", "linux/arm64"}},
		{"replace the running program", amd64, map[string]string{"amd64": in(otherAMD64)}, []string{"linux/amd64"}},
		{"replace a running program that is dynamically linked", dynamic, map[string]string{"amd64": in(otherAMD64), "arm64": in(arm64)}, []string{"linux/amd64", "linux/arm64"}},
		{"replace a running program that is not for Linux", macOS, map[string]string{"arm64": in(arm64)}, []string{"linux/arm64"}},
	} {
		t.Run("they "+tt.name, func(t *testing.T) {
			opts := withOperator(t, dir, tt.running)
			opts.Programs = tt.programs
			r := build(t, opts)
			got, err := r.Platforms()
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, len(tt.want) > 1, r.Index != nil)
			if tt.programs["amd64"] != "" {
				assert.Equal(t, string(fixture.StaticProgram(elf.EM_X86_64, "other")), filesOf(t, r)["cvo"])
			}
			folder := filepath.Join(t.TempDir(), "release")
			require.NoError(t, r.WriteFolder(folder))
			assert.FileExists(t, filepath.Join(folder, "manifests", "0000_00_cluster-version-operator_30_deployment.yaml"))
		})
	}
}

func TestProgramsThatCannotRunAreRejected(t *testing.T) {
	dir := programs(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, tt := range []struct {
		name, running string
		programs      map[string]string
		want          string
	}{
		{"a dynamically linked one", dynamic, nil, "it is dynamically linked, and the image has no libraries: build with CGO_ENABLED=0, specify a static cvo with --arch linux/amd64=FILE"},
		{"a dynamically linked one beside another", dynamic, map[string]string{"arm64": in(arm64)}, "build with CGO_ENABLED=0"},
		{"one for another system", macOS, nil, "it is not a program for Linux"},
		{"one for another system, with the remedy", macOS, nil, "--arch linux/ARCH=FILE"},
		{"one for another architecture", amd64, map[string]string{"arm64": in(otherAMD64)}, "it is a program for amd64: use --arch amd64="},
		{"a dynamically linked one for another architecture", amd64, map[string]string{"arm64": in(dynamic)}, "build with CGO_ENABLED=0"},
		{"a missing file", amd64, map[string]string{"arm64": in("missing")}, "no such file"},
	} {
		t.Run("it rejects "+tt.name, func(t *testing.T) {
			opts := withOperator(t, dir, tt.running)
			opts.Programs = tt.programs
			_, err := compose.Gather(t.Context(), opts)
			var contradiction *compose.ContradictionError
			require.ErrorAs(t, err, &contradiction)
			assert.ErrorContains(t, err, tt.want)
		})
	}
	opts := withOperator(t, dir, amd64)
	opts.Executable = func() (string, error) { return "", errors.New("no /proc") }
	_, err := compose.Gather(t.Context(), opts)
	require.ErrorContains(t, err, "specify a static cvo with --arch amd64=FILE")
}

// TestAuthorsFilesOfTheOperatorReplaceOurs checks that a component of the operator changes the manifests beside the program.
func TestAuthorsFilesOfTheOperatorReplaceOurs(t *testing.T) {
	opts := withOperator(t, programs(t), amd64)
	folder := t.TempDir()
	file := filepath.Join(folder, assemble.OperatorComponent, "0000_00_cluster-version-operator_40_service.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte("# mine\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"), 0o600))
	opts.Folders = append(opts.Folders, folder)
	files := filesOf(t, build(t, opts))
	assert.Contains(t, files["manifests/"+filepath.Base(file)], "# mine")
	assert.NotEmpty(t, files["cvo"])
	own, err := input.ReadFiles(manifests.FS())
	require.NoError(t, err)
	assert.NotEmpty(t, files["manifests/"+own[0].Name])
}

// TestProgramsAreParsed checks the forms of an architecture and a file.
func TestProgramsAreParsed(t *testing.T) {
	for _, text := range []string{"arm64=./cvo=1", "linux/arm64=./cvo=1"} {
		architecture, file, err := compose.ParseProgram(text)
		require.NoError(t, err)
		assert.Equal(t, "arm64 ./cvo=1", architecture+" "+file)
	}
	for _, text := range []string{"", "arm64", "=cvo", "arm64=", "linux/=x", runtime.GOOS + "/arm/v7=x"} {
		_, _, err := compose.ParseProgram(text)
		require.ErrorContains(t, err, "arm64=FILE")
	}
}
