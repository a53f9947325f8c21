package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

const examples = "../../examples/platform"

// runCvo runs a command and returns its output.
func runCvo(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// operatorSet returns a folder with the operator's own manifests.
func operatorSet(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files, err := input.ReadFiles(manifests.FS())
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644))
	}
	return dir
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[rel] = string(data)
		return err
	}))
	return files
}

func TestExtractReadsBackTheBuiltExamplePlatform(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	repository := strings.TrimPrefix(s.URL, "http://") + "/platform/release"
	set, dir := operatorSet(t), t.TempDir()
	for version, previous := range map[string]string{"1.0.0": "", "1.1.0": "1.0.0"} {
		t.Run("builds and reads back the example platform "+version, func(t *testing.T) {
			written, oci, extracted := filepath.Join(dir, version), filepath.Join(dir, "oci"), filepath.Join(dir, version+"-extracted")
			args := []string{
				"release", "new", "--from-dir", filepath.Join(examples, version), "--name", version, "--previous", previous,
				"--operator-manifests", set, "--created", "2026-03-01T12:00:00Z", "--metadata", `{"url": "https://example.com"}`,
				"--to-image", repository + ":" + version, "--to-oci", oci, "--to-dir", written,
			}
			out, errs, err := runCvo(t, args...)
			require.NoError(t, err, errs)
			require.Regexp(t, "^sha256:[0-9a-f]{64} "+version+" 2026-03-01T12:00:00Z\n$", out)
			assert.Contains(t, errs, "info: Pushed to "+repository+":"+version)
			assert.NotContains(t, errs, "warning: ")
			digest, _, _ := strings.Cut(out, " ")

			again, _, err := runCvo(t, append(args[:len(args)-6], "--dry-run")...)
			require.NoError(t, err)
			assert.Equal(t, out, again, "the same input results in the same digest")

			for i, ref := range []string{repository + ":" + version, repository + "@" + digest, oci + ":" + version} {
				to := extracted + string(rune('a'+i))
				got, _, err := runCvo(t, "release", "extract", ref, "--layout", "image", "--to", to)
				require.NoError(t, err)
				assert.Equal(t, "Extracted release payload from digest "+digest+" created at 2026-03-01T12:00:00Z\n", got)
				assert.Equal(t, contents(t, written), contents(t, to))
			}
			file, _, err := runCvo(t, "release", "extract", repository+":"+version, "--file", "release-metadata")
			require.NoError(t, err)
			assert.Equal(t, contents(t, written)["release-manifests/release-metadata"], file)
			checkPlatform(t, written, version)
		})
	}
}

// checkPlatform checks the manifests that a cluster gets from a version of the example platform.
func checkPlatform(t *testing.T, dir, version string) {
	t.Helper()
	p, err := payload.Load(os.DirFS(dir), "registry.example.com/release@sha256:"+strings.Repeat("a", 64), payload.Options{TemplateErrors: true})
	require.NoError(t, err)
	assert.Equal(t, version, p.Release.Version)
	kinds, runlevels, components := map[string]int{}, map[int]bool{}, map[string]bool{}
	tombstones, createOnly := 0, 0
	for _, m := range p.Manifests {
		kinds[m.GVK().Kind]++
		runlevels[m.Runlevel], components[m.Component] = true, true
		for _, placeholder := range []string{"placeholder.example.com", "0.0.1-snapshot"} {
			assert.NotContains(t, fmt.Sprint(m.Object.Object), placeholder, m.String())
		}
		if m.Tombstone() {
			tombstones++
		}
		if m.CreateOnly() {
			createOnly++
		}
	}
	for _, excluded := range p.Excluded {
		assert.Contains(t, excluded.Manifest.File, "clusterversions-", "only CRDs of other feature sets are excluded")
	}
	assert.GreaterOrEqual(t, len(runlevels), 6)
	assert.GreaterOrEqual(t, len(components), 10)
	for _, kind := range []string{"CustomResourceDefinition", "ClusterRole", "RoleBinding", "Deployment", "DaemonSet", "StatefulSet", "Job", "ClusterOperator"} {
		assert.Positive(t, kinds[kind], kind)
	}
	assert.Positive(t, createOnly)
	if version == "1.1.0" {
		assert.Equal(t, 1, tombstones)
	}
}

func TestExamplePlatformDropsObjectsWithTombstones(t *testing.T) {
	t.Run("adds tombstones only for objects of the previous version", func(t *testing.T) {
		old, next := objects(t, "1.0.0"), objects(t, "1.1.0")
		for id, m := range next {
			if m.Tombstone() {
				assert.Contains(t, old, id)
			}
		}
		for id, m := range old {
			if !m.Is("batch", "Job") {
				assert.Contains(t, next, id, "dropped objects need a tombstone")
			}
		}
	})
}

