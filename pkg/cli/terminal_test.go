package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
)

// steeringText moves the cursor, sets the window title, reverses the text direction and forges a line.
const steeringText = "x\x1b[2J\u009b31m\x1b]0;owned\x07\u202e\u200b\nerror: forged"

// textualRelease returns a folder with a release that contains a text in every possible place.
func textualRelease(t *testing.T, version, text string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "manifests"), 0o755))
	write := func(name string, content any) {
		data, err := json.Marshal(content)
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(printing.EscapedJSON(string(data))), 0o600))
	}
	type object = map[string]any
	included := object{"include.release.openshift.io/self-managed-high-availability": "true", "note": text + version}
	write("release-manifests/release-metadata", object{
		"kind": "cincinnati-metadata-v0", "version": version, "previous": []string{},
		"metadata": object{"description": text, "url": text, text: text, "io.openshift.upgrades.graph.release.channels": text},
	})
	write("release-manifests/image-references", object{
		"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": object{"name": version},
		"spec": object{"tags": []object{
			{"name": text, "annotations": object{text: text}, "from": object{"kind": "DockerImage", "name": text}},
			{"name": "web", "annotations": object{"io.openshift.build.versions": text, "io.openshift.build.source-location": text}, "from": object{"kind": "DockerImage", "name": "registry.example/web:1" + text}},
		}},
	})
	write("release-manifests/0000_50_web_config.yaml", object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "config", "namespace": "web" + text, "annotations": included},
		"data": object{text: text + version},
	})
	write("release-manifests/0000_50_web_role.yaml", object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": object{"name": "role" + text, "annotations": included},
		"rules": []object{{"apiGroups": []string{text}, "resources": []string{text}, "verbs": []string{"get"}}},
	})
	write("release-manifests/0000_60_web_kind.yaml", object{"apiVersion": text, "kind": text, "metadata": object{"name": text, "annotations": included}})
	write("release-manifests/not a "+strings.ReplaceAll(text, "/", "")+" manifest", object{})
	write("release-manifests/0000_70_web_crd.yaml", object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": "things.example.com", "annotations": included},
		"spec": object{"group": "example.com" + text, "scope": "Cluster", "names": object{"kind": "Thing" + text, "plural": "things"}, "versions": []object{{"name": text, "served": true, "storage": true}}},
	})
	return dir
}

// TestReleaseCommandsEscapeControlCharacters runs each command that reads a release, in each of its output formats, on a release full of
// control characters.
//
//threat:control-characters-rewrite
func TestReleaseCommandsEscapeControlCharacters(t *testing.T) {
	one, two := textualRelease(t, "1.0.0", steeringText), textualRelease(t, "1.1.0", steeringText)
	expressions := []string{
		"jsonpath={}", "jsonpath={..name}", "jsonpath={.references.spec.tags[*].name}", "jsonpath={.metadata}",
		"go-template={{.}}", "go-template={{range .references.spec.tags}}{{.name}} {{.from.name}} {{.annotations}}{{end}}", "go-template={{.metadata.metadata}}",
	}
	for _, call := range []struct {
		args    []string
		outputs []string
	}{
		{[]string{"release", "info", one}, append([]string{"", "json", "yaml", "name"}, expressions...)},
		{[]string{"release", "info", one, two}, append([]string{"", "json", "yaml"}, expressions...)},
		{[]string{"release", "info", one, "--pullspecs"}, []string{""}},
		{[]string{"release", "info", one, "--contents"}, []string{""}},
		{[]string{"release", "info", one, "--size"}, []string{"", "json"}},
		{[]string{"release", "info", one, "--commits"}, []string{"", "json"}},
		{[]string{"release", "info", one, "--image-for=" + steeringText}, []string{""}},
		{[]string{"release", "info", one, "--image-for=web"}, []string{""}},
		{[]string{"release", "diff", one, two}, []string{"", "text", "json", "yaml"}},
		{[]string{"release", "diff", one, two, "--full"}, []string{"", "json"}},
		{[]string{"release", "lint", one, "--info"}, []string{"text", "json", "yaml", "sarif"}},
		{[]string{"release", "graph", one}, []string{"", "text", "json", "yaml", "dot", "svg"}},
		{[]string{"release", "graph", one, "--excluded"}, []string{"", "text", "json"}},
		{[]string{"release", "rbac", one}, []string{"", "yaml", "json"}},
		{[]string{"release", "verify", one}, append([]string{"", "json"}, expressions...)},
		{[]string{"release", "mirror", one, "--to=registry.invalid/" + steeringText}, []string{""}},
		{[]string{"release", "info", "registry.invalid/" + steeringText}, []string{"", "json"}},
		{[]string{"release", "new", "--from-release", "registry.invalid/x" + steeringText}, []string{""}},
		{[]string{"release", "new", "--from-dir", one}, []string{""}},
	} {
		for _, output := range call.outputs {
			args := call.args
			if output != "" {
				args = append(slices.Clip(args), "-o", output)
			}
			name := strings.NewReplacer(one, "ONE", two, "TWO", steeringText, "TEXT").Replace(strings.Join(args, " "))
			t.Run(name, func(t *testing.T) {
				out, errs, err := runCvo(t, args...)
				var said strings.Builder
				command.PrintError(&said, err)
				for what, text := range map[string]string{"stdout": out, "stderr": errs, "the error": said.String()} {
					text = strings.ReplaceAll(text, "\t", " ")
					if at := strings.IndexFunc(text, printing.Controls); at >= 0 {
						assert.Fail(t, "controls a terminal", "%s: %q", what, text[max(0, at-80):min(len(text), at+80)])
					}
					if what != "stdout" {
						assert.NotContains(t, text, "\nerror: forged", what)
					}
				}
			})
		}
	}
}

