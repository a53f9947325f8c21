package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/release/mirror"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/store"
	"github.com/cluster-version/cvo/test/fixture"
)

// mirrorable is a signed release of two components in a registry.
type mirrorable struct {
	t                  *testing.T
	source, target     *fixture.Registry
	image              release.Image
	components         []release.Image
	dir, store, trust  string
	tree               fstest.MapFS
	signer             *fixture.Signer
	stdout, stderrText string
}

func newMirrorable(t *testing.T, keysInPayload bool) *mirrorable {
	t.Helper()
	m := &mirrorable{t: t, source: fixture.StartRegistry(t), target: fixture.StartRegistry(t), dir: t.TempDir()}
	m.store, m.trust = filepath.Join(m.dir, "store"), filepath.Join(m.dir, "trust.yaml")
	var err error
	m.signer, err = fixture.NewSigner("vendor", fixture.SignerOptions{})
	require.NoError(t, err)
	trust, err := m.signer.Trust("file://" + m.store)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(m.trust, trust, 0o644))
	var tags []string
	for _, name := range []string{"console", "dns"} {
		content, err := fixture.Append(empty.Image, []byte(name))
		require.NoError(t, err)
		img, err := fixture.Push(t.Context(), m.source, content, "upstream/components:"+name)
		require.NoError(t, err)
		m.components = append(m.components, img)
		tags = append(tags, fmt.Sprintf(`{"name": %q, "from": {"kind": "DockerImage", "name": %q}}`, name, img.ByDigest()))
	}
	m.tree = fstest.MapFS{
		"manifests/0000_00_a.yaml":           {Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n")},
		"release-manifests/release-metadata": {Data: []byte(`{"kind": "cincinnati-metadata-v0", "version": "1.2.3", "previous": []}`)},
		"release-manifests/image-references": {Data: fmt.Appendf(nil,
			`{"apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": "1.2.3"}, "spec": {"tags": [%s]}}`, strings.Join(tags, ","))},
	}
	if keysInPayload {
		m.tree["release-manifests/0000_10_keys.yaml"] = &fstest.MapFile{Data: trust}
	}
	m.image, err = fixture.PushRelease(t.Context(), m.source, m.tree, "upstream/release:1.2.3-x86_64")
	require.NoError(t, err)
	return m
}

func (m *mirrorable) sign() {
	m.t.Helper()
	_, err := m.signer.WriteSignature(m.store, m.image)
	require.NoError(m.t, err)
}

// run runs "release mirror" and records its output.
func (m *mirrorable) run(args ...string) error {
	m.t.Helper()
	var out, errs bytes.Buffer
	cmd := cli.New(command.Streams{In: &bytes.Buffer{}, Out: &out, Err: &errs})
	cmd.SetArgs(append([]string{"release", "mirror"}, args...))
	err := cmd.ExecuteContext(m.t.Context())
	m.stdout, m.stderrText = m.plain(out.String()), m.plain(errs.String())
	return err
}

// plain replaces the parts of a text that differ between two runs.
func (m *mirrorable) plain(text string) string {
	return strings.NewReplacer(m.source.Host(), "SOURCE", m.target.Host(), "TARGET", m.dir, "DIR",
		string(m.image.Digest), "RELEASE", m.image.Digest.Hex()[:16], "RELEASE16").Replace(text)
}

func (m *mirrorable) to() string { return m.target.Host() + "/mirror/platform" }

// usesImages is a file with images by digest and by tag: in containers, in the text of a ConfigMap for another profile, and in a Deployment
// that no cluster gets.
const usesImages = `apiVersion: apps/v1
kind: Deployment
metadata: {name: x, namespace: a, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec: {template: {spec: {containers: [{name: listed, image: LISTED}, {name: tagged, image: "registry.example/web:1"}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: x, namespace: a, annotations: {include.release.openshift.io/hypershift: "true"}}
data: {command: "run --image=UNLISTED in {{.ReleaseImage}}"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: never, namespace: a}
spec: {template: {spec: {containers: [{name: web, image: "registry.example/never:1"}]}}}
`

