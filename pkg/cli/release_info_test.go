package cli_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/author/assemble/publish"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// unsignedRelease is a registry with a small unsigned release of two components.
type unsignedRelease struct {
	registry *fixture.Registry
	files    fstest.MapFS
	image    release.Image
	dns      string
}

func newUnsignedRelease(t *testing.T) *unsignedRelease {
	t.Helper()
	l := &unsignedRelease{registry: fixture.StartRegistry(t), files: fstest.MapFS{}}
	component, err := fixture.ReleaseImage(fstest.MapFS{"release-manifests/release-metadata": {Data: []byte(`{"version":"dns"}`)}})
	require.NoError(t, err)
	pushed, err := fixture.Push(t.Context(), l.registry, component, "platform/dns:1")
	require.NoError(t, err)
	l.dns = pushed.ByDigest()
	for name, text := range smallRelease {
		l.files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	l.files["release-manifests/image-references"] = &fstest.MapFile{Data: []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1",
		"metadata":{"name":"1.2.3","creationTimestamp":"2026-03-01T12:00:00Z"},"spec":{"tags":[
		{"name":"dns","annotations":{"io.openshift.build.commit.id":"abc"},"from":{"kind":"DockerImage","name":"` + l.dns + `"}}]}}`)}
	l.image, err = fixture.PushRelease(t.Context(), l.registry, l.files, "platform/release:1.2.3")
	require.NoError(t, err)
	return l
}

func TestReleaseInfoDescribesAndComparesReleases(t *testing.T) {
	l := newUnsignedRelease(t)
	digest := string(release.Pullspec(l.dns).Digest())
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"names images", []string{"-o", "name"}, "dns\n"},
		{"prints pullspecs", []string{"-o", "pullspec"}, l.dns + "\n"},
		{"prints digests", []string{"-o", "digest"}, digest + "\n"},
		{"prints the image of a component", []string{"--image-for", "dns"}, l.dns + "\n"},
		{"evaluates a JSONPath expression", []string{"-o", "jsonpath={.metadata.version} {.references.spec.tags[*].name}"}, "1.2.3 dns"},
		{"accepts expressions without braces", []string{"-o", "jsonpath=.digest"}, string(l.image.Digest)},
		{"executes a template", []string{"-o", `go-template={{.digest}}{{"\n"}}`}, string(l.image.Digest) + "\n"},
		{"does not print sizes as floats", []string{"--include-images", "-o", `go-template={{len .images.dns.layers}} {{.images.dns.name}}`}, "1 " + l.dns},
		{"verifies", []string{"--verify"}, string(l.image.Digest) + " 2026-03-01T12:00:00Z 1.2.3\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errs, err := runCvo(t, append([]string{"release", "info", l.image.Pullspec}, tt.args...)...)
			require.NoError(t, err)
			assert.Equal(t, tt.want, out)
			assert.Contains(t, errs, "its signatures are not checked")
		})
	}
	t.Run("prints the same data as JSON and YAML", func(t *testing.T) {
		inJSON, _, err := runCvo(t, "release", "info", l.image.Pullspec, "-o", "json")
		require.NoError(t, err)
		inYAML, _, err := runCvo(t, "release", "info", l.image.Pullspec, "-o", "yaml")
		require.NoError(t, err)
		converted, err := yaml.YAMLToJSON([]byte(inYAML))
		require.NoError(t, err)
		assert.JSONEq(t, inJSON, string(converted))
	})
	t.Run("prints pullspecs, commits, sizes and contents", func(t *testing.T) {
		for flag, want := range map[string]string{
			"--pullspecs": "  dns  " + l.dns, "--commits": "  dns       abc", "--size": "  NAME AGE LAYERS SIZE MB UNIQUE MB BASE\n",
			"--contents": "# 0000_10_config_00_cluster.yaml\n" + smallRelease["release-manifests/0000_10_config_00_cluster.yaml"],
		} {
			out, _, err := runCvo(t, "release", "info", l.image.Pullspec, flag)
			require.NoError(t, err)
			assert.Contains(t, out, want, flag)
		}
	})
	t.Run("compares two releases", func(t *testing.T) {
		same, _, err := runCvo(t, "release", "info", l.image.Pullspec, l.image.ByDigest())
		require.NoError(t, err)
		assert.Equal(t, "Releases are identical\n", same)
		files := maps.Clone(l.files)
		files["release-manifests/release-metadata"] = &fstest.MapFile{Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.3.0","previous":["1.2.3"]}`)}
		files["release-manifests/image-references"] = &fstest.MapFile{Data: []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.3.0"}}`)}
		next, err := fixture.PushRelease(t.Context(), l.registry, files, "platform/release:1.3.0")
		require.NoError(t, err)
		out, _, err := runCvo(t, "release", "info", next.Pullspec, "--changes-from", l.image.Pullspec)
		require.NoError(t, err)
		assert.Contains(t, out, "Images Removed (1):")
		upgrade, _, err := runCvo(t, "release", "info", l.image.Pullspec, next.Pullspec, "-o", "jsonpath={.upgrade} {.images[*].change}")
		require.NoError(t, err)
		assert.Equal(t, "true removed", upgrade)
	})
}