func objects(t *testing.T, version string) map[manifest.ID]*manifest.Manifest {
	t.Helper()
	folder, err := input.ReadFolder(os.DirFS(filepath.Join(examples, version)))
	require.NoError(t, err)
	found := map[manifest.ID]*manifest.Manifest{}
	for _, c := range folder.Components {
		for _, f := range c.Files {
			parsed, err := manifest.Parse(f.Name, f.Data, manifest.Limits{})
			require.NoError(t, err)
			for _, m := range parsed {
				found[m.ID()] = m
			}
		}
	}
	return found
}

func TestReleaseNewRejectsWrongArguments(t *testing.T) {
	platform := filepath.Join(examples, "1.0.0")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a missing input", []string{"--name", "1.0.0", "--dry-run"}, "nothing to assemble"},
		{"a missing output", []string{"--name", "1.0.0", "--from-dir", platform}, "no output: use --to-image"},
		{"two operators", []string{"--name", "1.0.0", "--from-dir", platform, "--dry-run", "--to-image-base", "x", "--operator-manifests", "y"}, "omit --operator-manifests"},
		{"no operator and a base", []string{"--from-dir", platform, "--dry-run", "--no-operator", "--to-image-base", "x"}, "omit --no-operator or the others"},
		{"no operator and a base component", []string{"--from-dir", platform, "--dry-run", "--no-operator", "--to-image-base-tag", "x"}, "omit --no-operator or the others"},
		{"no operator and its program", []string{"--from-dir", platform, "--dry-run", "--no-operator", "--arch", "arm64=x"}, "omit --no-operator or the others"},
		{"two operators for an architecture", []string{"--from-dir", platform, "--dry-run", "--arch", "arm64=x", "--to-image-base", "x"}, "omit --arch or the others"},
		{"an architecture without a file", []string{"--from-dir", platform, "--dry-run", "--arch", "arm64"}, "use for example arm64=FILE"},
		{"another system", []string{"--from-dir", platform, "--dry-run", "--arch", "darwin/arm64=x"}, `"darwin/arm64=x" is not an architecture and a file for Linux`},
		{"an architecture twice", []string{"--from-dir", platform, "--dry-run", "--arch", "arm64=x", "--arch", "linux/arm64=y"}, "--arch gives arm64 twice"},
		{"a missing program", []string{"--from-dir", platform, "--dry-run", "--arch", "arm64=/nonexistent"}, "--arch arm64=/nonexistent: open"},
		{"an unknown output", []string{"--name", "1.0.0", "--from-dir", platform, "-o", "xml"}, `--output "xml" is not known`},
		{"metadata that is not an object", []string{"--name", "1.0.0", "--from-dir", platform, "--dry-run", "--metadata", "[]"}, "is not a JSON object"},
		{"an invalid time", []string{"--name", "1.0.0", "--from-dir", platform, "--dry-run", "--created", "today"}, "--created"},
		{"invalid component versions", []string{"--name", "1.0.0", "--from-dir", platform, "--dry-run", "--component-versions", "x"}, "is not key=version"},
		{"two lists", []string{"--from-release", "x", "-f", "y", "--dry-run"}, "each set the list of images"},
		{"a list from a cluster and a file", []string{"--from-image-stream", "x", "-f", "y", "--dry-run"}, "each set the list of images"},
		{"a reference mode without a stream", []string{"--from-dir", platform, "--reference-mode", "source", "--dry-run"}, "--reference-mode requires"},
		{"a namespace without a stream", []string{"--from-dir", platform, "-n", "x", "--dry-run"}, "--namespace requires"},
		{"an index without a base", []string{"--from-dir", platform, "--keep-manifest-list", "--operator-manifests", "x", "--dry-run"}, "omit one of the two"},
		{"a signature without an image", []string{"--from-dir", platform, "--to-signature", "x", "--dry-run"}, "name it with --to-image"},
		{"two outputs on standard output", []string{"--from-dir", platform, "--to-file", "-", "--result-file", "-"}, "cannot both be standard output"},
		{"an unknown lint mode", []string{"--from-dir", platform, "--lint", "x", "--dry-run"}, `--lint "x" is not known`},
		{"an unknown rule", []string{"--from-dir", platform, "--lint-disable", "x", "--dry-run"}, `unknown rule "x"`},
		{"invalid display names", []string{"--from-dir", platform, "--component-versions-display-names", "x", "--dry-run"}, "is not key=name"},
		{"a component twice", []string{"a=x@sha256:1", "a=x@sha256:1", "--dry-run"}, `component "a" is given twice`},
		{"a component excluded and replaced", []string{"a=x", "--exclude", "a", "--dry-run"}, `component "a" is both excluded and included`},
		{"a component excluded and included", []string{"a=x", "--exclude", "b", "--include", "b", "--dry-run"}, `component "b" is both excluded and included`},
		{"a component in two folders", []string{"--from-dir", platform, "--from-dir", platform, "--dry-run"}, "is already in another source"},
		{"a base that is not a component", []string{"--from-dir", platform, "--to-image-base-tag", "nobody", "--dry-run"}, `there is no image "nobody" to build on`},
		{"a missing mapping file", []string{"--mapping-file", "/nonexistent", "--dry-run"}, "reading --mapping-file"},
		{"a version as the release to start from", []string{"--from-release", "1.0.0", "--dry-run"}, `"1.0.0" is a version: name its image`},
		{"a folder as the base", []string{"--from-dir", platform, "--to-image-base", platform, "--dry-run"}, "is a folder without an OCI layout"},
		{"an invalid argument", []string{"--name", "1.0.0", "--from-dir", platform, "--dry-run", "dns"}, "is not COMPONENT=PULLSPEC"},
	} {
		t.Run("rejects "+tt.name, func(t *testing.T) {
			_, _, err := runCvo(t, append([]string{"release", "new"}, tt.args...)...)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, command.ExitUsage, command.ExitCode(err))
		})
	}
}

