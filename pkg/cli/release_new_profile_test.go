package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/payload"
)

// plainManifests are manifests as their authors wrote them for kubectl.
const plainManifests = `apiVersion: v1
kind: Namespace
metadata:
  name: web
---
# settings of the web server
apiVersion: v1
kind: ConfigMap
metadata:
  name: web
  namespace: web
data:
  color: blue
`

// plainFolder returns a folder with one component, web, and the given files.
func plainFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

func TestNewReleaseContainsManifestsThatNameNoProfile(t *testing.T) {
	set := operatorSet(t)
	dir := plainFolder(t, map[string]string{"web/web.yaml": plainManifests})
	load := func(t *testing.T, args ...string) (names []string, stderr string) {
		t.Helper()
		to := filepath.Join(t.TempDir(), "out")
		_, errs, err := runCvo(t, append([]string{"release", "new", "--from-dir", dir, "--name", "1.0.0", "--operator-manifests", set, "--to-dir", to, "--lint-disable", "never-included"}, args...)...)
		require.NoError(t, err, errs)
		p, err := payload.Load(os.DirFS(to), "registry.example.com/release@sha256:"+strings.Repeat("a", 64), payload.Options{})
		require.NoError(t, err)
		for _, m := range p.Manifests {
			if m.Component == "web" {
				names = append(names, m.ID().String())
			}
		}
		return names, errs
	}
	t.Run("it adds the default profile, and names the manifests", func(t *testing.T) {
		names, errs := load(t)
		assert.Equal(t, []string{"Namespace web", "ConfigMap web/web"}, names)
		assert.Contains(t, errs, "info: 2 of 2 manifests in "+dir+" are for clusters with profile self-managed-high-availability\n"+
			"info: Added annotation include.release.openshift.io/self-managed-high-availability to 2 manifests that name no profile:\n"+
			"  web/web.yaml: Namespace web\n  web/web.yaml: ConfigMap web/web\n")
		unchanged, err := os.ReadFile(filepath.Join(dir, "web", "web.yaml"))
		require.NoError(t, err)
		assert.Equal(t, plainManifests, string(unchanged), "only the copy in the release changes")
	})
	t.Run("the release names the manifests", func(t *testing.T) {
		oci := filepath.Join(t.TempDir(), "oci")
		newRelease(t, "--from-dir", dir, "--name", "1.0.0", "--operator-manifests", set, "--to-oci", oci)
		out, _, err := runCvo(t, "release", "info", oci)
		require.NoError(t, err)
		assert.Contains(t, out, "\nManifests that got profile self-managed-high-availability, because they named none:\n  web/web.yaml: ConfigMap web/web\n  web/web.yaml: Namespace web\n")
	})
	t.Run("it adds another profile", func(t *testing.T) {
		names, errs := load(t, "--profile", "edge", "--lint", "warn")
		assert.Empty(t, names, "this cluster has the default profile")
		assert.Contains(t, errs, "Added annotation include.release.openshift.io/edge to 2 manifests")
	})
	t.Run("it adds nothing on request", func(t *testing.T) {
		names, errs := load(t, "--no-annotate")
		assert.Empty(t, names)
		assert.NotContains(t, errs, "Added annotation")
		assert.Contains(t, errs, "info: Clusters with profile self-managed-high-availability and the default feature set do not get 2 manifests:\n"+
			"  web/web.yaml: Namespace web: no annotations\n")
	})
}