func TestReleaseInfoVerifiesEveryPlatform(t *testing.T) {
	l := newUnsignedRelease(t)
	image := func(architecture string) v1.Image {
		img, err := fixture.ReleaseImage(fstest.MapFS{"release-manifests/release-metadata": {Data: []byte(`{"version":"` + architecture + `"}`)}})
		require.NoError(t, err)
		return img
	}
	arm64, attestation := image("arm64"), image("attestation")
	nested := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image("s390x")})
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: image("amd64"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: arm64, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: arm64, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}}},
		mutate.IndexAddendum{Add: attestation, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}, Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest"},
		}},
		mutate.IndexAddendum{Add: nested},
	)
	ref, err := name.ParseReference(l.registry.Host() + "/platform/dns:two")
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(ref, index))
	digest, err := index.Digest()
	require.NoError(t, err)
	files := maps.Clone(l.files)
	files["release-manifests/image-references"] = &fstest.MapFile{Data: bytes.ReplaceAll(
		l.files["release-manifests/image-references"].Data, []byte(l.dns), []byte(ref.Context().Digest(digest.String()).String()))}
	img, err := fixture.PushRelease(t.Context(), l.registry, files, "platform/release:two")
	require.NoError(t, err)
	lacks := func(entry interface{ Digest() (v1.Hash, error) }) {
		digest, err := entry.Digest()
		require.NoError(t, err)
		l.registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/" + digest.String()), Status: http.StatusNotFound})
	}
	lacks(attestation)
	_, _, err = runCvo(t, "release", "info", img.Pullspec, "--verify")
	require.NoError(t, err, "no cluster pulls an attestation")
	lacks(arm64)
	_, _, err = runCvo(t, "release", "info", img.Pullspec, "--verify")
	require.ErrorContains(t, err, "image dns: platform linux/arm64: ")
	assert.Equal(t, command.ExitRefused, command.ExitCode(err))
	require.ErrorContains(t, err, "\nplatform linux/arm64/v8: ", "another platform with the same image")
	lacks(nested)
	_, _, err = runCvo(t, "release", "info", img.Pullspec, "--verify")
	require.ErrorContains(t, err, "\nan entry of index "+digest.String()+": ", "an index has no platform")
}