func TestReleaseNewAcceptsImageOverrides(t *testing.T) {
	digest := "sha256:" + strings.Repeat("c", 64)
	out, _, err := runCvo(t, "release", "new", "--from-dir", filepath.Join(examples, "1.0.0"), "--name", "1.0.0",
		"--operator-manifests", operatorSet(t), "--offline", "-o", "json", "example-dns=registry.example.com/mine@"+digest)
	require.NoError(t, err)
	assert.Contains(t, out, "registry.example.com/mine@"+digest)
	assert.NotContains(t, out, "platform/example-dns@")
	assert.Contains(t, out, `"io.openshift.release.override": "true"`)
}

func TestReleaseNewAddsCRDsWithoutAnOperator(t *testing.T) {
	dir := t.TempDir()
	_, errs, err := runCvo(t, "release", "new", "--from-dir", filepath.Join(examples, "1.0.0"), "--name", "1.0.0", "--no-operator", "--to-dir", dir)
	require.NoError(t, err)
	assert.Contains(t, errs, "info: The release contains no operator: install it with 'cvo start' outside the cluster\n")
	files := contents(t, filepath.Join(dir, "manifests"))
	assert.Contains(t, files, "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml")
	assert.NotContains(t, files, "0000_00_cluster-version-operator_30_deployment.yaml", "the release contains no operator")
}

func TestReleaseNewAddsMonitoringOnRequest(t *testing.T) {
	layout := filepath.Join(t.TempDir(), "release")
	release := func(args ...string) map[string]string {
		dir := filepath.Join(t.TempDir(), "out")
		_, errs, err := runCvo(t, append([]string{"release", "new", "--operator-manifests", operatorSet(t), "--offline", "--to-dir", dir}, args...)...)
		require.NoError(t, err)
		assert.Contains(t, errs, "0 errors")
		return contents(t, filepath.Join(dir, "release-manifests"))
	}
	const rules = "0000_90_cluster-version-operator_02_prometheusrule.yaml"
	platform := []string{"--from-dir", filepath.Join(examples, "1.0.0"), "--name", "1.0.0"}
	assert.NotContains(t, release(platform...), rules, "most clusters do not serve these kinds")

	with := release(append(platform, "--monitoring", "--to-oci", layout)...)
	assert.Contains(t, with[rules], "{{ $labels.name }}", "placeholders in alerts are kept")
	names, err := fs.Glob(manifests.Monitoring(), "*.yaml")
	require.NoError(t, err)
	require.Len(t, names, 3)
	for _, name := range names {
		assert.Contains(t, with, name)
	}
	again := release("--from-release", layout, "--from-dir", platform[1], "--name", "1.0.1", "--monitoring")
	assert.Equal(t, with[rules], again[rules])
	assert.Len(t, again, len(with), "files of the old release are replaced")
}

//threat:mistakes-release-made
func TestReleaseNewLintsFirst(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "dns"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "dns", "0000_30_dns_00.yaml"),
		[]byte(namespace("dns", "")+"---\n"+strings.Replace(namespace("x", ""), "kind: Namespace", "kind: ConfigMap", 1)), 0o644))
	to := filepath.Join(t.TempDir(), "out")
	args := []string{"release", "new", "--from-dir", folder, "--name", "1.0.0", "--operator-manifests", operatorSet(t)}
	t.Run("builds no release with an error", func(t *testing.T) {
		_, errs, err := runCvo(t, append(args, "--to-dir", to)...)
		require.ErrorContains(t, err, "release 1.0.0 cannot be applied: ")
		assert.Equal(t, command.ExitRefused, command.ExitCode(err))
		assert.Contains(t, errs, filepath.Join(folder, "dns", "0000_30_dns_00.yaml")+":")
		assert.NoDirExists(t, to)
	})
	t.Run("prints the problems and continues with --lint=warn", func(t *testing.T) {
		_, errs, err := runCvo(t, append(args, "--lint", "warn", "--dry-run")...)
		require.NoError(t, err)
		assert.Contains(t, errs, filepath.Join(folder, "dns", "0000_30_dns_00.yaml")+":")
	})
	t.Run("prints nothing with --lint=off", func(t *testing.T) {
		_, errs, err := runCvo(t, append(args, "--lint", "off", "--dry-run")...)
		require.NoError(t, err)
		assert.NotContains(t, errs, "release-manifests/")
	})
}