func TestReleaseCommandsWarnOfImagesThatTheReleaseDoesNotList(t *testing.T) {
	m := newMirrorable(t, false)
	unlisted := "registry.example/other@sha256:" + strings.Repeat("a", 64)
	m.tree["manifests/0000_00_b.yaml"] = &fstest.MapFile{Data: []byte(strings.NewReplacer("UNLISTED", unlisted, "LISTED", m.components[0].ByDigest()).Replace(usesImages))}
	var err error
	m.image, err = fixture.PushRelease(t.Context(), m.source, m.tree, "upstream/release:1.2.3-x86_64")
	require.NoError(t, err)
	m.sign()

	require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust))
	assert.Equal(t, 1, strings.Count(m.stderrText, "warning: "), m.stderrText)
	assert.Contains(t, m.stderrText,
		"warning: manifests of b use 2 images that the release does not list, so they are not copied: "+unlisted+", registry.example/web:1\n")
	_, stderr, err := runCvo(t, "release", "info", m.image.Pullspec, "--verify")
	require.NoError(t, err)
	assert.Contains(t, stderr,
		"warning: manifests of b use 2 images that the release does not list, so they are not verified: "+unlisted+", registry.example/web:1\n")

	m = newMirrorable(t, false)
	m.sign()
	require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust))
	assert.NotContains(t, m.stderrText, "warning")
}

func TestReleaseMirrorCopiesToARegistry(t *testing.T) {
	m := newMirrorable(t, false)
	m.sign()
	require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust))
	assert.Equal(t, `
Success
Update image:  TARGET/mirror/platform:1.2.3-x86_64
Mirror prefix: TARGET/mirror/platform

For OpenShift's installer, add this to install-config.yaml:

imageDigestSources:
- mirrors:
  - TARGET/mirror/platform
  source: SOURCE/upstream/components
- mirrors:
  - TARGET/mirror/platform
  source: SOURCE/upstream/release

For 'cvo install --idms-file', or for an existing cluster with 'kubectl apply -f' (ImageDigestMirrorSet and ImageTagMirrorSet):

apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata:
  name: release-1.2.3
spec:
  imageDigestMirrors:
  - mirrors:
    - TARGET/mirror/platform
    source: SOURCE/upstream/components
  - mirrors:
    - TARGET/mirror/platform
    source: SOURCE/upstream/release
---
apiVersion: config.openshift.io/v1
kind: ImageTagMirrorSet
metadata:
  name: release-1.2.3
spec:
  imageTagMirrors:
  - mirrors:
    - TARGET/mirror/platform
    source: SOURCE/upstream/release
`, m.stdout)
	assert.Contains(t, m.stderrText, "is signed by openpgp key "+m.signer.KeyID())
	assert.Contains(t, m.stderrText, "info: Mirroring 1.2.3: 3 done")
	for _, tag := range []string{"1.2.3-x86_64", "1.2.3-x86_64-console", "1.2.3-x86_64-dns"} {
		assert.Equal(t, 1, m.target.Count("PUT", "/manifests/"+tag+"$"), tag)
	}

	t.Run("the mirror sets refer to the mirror", func(t *testing.T) {
		_, sets, _ := strings.Cut(m.stdout, "ImageTagMirrorSet):\n\n")
		objects, err := mirrorset.Parse([]byte(strings.NewReplacer("SOURCE", m.source.Host(), "TARGET", m.target.Host()).Replace(sets)))
		require.NoError(t, err)
		require.Len(t, objects, 2)
		assert.IsType(t, &configv1.ImageDigestMirrorSet{}, objects[0])
		mirrors, err := mirrorset.New(objects...)
		require.NoError(t, err)
		access := registry.New(registry.Options{Mirrors: mirrors})
		ref, err := access.Reference(m.components[0].ByDigest())
		require.NoError(t, err)
		assert.Equal(t, m.to(), access.Candidates(ref)[0].Context().String())
	})
}