func TestReleaseInfoVerifiesEveryPlatformOfTheRelease(t *testing.T) {
	l := newUnsignedRelease(t)
	index := v1.ImageIndex(empty.Index)
	for _, architecture := range []string{"amd64", "arm64"} {
		files := maps.Clone(l.files)
		files["release-manifests/"+architecture] = &fstest.MapFile{Data: []byte("other content")}
		img, err := fixture.ReleaseImage(files)
		require.NoError(t, err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	ref, err := name.ParseReference(l.registry.Host() + "/platform/release:multi")
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(ref, index))
	_, _, err = runCvo(t, "release", "info", ref.String(), "--verify")
	require.NoError(t, err)

	manifests, err := index.IndexManifest()
	require.NoError(t, err)
	l.registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/" + manifests.Manifests[1].Digest.String()), Status: http.StatusNotFound})
	_, _, err = runCvo(t, "release", "info", ref.String(), "--verify")
	require.ErrorContains(t, err, "the release image: platform linux/arm64: ")
}

func TestReleaseInfoRejectsATamperedComponent(t *testing.T) {
	l := newUnsignedRelease(t)
	l.registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/platform/dns/manifests/"), Rewrite: func(b []byte) []byte { return append(b, ' ') }})
	out, _, err := runCvo(t, "release", "info", l.image.Pullspec, "--verify")
	require.ErrorContains(t, err, "may have been tampered with")
	assert.Equal(t, command.ExitRefused, command.ExitCode(err))
	assert.Empty(t, out)

	l.files["release-manifests/image-references"].Data = []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"},"spec":{"tags":[
		{"name":"console","from":{"kind":"DockerImage","name":"` + l.registry.Host() + `/platform/console@sha256:` + strings.Repeat("c", 64) + `"}},
		{"name":"dns","from":{"kind":"DockerImage","name":"` + l.dns + `"}}]}}`)
	img, err := fixture.PushRelease(t.Context(), l.registry, l.files, "platform/release:1.2.4")
	require.NoError(t, err)
	_, _, err = runCvo(t, "release", "info", img.Pullspec, "--verify")
	assert.Equal(t, command.ExitRefused, command.ExitCode(err))
	require.ErrorContains(t, err, "may have been tampered with: image dns: ")
	require.ErrorContains(t, err, "\n1 other image could not be checked: image console: ")
}

func TestReleaseInspectionRejectsWrongArguments(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, tt := range []struct {
		args string
		want string
		code int
	}{
		{"info a --size --verify", "--size, --verify exclude each other", command.ExitUsage},
		{"info a b c", "got 3 releases", command.ExitUsage},
		{"info a -o xml", `unknown output "xml": use one of json, yaml, jsonpath=`, command.ExitUsage},
		{"info a -o jsonpath={.a", "--output jsonpath: ", command.ExitUsage},
		{"info a -o go-template={{", "--output go-template: ", command.ExitUsage},
		{"info a b --size", "--size requires a single release", command.ExitUsage},
		{"info a --contents -o json", "--contents prints files", command.ExitUsage},
		{"info a --changelog x", "--changelog is not supported: it requires clones", command.ExitUsage},
		{"info a --bugs x", "--bugs is not supported", command.ExitUsage},
		{"info a --rpmdb", "--rpmdb is not supported", command.ExitUsage},
		{"info ./nothing", "./nothing: file does not exist", command.ExitUsage},
		{"info bin/platform:1.0.0", `"bin/platform:1.0.0" does not exist and names no registry: check the path, or use docker.io/bin/platform:1.0.0`, command.ExitUsage},
		{"info 1.2.3", `the semantic version "1.2.3" cannot be resolved without a cluster`, command.ExitFailed},
		{"info", "name a release, or connect to a cluster", command.ExitFailed},
		{"extract a --command oc", "--command is not supported: it is for one vendor's client", command.ExitUsage},
		{"extract a --tools", "--tools is not supported", command.ExitUsage},
		{"extract a --git x", "--git is not supported: list repositories and commits with 'cvo release info --commits'", command.ExitUsage},
		{"extract a --from b", "named twice", command.ExitUsage},
		{"extract a --layout round", `unknown --layout "round"`, command.ExitUsage},
		{"extract a --cloud aws", "use it with --credentials-requests", command.ExitUsage},
		{"extract a --install-config x", "use it with --included", command.ExitUsage},
		{"extract a --layout image --included", "omit --included", command.ExitUsage},
		{"extract a --file x --to y", "omit --to", command.ExitUsage},
		{"extract a --to=", "--to is empty", command.ExitUsage},
		{"extract a -o xml", "use text, json, yaml", command.ExitUsage},
		{"extract . --trust x", "folders cannot be signed", command.ExitUsage},
	} {
		t.Run("rejects "+tt.args, func(t *testing.T) {
			_, _, err := runCvo(t, append([]string{"release"}, strings.Split(tt.args, " ")...)...)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.code, command.ExitCode(err))
		})
	}
}

func TestReleaseExtractWritesTheFilesOfARelease(t *testing.T) {
	l := newUnsignedRelease(t)
	flat := map[string]string{}
	for name, f := range l.files {
		if base, ok := strings.CutPrefix(name, "release-manifests/"); ok {
			flat[base] = string(f.Data)
		}
	}
	t.Run("writes the same files as oc, at the same paths", func(t *testing.T) {
		to := filepath.Join(t.TempDir(), "out")
		out, errs, err := runCvo(t, "release", "extract", "--from", l.image.Pullspec, "--to", to)
		require.NoError(t, err)
		assert.Equal(t, "Extracted release payload from digest "+string(l.image.Digest)+" created at 2026-03-01T12:00:00Z\n", out)
		assert.Contains(t, errs, "its signatures are not checked")
		assert.Equal(t, flat, contents(t, to))

		require.NoError(t, os.WriteFile(filepath.Join(to, "release-metadata"), []byte("mine"), 0o644))
		_, _, err = runCvo(t, "release", "extract", l.image.Pullspec, "--to", to)
		require.ErrorContains(t, err, "nothing was written: "+to+" already has different files with these names: release-metadata: name another folder, or replace them with --overwrite")
		assert.Equal(t, command.ExitFailed, command.ExitCode(err))
		out, _, err = runCvo(t, "release", "extract", l.image.Pullspec, "--to", to, "--overwrite", "-o", "json")
		require.NoError(t, err)
		var result struct {
			Files, Unchanged int
			Version          string
		}
		require.NoError(t, json.Unmarshal([]byte(out), &result))
		assert.Equal(t, len(flat), result.Files)
		assert.Equal(t, len(flat)-1, result.Unchanged)
		assert.Equal(t, "1.2.3", result.Version)
	})
	t.Run("follows an install config", func(t *testing.T) {
		config, to := filepath.Join(t.TempDir(), "install-config.yaml"), filepath.Join(t.TempDir(), "out")
		require.NoError(t, os.WriteFile(config, []byte("apiVersion: v1\nplatform: {gcp: {}}\ncapabilities: {baselineCapabilitySet: None}\n"), 0o600))
		out, _, err := runCvo(t, "release", "extract", l.image.Pullspec, "--to", to, "--included", "--install-config", config, "-o", "json")
		require.NoError(t, err)
		assert.Contains(t, out, `"reason": "`)
		assert.NotContains(t, contents(t, to)["0000_50_console_00.yaml"], "name: console,")
		_, _, err = runCvo(t, "release", "extract", l.image.Pullspec, "--to", to, "--included", "--install-config", config, "--credentials-requests", "--cloud", "aws")
		require.ErrorContains(t, err, "--cloud is aws, but the cluster's platform is gcp")
		assert.Equal(t, command.ExitUsage, command.ExitCode(err))
	})
	t.Run("selects the credentials requests of the cluster's cloud", func(t *testing.T) {
		dir, config, to := t.TempDir(), filepath.Join(t.TempDir(), "install-config.yaml"), filepath.Join(t.TempDir(), "out")
		require.NoError(t, os.WriteFile(config, []byte("apiVersion: v1\nplatform: {gcp: {}}\n"), 0o600))
		require.NoError(t, os.CopyFS(dir, l.files))
		for _, provider := range []string{"AWS", "GCP"} {
			request := "apiVersion: cloudcredential.openshift.io/v1\nkind: CredentialsRequest\nmetadata: {name: " + provider + "}\nspec: {providerSpec: {kind: " + provider + "ProviderSpec}}\n"
			require.NoError(t, os.WriteFile(filepath.Join(dir, "release-manifests", "0000_50_credentials_"+provider+".yaml"), []byte(request), 0o600))
		}
		out, _, err := runCvo(t, "release", "extract", dir, "--to", to, "--included", "--install-config", config, "--credentials-requests", "-o", "json")
		require.NoError(t, err)
		assert.Contains(t, out, "is for AWSProviderSpec, not GCPProviderSpec")
		assert.Equal(t, []string{"0000_50_credentials_GCP.yaml"}, slices.Collect(maps.Keys(contents(t, to))))
	})
}