//threat:control-characters-rewrite
func TestTemplatesKeepTheirOwnControlCharacters(t *testing.T) {
	for _, output := range []string{`jsonpath={range .list[*]}{@}{"\x00"}{end}`, `go-template={{range .list}}{{.}}{{"\x00"}}{{end}}`} {
		write, err := printing.NewValuePrinter(output)
		require.NoError(t, err)
		var out strings.Builder
		require.NoError(t, write(&out, map[string]any{"list": []string{"a\x1b", "b\nc"}}))
		assert.Equal(t, "a?\x00b\nc\x00", out.String())
	}
}

// TestLinksOutOfAReleaseFolderAreRejected puts a link to an outside file into a release folder.
//
//threat:folder-release-part
func TestLinksOutOfAReleaseFolderAreRejected(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.yaml")
	require.NoError(t, os.WriteFile(outside, []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: n}\nstringData: {password: hunter2}\n"), 0o600))
	whole, components, flat, rerouted := textualRelease(t, "1.0.0", "x"), t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(components, "web"), 0o700))
	link := func(target string, path ...string) string {
		name := filepath.Join(path...)
		require.NoError(t, os.Symlink(target, name))
		return name
	}
	inWhole := link(outside, whole, "release-manifests", "0000_50_web_secret.yaml")
	inComponent := link(outside, components, "web", "secret.yaml")
	inFlat := link(outside, flat, "secret.yaml")
	reroute := link(filepath.Join(whole, "release-manifests"), rerouted, "release-manifests")
	other := textualRelease(t, "1.1.0", "x")
	plain := plainFolder(t, map[string]string{"web/web.yaml": plainManifests})
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"release", "info", whole}, inWhole},
		{[]string{"release", "info", whole, "--contents"}, inWhole},
		{[]string{"release", "diff", other, whole}, inWhole},
		{[]string{"release", "lint", whole}, inWhole},
		{[]string{"release", "graph", whole}, inWhole},
		{[]string{"release", "rbac", whole}, inWhole},
		{[]string{"release", "extract", whole, "--to", filepath.Join(t.TempDir(), "to")}, inWhole},
		{[]string{"release", "extract", whole, "--file", "0000_50_web_secret.yaml"}, inWhole},
		{[]string{"release", "info", rerouted}, reroute},
		{[]string{"release", "lint", rerouted}, reroute},
		{[]string{"release", "new", "--name", "1.0.0", "--from-dir", components, "--to-dir", t.TempDir()}, inComponent},
		{[]string{"release", "new", "--name", "1.0.0", "--from-dir", plain, "--operator-manifests", flat, "--to-dir", t.TempDir()}, inFlat},
	} {
		t.Run(strings.Join(tt.args[:3], " "), func(t *testing.T) {
			out, errs, err := runCvo(t, tt.args...)
			require.ErrorContains(t, err, filepath.Base(tt.want)+": it is a symbolic link that leads out of the folder")
			assert.NotContains(t, out+errs, "hunter2")
		})
	}
}