func TestReleaseMirrorCopiesThroughAFolder(t *testing.T) {
	m := newMirrorable(t, false)
	m.sign()
	folder, trust := filepath.Join(m.dir, "carried"), filepath.Join(m.dir, "trust policy.yaml")
	require.NoError(t, os.Rename(m.trust, trust))
	require.NoError(t, m.run("--from", m.image.Pullspec, "--to-dir", folder, "--trust", trust))
	assert.Equal(t, `Configmap signature file DIR/carried/config/signature-sha256-RELEASE16.json created

Success
Update image:  DIR/carried:1.2.3-x86_64
Mirror prefix: DIR/carried

To copy it to a registry:

  cvo release mirror --from-dir DIR/carried --from 1.2.3-x86_64 --to REGISTRY/REPOSITORY --trust 'DIR/trust policy.yaml'
`, m.stdout)

	// The other network reaches neither the source registry nor its store.
	require.NoError(t, m.source.Close())
	require.NoError(t, os.RemoveAll(m.store))
	config := filepath.Join(m.dir, "config")
	require.NoError(t, m.run("--from-dir", folder, "--to", m.to(), "--trust", trust, "--release-image-signature-to-dir", config))
	assert.Contains(t, m.stdout, "Configmap signature file DIR/config/signature-sha256-RELEASE16.json created")
	assert.Contains(t, m.stdout, "source: SOURCE/upstream/release", "the folder knows where the release comes from")
	assert.Contains(t, m.stderrText, "found in file://DIR/carried/signatures/")

	data, err := os.ReadFile(filepath.Join(config, "signature-sha256-"+m.image.Digest.Hex()[:16]+".json"))
	require.NoError(t, err)
	var cm corev1.ConfigMap
	require.NoError(t, json.Unmarshal(data, &cm))
	assert.Equal(t, "openshift-config-managed", cm.Namespace)
	assert.Equal(t, "sha256-"+m.image.Digest.Hex(), cm.Name)
	assert.Contains(t, cm.Labels, "release.openshift.io/verification-signatures")
	assert.Contains(t, cm.BinaryData, store.ConfigMapKey(m.image.Digest, 1))
}

// TestReleaseInfoVerifiesTheImagesOfAMirror verifies a mirror in a registry and one in a folder.
func TestReleaseInfoVerifiesTheImagesOfAMirror(t *testing.T) {
	m := newMirrorable(t, false)
	m.sign()
	folder := filepath.Join(m.dir, "carried")
	require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust))
	require.NoError(t, m.run(m.image.Pullspec, "--to-dir", folder, "--trust", m.trust))
	dns := m.components[1].Digest
	inRegistry, inFolder := m.to()+":1.2.3-x86_64", folder+":1.2.3-x86_64"

	complete := m.target.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/" + string(dns)), Status: http.StatusNotFound})
	file := layout.Path(folder, dns)
	require.NoError(t, os.Rename(file, file+".away"))
	for place, ref := range map[string]string{m.to(): inRegistry, folder: inFolder} {
		for _, flag := range []string{"--verify", "--size"} {
			_, _, err := runCvo(t, "release", "info", ref, flag)
			require.ErrorContains(t, err, "image dns: ", "the source has the image, but the mirror lacks it")
			require.ErrorContains(t, err, place)
			assert.NotContains(t, err.Error(), "image console: ")
		}
	}

	complete()
	require.NoError(t, os.Rename(file+".away", file))
	require.NoError(t, m.source.Close())
	for place, ref := range map[string]string{m.to(): inRegistry, folder: inFolder} {
		out, errs, err := runCvo(t, "release", "info", ref, "--verify")
		require.NoError(t, err)
		assert.Contains(t, out, string(m.image.Digest)+" ")
		assert.Contains(t, errs, "info: Checked 2 images in "+place+"\n")
		_, _, err = runCvo(t, "release", "info", ref, "--size")
		require.NoError(t, err)
	}
}