//threat:release-mirrored-extracted
func TestReleaseExtractVerifiesBeforeItWrites(t *testing.T) {
	l := newUnsignedRelease(t)
	signer, err := fixture.NewSigner("platform", fixture.SignerOptions{})
	require.NoError(t, err)
	store := filepath.Join(t.TempDir(), "store")
	data, err := signer.Trust("file://" + store)
	require.NoError(t, err)
	trust, to := filepath.Join(t.TempDir(), "trust.yaml"), filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.WriteFile(trust, data, 0o600))
	l.registry.Reset()
	for _, args := range [][]string{{"extract", l.image.Pullspec, "--to", to}, {"info", l.image.Pullspec}, {"graph", l.image.Pullspec}} {
		_, _, err = runCvo(t, append([]string{"release"}, append(args, "--trust", trust)...)...)
		require.Error(t, err)
		assert.Equal(t, command.ExitRefused, command.ExitCode(err), args)
	}
	assert.NoDirExists(t, to)
	assert.Zero(t, l.registry.Count("GET", "/platform/release/blobs/"), "its content was not read")

	_, err = signer.WriteSignature(store, l.image)
	require.NoError(t, err)
	_, errs, err := runCvo(t, "release", "extract", l.image.Pullspec, "--to", to, "--trust", trust)
	require.NoError(t, err)
	assert.Contains(t, errs, "is signed by openpgp key")
	assert.NotContains(t, errs, "not checked")
	assert.DirExists(t, to)
}