func TestNewReleaseRejectsComponentsThatNoClusterGets(t *testing.T) {
	for _, tt := range []struct {
		name, file, text, want string
	}{
		{
			"manifests of other profiles", "web/web.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: web, annotations: {include.release.openshift.io/edge: 'true'}}\n",
			"component web has no manifest for profile self-managed-high-availability, for example web.yaml[1] Namespace web (no annotation include.release.openshift.io/self-managed-high-availability)",
		},
		{"only references to images", "web/image-references", "kind: ImageStream\napiVersion: image.openshift.io/v1\n" +
			"spec: {tags: [{name: web, from: {kind: DockerImage, name: registry.example.com/web:1}}]}\n", "the release has no manifest for profile self-managed-high-availability"},
		{"a manifest outside of components", "web.yaml", plainManifests, "web.yaml belongs to no component: move it into the subdirectory of a component"},
		{"no manifests", "web/notes.txt", "to do\n", "component web has no manifests: add a .yaml or .json file to the folder"},
		{
			"annotations that are an alias", "web/web.yaml", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: web\n  labels: &l {a: b}\n  annotations: *l\n",
			"component web: web.yaml[1]: adding annotation include.release.openshift.io/self-managed-high-availability: its annotations are not a separate map: add it to the file",
		},
	} {
		t.Run("it rejects "+tt.name, func(t *testing.T) {
			_, _, err := runCvo(t, "release", "new", "--from-dir", plainFolder(t, map[string]string{tt.file: tt.text}), "--name", "1.0.0", "--operator-manifests", operatorSet(t), "--dry-run")
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestNewReleaseRejectsInvalidProfiles(t *testing.T) {
	dir := plainFolder(t, map[string]string{"web/web.yaml": plainManifests})
	for _, tt := range []struct{ profile, want string }{
		{"", "--profile has no value: name a profile, or use --no-annotate"},
		{"a b", `profile "a b" is not the name of an annotation: `},
	} {
		_, _, err := runCvo(t, "release", "new", "--from-dir", dir, "--name", "1.0.0", "--operator-manifests", operatorSet(t), "--dry-run", "--profile", tt.profile)
		require.ErrorContains(t, err, tt.want)
		assert.Equal(t, command.ExitUsage, command.ExitCode(err))
		_, _, err = runCvo(t, "release", "lint", dir, "--profile", tt.profile)
		require.ErrorContains(t, err, tt.want)
		assert.Equal(t, command.ExitUsage, command.ExitCode(err))
	}
}

func TestReproducedReleaseKeepsItsProfile(t *testing.T) {
	set := operatorSet(t)
	for name, flags := range map[string][]string{"the default profile": nil, "another profile": {"--profile", "edge", "--lint", "warn"}, "no profile": {"--no-annotate"}} {
		t.Run("it reproduces "+name, func(t *testing.T) {
			dir, oci := plainFolder(t, map[string]string{"web/web.yaml": plainManifests}), filepath.Join(t.TempDir(), "oci")
			newRelease(t, append([]string{"--from-dir", dir, "--name", "1.0.0", "--operator-manifests", set, "--to-oci", oci}, flags...)...)
			_, errs, err := runCvo(t, "release", "new", "--from-release", oci, "--from-dir", dir, "--dry-run")
			require.NoError(t, err, errs)
		})
	}
}

func TestFindingsHaveTheLinesOfTheAuthorsFile(t *testing.T) {
	dir := plainFolder(t, map[string]string{"web/web.yaml": plainManifests + "bianryData: {}\n"})
	_, errs, err := runCvo(t, "release", "new", "--from-dir", dir, "--name", "1.0.0", "--operator-manifests", operatorSet(t), "--dry-run")
	require.NoError(t, err)
	assert.Contains(t, errs, filepath.Join(dir, "web", "web.yaml")+":14: ")
}

func TestFoldersOfComponentsAreLinted(t *testing.T) {
	dir := plainFolder(t, map[string]string{"web/web.yaml": plainManifests + "bianryData: {}\n"})
	t.Run("it names the author's file and line, and adds the default profile", func(t *testing.T) {
		out, _, err := runCvo(t, "release", "lint", dir)
		require.NoError(t, err)
		assert.Contains(t, out, filepath.Join(dir, "web", "web.yaml")+":14: warning unknown-field")
		assert.NotContains(t, out, "never-included")
	})
	t.Run("it adds no profile on request", func(t *testing.T) {
		out, _, err := runCvo(t, "release", "lint", dir, "--no-annotate")
		require.NoError(t, err)
		assert.Contains(t, out, filepath.Join(dir, "web", "web.yaml")+":1: warning never-included")
	})
	t.Run("it reports components that no cluster gets", func(t *testing.T) {
		out, _, err := runCvo(t, "release", "lint", plainFolder(t, map[string]string{"web/kustomization.yaml": "resources: []\n"}))
		assert.Equal(t, command.ExitRefused, command.ExitCode(err))
		assert.Contains(t, out, "kustomization.yaml is a kustomization, not a manifest")
	})
	t.Run("it explains how to put manifests into components", func(t *testing.T) {
		out, _, err := runCvo(t, "release", "lint", filepath.Join(dir, "web"))
		assert.Equal(t, command.ExitRefused, command.ExitCode(err))
		assert.Contains(t, out, "the folder has no subdirectories: put each component's manifests into a subdirectory")
	})
	t.Run("other commands name the way to a release", func(t *testing.T) {
		_, _, err := runCvo(t, "release", "info", dir)
		assert.ErrorContains(t, err, dir+" is a folder of manifests, not a release: check it with 'cvo release lint "+dir+"', or make a release with 'cvo release new --from-dir "+dir+"'")
	})
}

// TestRemediesForImagesByTagLeadToARelease follows the remedies of cvo release lint and cvo release new, from an image reference by tag to a
// release.
func TestRemediesForImagesByTagLeadToARelease(t *testing.T) {
	p := newPlatform(t)
	p.push(t, "web", componentImage(t, nil))
	tagged := p.Host() + "/web:v1"
	files := map[string]string{"web/web.yaml": `apiVersion: v1
kind: Namespace
metadata:
  name: web
---
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: web
spec:
  containers:
  - name: web
    image: ` + tagged + "\n"}
	lint := func(args ...string) (string, error) {
		out, _, err := runCvo(t, append([]string{"release", "lint", plainFolder(t, files), "--strict", "--disable", "verification-missing"}, args...)...)
		return out, err
	}
	create := func(args ...string) error {
		_, _, err := runCvo(t, append([]string{"release", "new", "--from-dir", plainFolder(t, files), "--name", "1.0.0", "--operator-manifests", operatorSet(t), "--dry-run"}, args...)...)
		return err
	}
	out, err := lint()
	require.Error(t, err)
	require.Contains(t, out, "list the reference as the from.name of a tag in the component's image-references")

	tag := "kind: ImageStream\nspec:\n  tags:\n  - name: web\n    from: {kind: DockerImage, name: '"
	files["web/image-references"] = tag + tagged + "'}\n"
	missing := `no input image tag named "web": add the argument web=PULLSPEC, or list the image by digest in image-references at the top of --from-dir`
	require.ErrorContains(t, create(), missing)
	out, err = lint()
	require.Error(t, err)
	require.Contains(t, out, "warning component-input: component web: image-references: "+missing)
	require.NotContains(t, out, "image-by-tag", "the reference is replaced")
	_, err = lint("--disable", "component-input")
	require.NoError(t, err)

	require.NoError(t, create("web="+tagged))
	untagged := create("--offline", "web="+tagged)
	require.ErrorContains(t, untagged, "add the argument web="+tagged+" without --offline")

	files["image-references"] = tag + tagged + "'}\n"
	require.ErrorContains(t, create(), "replace the tag with a digest, or add the argument web="+tagged)
	require.NoError(t, create("web="+tagged))
	files["image-references"] = tag + p.images["web"] + "'}\n"
	require.NoError(t, create())
	out, err = lint()
	require.NoError(t, err, out)
}

func TestLintFindsPlaceholdersThatNoImageReplaces(t *testing.T) {
	dir := plainFolder(t, map[string]string{"web/web.yaml": plainManifests + "  image: quay.io/openshift/origin-web:v4.0\n"})
	for _, args := range [][]string{{"lint", dir}, {"new", "--from-dir", dir, "--name", "1.0.0", "--operator-manifests", operatorSet(t), "--dry-run"}} {
		out, errs, err := runCvo(t, append([]string{"release"}, args...)...)
		assert.Equal(t, command.ExitRefused, command.ExitCode(err), "%v", args)
		assert.Contains(t, out+errs, "error image-placeholder")
	}
}

// TestMisspelledPlaceholdersAreReported has an image-references with a placeholder that no manifest uses, and a longer one that a manifest uses.
func TestMisspelledPlaceholdersAreReported(t *testing.T) {
	tags := "kind: ImageStream\nspec:\n  tags:\n"
	for _, name := range []string{"we", "web"} {
		tags += "  - name: " + name + "\n    from: {kind: DockerImage, name: placeholder.example.com/" + name + "}\n"
	}
	const digest = "registry.example.com/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	dir := plainFolder(t, map[string]string{
		"web/web.yaml":         plainManifests + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: web}\nspec:\n  containers:\n  - name: web\n    image: placeholder.example.com/web\n",
		"web/image-references": tags,
	})
	_, errs, err := runCvo(t, "release", "new", "--from-dir", dir, "--name", "1.0.0", "--no-operator", "--offline", "--dry-run", "we="+digest, "web="+digest)
	require.NoError(t, err, errs)
	assert.Contains(t, errs, `component web: image-references replaces "placeholder.example.com/we" with image we, but no manifest uses that placeholder`)
	assert.NotContains(t, errs, `"placeholder.example.com/web"`)
}

func TestReleaseWithTheOperatorsManifestsHasNoWarnings(t *testing.T) {
	to := filepath.Join(t.TempDir(), "release")
	_, errs, err := runCvo(t, "release", "new", "--from-dir", plainFolder(t, map[string]string{"web/web.yaml": plainManifests}), "--name", "1.0.0", "--no-operator", "--to-dir", to)
	require.NoError(t, err, errs)
	out, _, err := runCvo(t, "release", "lint", to, "--strict", "--disable", "verification-missing")
	require.NoError(t, err, out)
}