//threat:release-verified-own accepts a release that its own keys have signed
//threat:release-mirrored-extracted rejects a release without a trusted signature
func TestReleaseMirrorRejectsUntrustedReleases(t *testing.T) {
	for _, tt := range []struct {
		name, args    string
		inPayload     bool
		signed        bool
		want, warning string
	}{
		{name: "rejects a release without a trusted signature", args: "--trust TRUST", want: "nothing was copied"},
		{name: "rejects a release without a signature by its own keys", inPayload: true, want: "add --trust FILE"},
		{name: "rejects a release without keys", want: "the release contains no keys"},
		{name: "accepts any release with --insecure-skip-verification", args: "--insecure-skip-verification", warning: "copying without a trusted signature"},
		{name: "accepts a release that its own keys have signed", inPayload: true, signed: true, warning: "verifying the release with its own keys"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMirrorable(t, tt.inPayload)
			if tt.signed {
				m.sign()
			}
			args := append([]string{m.image.Pullspec, "--to", m.to()}, strings.Fields(strings.ReplaceAll(tt.args, "TRUST", m.trust))...)
			err := m.run(args...)
			if tt.want == "" {
				require.NoError(t, err)
				assert.Contains(t, m.stderrText, "warning: ")
				assert.Contains(t, m.stderrText, tt.warning)
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, command.ExitRefused, command.ExitCode(err))
			assert.Empty(t, m.target.Requests(), "the command verifies before it copies")
			assert.Zero(t, m.source.Count("GET", "/components/"))
		})
	}
}

// denyReferrers makes the registry deny the list of the release's referrers after the verification of the release.
func (m *mirrorable) denyReferrers() (restore func()) {
	var verified atomic.Bool
	return m.source.AddFault(fixture.Fault{Status: http.StatusForbidden, Match: func(r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/components/") {
			verified.Store(true)
		}
		return verified.Load() && strings.Contains(r.URL.Path, "/release/referrers/")
	}})
}

// trustKey returns the file of a trust policy with the signer's key.
func trustKey(t *testing.T, signer *fixture.KeySigner) string {
	t.Helper()
	key, err := signer.PublicKey()
	require.NoError(t, err)
	return written(t, "trust.yaml", trustDocument(fields{"sigstore": fields{"publicKeys": []fields{{"name": "team", "pem": string(key)}}}}))
}

func TestReleaseMirrorRejectsACopyWithoutTheSignature(t *testing.T) {
	signer, err := fixture.NewKeySigner()
	require.NoError(t, err)
	trust := trustKey(t, signer)
	for _, tt := range []struct {
		name   string
		attach func(context.Context, release.Image) error
		want   string
	}{
		{"fails if the copy lacks the signature", signer.AttachReferrer, "its signatures were not copied, and clusters will reject it: run the command again"},
		{"accepts a copy with the signature", signer.Attach, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMirrorable(t, false)
			require.NoError(t, tt.attach(t.Context(), m.image))
			for _, to := range [][]string{{"--to", m.to()}, {"--to-dir", filepath.Join(m.dir, "carried")}} {
				args := append([]string{m.image.Pullspec, "--trust", trust}, to...)
				restore := m.denyReferrers()
				err := m.run(args...)
				assert.Contains(t, m.stderrText, "warning: release: signatures may be missing at the target: ")
				if tt.want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, tt.want)
					assert.Equal(t, command.ExitFailed, command.ExitCode(err))
				}
				restore()
				require.NoError(t, m.run(args...))
			}
		})
	}
	t.Run("accepts a copy of an image that is known to be unsigned", func(t *testing.T) {
		m, _ := newMirrorableIndex(t)
		require.NoError(t, signer.Attach(t.Context(), m.image))
		m.denyReferrers()
		require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", trust, "--keep-manifest-list=false"))
		assert.Contains(t, m.stderrText, "warning: release: signatures may be missing at the target: ")
	})
}

func TestReleaseMirrorDryRunListsTheCopies(t *testing.T) {
	m := newMirrorable(t, false)
	m.sign()
	lines := fmt.Sprintf(`SOURCE/upstream/release@RELEASE TARGET/mirror/platform:1.2.3-x86_64
SOURCE/upstream/components@%s TARGET/mirror/platform:1.2.3-x86_64-console
SOURCE/upstream/components@%s TARGET/mirror/platform:1.2.3-x86_64-dns
`, m.components[0].Digest, m.components[1].Digest)
	require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust, "--to-mirror"))
	assert.Equal(t, lines, m.stdout)
	require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust, "--dry-run", "--print-mirror-instructions", "none"))
	assert.True(t, strings.HasPrefix(m.stdout, lines), m.stdout)
	assert.Contains(t, m.stdout, "Dry run: 3 images with ")
	assert.Empty(t, m.target.Requests())

	folder := filepath.Join(m.dir, "nothing")
	require.NoError(t, m.run(m.image.Pullspec, "--to-dir", folder, "--trust", m.trust, "--dry-run"))
	assert.NoDirExists(t, folder)
}