func TestReleasesAreReadFromLayoutsAndFolders(t *testing.T) {
	l := newUnsignedRelease(t)
	img, err := fixture.ReleaseImage(l.files)
	require.NoError(t, err)
	oci := filepath.Join(t.TempDir(), "oci")
	require.NoError(t, publish.ToLayout(img, oci, "1.2.3"))
	_, err = layout.FromPath(oci)
	require.NoError(t, err)
	whole, flat := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "flat")
	_, _, err = runCvo(t, "release", "extract", oci+":1.2.3", "--layout", "image", "--to", whole)
	require.NoError(t, err)
	_, _, err = runCvo(t, "release", "extract", whole, "--to", flat)
	require.NoError(t, err)
	want, _, err := runCvo(t, "release", "graph", l.image.Pullspec)
	require.NoError(t, err)
	for _, ref := range []string{oci, oci + ":1.2.3", oci + "@" + string(l.image.Digest), whole} {
		got, _, err := runCvo(t, "release", "graph", ref)
		require.NoError(t, err, ref)
		assert.Equal(t, want, got)
	}
	_, _, err = runCvo(t, "release", "graph", flat)
	require.ErrorContains(t, err, "--layout=image")
	for _, ref := range []string{oci, whole, flat} {
		out, _, err := runCvo(t, "release", "info", ref, "-o", "jsonpath={.metadata.version}")
		require.NoError(t, err, ref)
		assert.Equal(t, "1.2.3", out)
	}
}

// TestReleaseNameIsResolvedByTheClusterVersion resolves releases with a ClusterVersion on a real API server.
func TestReleaseNameIsResolvedByTheClusterVersion(t *testing.T) {
	d, running := newDiffed(t)
	update := d.push(t, d.tree(t, "1.1.0", map[string]string{
		"0000_20_x.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: kept}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: unmanaged}\n",
	}), "1.1.0", true)
	cv := &configv1.ClusterVersion{}
	require.NoError(t, d.client.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "Namespace", Name: "kept", Unmanaged: true}}
	require.NoError(t, d.client.Update(t.Context(), cv))
	cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{{
		Release: configv1.Release{Version: "1.1.0", Image: update.ByDigest()},
		Risks:   []configv1.ConditionalUpdateRisk{{Name: "R", Message: "m", URL: "https://example.com", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}}}},
		Conditions: []metav1.Condition{{
			Type: "Recommended", Status: metav1.ConditionFalse, Reason: "R", Message: "m", LastTransitionTime: metav1.Now(),
		}},
	}}
	require.NoError(t, d.client.Status().Update(t.Context(), cv))
	version := func(args ...string) (string, error) {
		out, _, err := runCvo(t, append([]string{"release", "info", "--kubeconfig", d.env.Kubeconfig, "-o", "jsonpath={.metadata.version}"}, args...)...)
		return out, err
	}
	out, err := version()
	require.NoError(t, err)
	assert.Equal(t, "1.0.0", out, "the cluster's current release")
	out, err = version("1.1.0")
	require.NoError(t, err)
	assert.Equal(t, "1.1.0", out, "a conditional update")
	_, err = version("1.9.0")
	require.ErrorContains(t, err, `the semantic version "1.9.0" is not present in the cluster version status, cannot be resolved: the cluster lists "1.0.0", "1.1.0"; name the image instead`)

	to := filepath.Join(t.TempDir(), "out")
	out, _, err = runCvo(t, "release", "extract", "1.1.0", "--kubeconfig", d.env.Kubeconfig, "--included", "--to", to, "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"name": "kept"`, "an override excludes it")
	_, rest, _ := strings.Cut(contents(t, to)["0000_20_x.yaml"], "name: ")
	assert.NotContains(t, rest, "kept")

	require.EventuallyWithT(t, func(c *assert.CollectT) { // a completion waits for the cluster only for a second
		completed, _, err := runCvo(t, "__complete", "release", "extract", "--kubeconfig", d.env.Kubeconfig, "")
		require.NoError(c, err)
		assert.Contains(c, completed, "1.0.0\t"+running.ByDigest())
		assert.Contains(c, completed, "1.1.0\t"+update.ByDigest())
	}, time.Minute, 10*time.Millisecond)
}

func TestReleaseArgumentsAreCompleted(t *testing.T) {
	l := newUnsignedRelease(t)
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for line, want := range map[string]string{
		"release extract x --layout ":                         "flat\nimage\n",
		"release extract x --cloud a":                         "alibabacloud\naws\nazure\n",
		"release extract " + l.image.Pullspec + " --file rel": "release-metadata\n",
		"release info " + l.image.Pullspec + " --image-for ":  "dns\n",
		"release info x -o ":                                  "name\npullspec\ndigest\njson\n",
		"release graph x --mode ":                             "initializing\nupdating\nreconciling\n",
	} {
		require.EventuallyWithT(t, func(c *assert.CollectT) { // a completion waits for the registry only for two seconds
			out, _, err := runCvo(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
			require.NoError(c, err)
			assert.Contains(c, out, want, line)
		}, time.Minute, 10*time.Millisecond)
	}
}
