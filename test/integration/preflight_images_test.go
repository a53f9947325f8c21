package integration_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestPreflightNamesMissingImages examines a release with one image that the running release uses too, one that exists, one that exists only
// in the cluster's mirror, which needs the pull secret, one that its registry does not have, and one whose registry cannot be reached.
func TestPreflightNamesMissingImages(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	l.create(rolloutDefinition)
	l.crds("config/v1", "*_imagedigestmirrorsets.crd.yaml")
	component := func(name string) release.Image {
		img, err := fixture.ReleaseImage(fstest.MapFS{"release-manifests/release-metadata": {Data: fmt.Appendf(nil, `{"version":%q}`, name)}})
		require.NoError(t, err)
		pushed, err := fixture.Push(t.Context(), l.registry, img, "platform/components:"+name)
		require.NoError(t, err)
		return pushed
	}
	running, exists := component("running").ByDigest(), component("exists").ByDigest()
	mirrored := source + "/components@" + string(component("mirrored").Digest)
	gone := l.registry.Host() + "/platform/components@sha256:" + strings.Repeat("1", 64)
	far := "127.0.0.1:1/platform/components@sha256:" + strings.Repeat("2", 64)
	push := func(version string, images ...string) release.Image {
		files := fstest.MapFS{}
		for _, component := range []string{"lab", "annex"} { // both use the images
			files["release-manifests/0000_30_"+component+"_01.yaml"] = &fstest.MapFile{Data: fmt.Appendf(nil, `
apiVersion: v1
kind: Namespace
metadata: {name: %s, annotations: {include.release.openshift.io/self-managed-high-availability: "true", images: %q}}
`, component, strings.Join(images, " "))}
		}
		return l.special(version, files)
	}
	l.own = push("4.2.0", running)
	l.install("4.2.0")
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	(&outside{platform: l.platform, mirror: guarded(t, l.registry, "cluster", "secret"), repository: "platform"}).mirrored()

	l.registry.Reset()
	next := push("4.2.1", running, exists, mirrored, gone, far)
	l.preflight(configv1.Update{Image: next.ByDigest()})
	p := l.awaitRollout("the preflight", preflightEnded(api.PreflightObjected, "4.2.1")).Status.Preflight
	assert.Contains(t, p.Message, "images that nodes cannot pull: annex, lab: "+gone+": ")
	assert.Contains(t, p.Message, "images that could not be looked up: annex, lab: "+far+": ")
	assert.NotContains(t, p.Message, exists)
	assert.NotContains(t, p.Message, mirrored)
	assert.Zero(t, l.registry.Count(http.MethodGet, "/platform/components/manifests/"+string(release.Pullspec(exists).Digest())), "images are not read")
	assert.Equal(t, 1, l.registry.Count(http.MethodHead, "/platform/components/manifests/"+string(release.Pullspec(exists).Digest())))
	assert.Zero(t, l.registry.Count(http.MethodHead, "/platform/components/manifests/"+string(release.Pullspec(running).Digest())), "nodes have this image")

	l.registry.Reset()
	out, err := l.run("upgrade", "diff", next.ByDigest(), "--trust", l.trust)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, command.ExitRefused, exit.ExitCode())
	require.ErrorContains(t, err, "error: nodes cannot pull 1 image of release 4.2.1")
	assert.Contains(t, out, "\nImages that nodes cannot pull:\n  annex, lab: "+gone+": ")
	assert.Contains(t, out, "\n\nImages that could not be looked up:\n  annex, lab: "+far+": ")
	assert.NotContains(t, out, exists+"\n")
	assert.Zero(t, l.registry.Count(http.MethodHead, "/platform/components/manifests/"+string(release.Pullspec(running).Digest())), "nodes have this image")
}