func TestReleaseMirrorNamesImagesByTemplate(t *testing.T) {
	m := newMirrorable(t, false)
	m.sign()
	require.NoError(t, m.run(m.image.Pullspec, "--to", m.to()+":${component}_${version}", "--to-release-image", m.target.Host()+"/mirror/release:newest",
		"--trust", m.trust, "-o", "json"))
	var result mirror.Result
	require.NoError(t, json.Unmarshal([]byte(m.stdout), &result))
	var names []string
	for _, img := range result.Images {
		names = append(names, img.Destination)
	}
	assert.Equal(t, []string{"TARGET/mirror/release:newest", "TARGET/mirror/platform:console_1.2.3", "TARGET/mirror/platform:dns_1.2.3"}, names)
	assert.Equal(t, "TARGET/mirror/release:newest", result.Image)
	require.Len(t, result.Evidence, 1)
	assert.Equal(t, m.signer.KeyID(), result.Evidence[0].KeyID)
	require.NotNil(t, result.Copied)
	assert.Equal(t, 3, result.Copied.Images)
	assert.Equal(t, 1, m.target.Count("PUT", "/mirror/release/manifests/newest"))

	require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--skip-release-image", "--trust", m.trust, "-o", "yaml"))
	result = mirror.Result{}
	require.NoError(t, yaml.Unmarshal([]byte(m.stdout), &result))
	assert.Len(t, result.Images, 2)
	assert.Empty(t, result.Image)
}

func TestReleaseMirrorOmitsImagesOfAnEarlierRelease(t *testing.T) {
	m := newMirrorable(t, false)
	m.sign()
	older, err := fixture.PushRelease(t.Context(), m.source, fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(`{"kind": "cincinnati-metadata-v0", "version": "1.2.2", "previous": []}`)},
		"release-manifests/image-references": {Data: fmt.Appendf(nil,
			`{"apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": "1.2.2"}, "spec": {"tags": [{"name": "console", "from": {"kind": "DockerImage", "name": %q}}]}}`,
			m.components[0].ByDigest())},
	}, "upstream/release:1.2.2")
	require.NoError(t, err)
	blobsOf := func(args ...string) int {
		t.Helper()
		require.NoError(t, m.run(append([]string{m.image.Pullspec, "--trust", m.trust, "-o", "json"}, args...)...))
		var result mirror.Result
		require.NoError(t, json.Unmarshal([]byte(m.stdout), &result))
		return result.Copied.Blobs
	}
	whole := blobsOf("--to-dir", filepath.Join(m.dir, "whole"))
	assert.Equal(t, whole-2, blobsOf("--to-dir", filepath.Join(m.dir, "difference"), "--since", older.Pullspec),
		"the layer and the configuration of the console are already at the target")
}

func TestReleaseMirrorCopiesAFolderWithoutTheLayersOfAnEarlierRelease(t *testing.T) {
	m := newMirrorable(t, false)
	m.sign()
	tree := maps.Clone(m.tree)
	for _, file := range []string{"release-metadata", "image-references"} {
		name := "release-manifests/" + file
		tree[name] = &fstest.MapFile{Data: bytes.ReplaceAll(m.tree[name].Data, []byte("1.2.3"), []byte("1.2.2"))}
	}
	older, err := fixture.PushRelease(t.Context(), m.source, tree, "upstream/release:1.2.2")
	require.NoError(t, err)
	require.NoError(t, m.run(older.Pullspec, "--to", m.to(), "--insecure-skip-verification"))

	dir := filepath.Join(m.dir, "difference")
	require.NoError(t, m.run(m.image.Pullspec, "--to-dir", dir, "--since", older.Pullspec, "--trust", m.trust))
	require.NoError(t, m.run("--from-dir", dir, "--to", m.to(), "--trust", m.trust), "the layer with manifests/ is only at the target")
}

func TestReleaseMirrorPrintsImageContentSourcePoliciesOnRequest(t *testing.T) {
	m := newMirrorable(t, false)
	m.sign()
	require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust, "--print-mirror-instructions", "icsp"))
	assert.Contains(t, m.stdout, "imageContentSources:")
	assert.Contains(t, m.stdout, "kind: ImageContentSourcePolicy")
	assert.NotContains(t, m.stdout, "MirrorSet")
	assert.Contains(t, m.stderrText, "warning: newer clusters no longer serve ImageContentSourcePolicy")
}

func TestReleaseMirrorRejectsWrongArguments(t *testing.T) {
	for _, tt := range []struct{ name, args, want string }{
		{"a release", "--to example.com/x", "no release: name its image"},
		{"a destination", "example.com/x:1", "no destination"},
		{"a single destination", "example.com/x:1 --to example.com/y --to-dir d", "exclude each other"},
		{"a single folder", "example.com/x:1 --to file:///d --to-dir d", "both --to file:///d and --to-dir d"},
		{"a single release", "example.com/x:1 --from example.com/z:1 --to example.com/y", "use one of them"},
		{"known instructions", "example.com/x:1 --to example.com/y --print-mirror-instructions all", "use idms, icsp or none"},
		{"a single trust option", "example.com/x:1 --to example.com/y --trust t --insecure-skip-verification", "exclude each other"},
		{"a folder with a mirror", "--from-dir . --to example.com/y", "it has no file oci-layout"},
		{"an image, not a version", "1.2.3 --to example.com/y", `"1.2.3" is a version: name its image`},
		{"an image of the earlier release", "example.com/x:1 --to example.com/y --since 1.2.2", `"1.2.2" is a version: name its image`},
		{"a known output", "example.com/x:1 --to example.com/y -o xml", "use text, json, yaml"},
	} {
		t.Run("requires "+tt.name, func(t *testing.T) {
			cmd := cli.New(command.Streams{In: &bytes.Buffer{}, Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
			cmd.SetArgs(append([]string{"release", "mirror"}, strings.Fields(tt.args)...))
			err := cmd.ExecuteContext(t.Context())
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, command.ExitUsage, command.ExitCode(err))
		})
	}
	m := newMirrorable(t, false)
	m.sign()
	for to, want := range map[string]string{
		m.to() + ":latest":                    "all images would get the same tag",
		m.to() + "/${component}":              "only in the tag",
		m.to() + "@" + string(m.image.Digest): "omit the digest",
	} {
		err := m.run(m.image.Pullspec, "--trust", m.trust, "--to", to)
		require.ErrorContains(t, err, want, to)
		assert.Equal(t, command.ExitUsage, command.ExitCode(err), to)
	}
}

func TestReleaseMirrorAppliesSignaturesToTheCluster(t *testing.T) {
	m := newMirrorable(t, false)
	m.sign()
	cfg := withoutPlatform.For(t).Config("test")
	cluster, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "openshift-config-managed"}}
	require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), namespace)))
	kubeconfig := filepath.Join(m.dir, "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, kubeconfig))
	args := []string{m.image.Pullspec, "--to", m.to(), "--trust", m.trust, "--apply-release-image-signature", "--kubeconfig", kubeconfig}
	signatures := func() map[string][]byte {
		var cm corev1.ConfigMap
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: "openshift-config-managed", Name: "sha256-" + m.image.Digest.Hex()}, &cm))
		return cm.BinaryData
	}

	configMap := m.plain("configmap/sha256-" + m.image.Digest.Hex())
	require.NoError(t, m.run(args...))
	assert.Contains(t, m.stdout, configMap+" created")
	assert.Len(t, signatures(), 1)

	require.NoError(t, m.run(args...))
	assert.Contains(t, m.stdout, configMap+" configured")
	assert.Len(t, signatures(), 1, "the same signature is not added again")

	m.sign()
	require.NoError(t, m.run(args...))
	assert.Len(t, signatures(), 2, "signatures of other writers are kept")

	require.NoError(t, os.RemoveAll(m.store))
	m.sign()
	require.NoError(t, m.run(append(args, "--overwrite")...))
	assert.Len(t, signatures(), 1)
	require.NoError(t, cluster.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "openshift-config-managed", Name: "sha256-" + m.image.Digest.Hex(),
	}}))
}
