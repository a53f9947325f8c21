package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/test/clusterversions"
	"github.com/cluster-version/cvo/test/fixture"
)

// testTags requests updates by tag. The command resolves each tag with a registry over HTTP.
func testTags(t *testing.T, c *requestCluster) {
	t.Helper()
	registry := fixture.StartRegistry(t)
	files := fstest.MapFS{"release-manifests/release-metadata": {Data: []byte(`{"version":"4.14.3"}`)}}
	img, err := fixture.PushRelease(t.Context(), registry, files, "platform/release:4.14.3")
	require.NoError(t, err)
	tag, resolved := img.Pullspec, img.ByDigest()
	mirrors := filepath.Join(t.TempDir(), "mirrors.yaml")
	require.NoError(t, os.WriteFile(mirrors, []byte(fmt.Sprintf(`apiVersion: config.openshift.io/v1
kind: ImageTagMirrorSet
metadata: {name: mirrors}
spec: {imageTagMirrors: [{source: registry.invalid/platform, mirrors: [%s/platform]}]}
`, registry.Host())), 0o600))
	info := fmt.Sprintf("info: Resolved %s to %s\n", tag, img.Digest)
	spec := func(image, version string, force bool) string {
		return fmt.Sprintf(`{"desiredUpdate":{"architecture":"","force":%t,"image":%q,"version":%q}}`, force, image, version)
	}
	listed := func(cv *configv1.ClusterVersion) {
		cv.Status.AvailableUpdates[2].Image = "registry.example/elsewhere@" + string(img.Digest)
	}
	for _, test := range []struct {
		name   string
		change func(*configv1.ClusterVersion)
		args   []string
		out    string
		errs   []string
		spec   string
		code   int
	}{
		{
			name: "requests the digest", args: []string{"--to-image=" + tag, "--allow-explicit-upgrade"},
			out: "Requested update to release image " + resolved + "\n", errs: []string{info}, spec: spec(resolved, "", false),
		},
		{
			name: "finds a listed update by its digest", args: []string{"--to-image=" + tag}, change: listed,
			out: "Requested update to 4.14.9-rc.1\n", errs: []string{info}, spec: spec(resolved, "4.14.9-rc.1", false),
		},
		{
			name: "requests the digest also with --force", args: []string{"--to-image=" + tag, "--allow-explicit-upgrade", "--force"},
			out:  "Requested update to release image " + resolved + "\n",
			errs: []string{info, "warning: Using by-tag pull specs is dangerous", "warning: --force overrides cluster verification"},
			spec: spec(resolved, "", true),
		},
		{
			name: "resolves the tag through a mirror", args: []string{"--to-image=registry.invalid/platform/release:4.14.3", "--allow-explicit-upgrade", "--idms-file=" + mirrors},
			out:  "Requested update to release image registry.invalid/platform/release@" + string(img.Digest) + "\n",
			errs: []string{"info: Resolved registry.invalid/platform/release:4.14.3 to " + string(img.Digest)},
			spec: spec("registry.invalid/platform/release@"+string(img.Digest), "", false),
		},
		{
			name: "rejects an image that is not listed", args: []string{"--to-image=" + tag}, code: command.ExitRefused,
			errs: []string{info, "specify --allow-explicit-upgrade"},
		},
		{
			name: "suggests a remedy for a missing tag", args: []string{"--to-image=" + registry.Host() + "/platform/release:none", "--allow-explicit-upgrade"}, code: command.ExitFailed,
			errs: []string{"error: cannot resolve the tag in --to-image: ", "use the digest instead, as " + registry.Host() + "/platform/release@sha256:…"},
		},
		{
			name: "does not request an unresolved tag", args: []string{"--to-image=127.0.0.1:1/platform/release:1", "--allow-explicit-upgrade", "--force"}, code: command.ExitFailed,
			errs: []string{"error: cannot resolve the tag in --to-image: ", "connection refused", "use the digest instead, as 127.0.0.1:1/platform/release@sha256:…"},
		},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			cv := clusterversions.WithUpdates(clusterversions.Resting())
			if test.change != nil {
				test.change(cv)
			}
			c.put(t, cv)
			out, errs, code := c.cvo(t, test.args...)
			assert.Equal(t, test.out, out)
			assert.Equal(t, test.code, code, errs)
			for _, want := range test.errs {
				assert.Contains(t, errs, want)
			}
			if test.spec == "" {
				assert.Empty(t, c.sent())
				return
			}
			require.Len(t, c.sent(), 1)
			assert.JSONEq(t, test.spec, c.sent()[0].spec(t))
		})
	}
	t.Run("it uses the pull secret of the cluster", func(t *testing.T) {
		guarded := withPassword(t, registry.URL())
		require.NoError(t, c.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.ConfigNamespace}}))
		require.NoError(t, c.api.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.PullSecret}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths": {"` + guarded + `": {"username": "me", "password": "secret"}}}`)},
		}))
		c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
		_, errs, code := c.cvo(t, "--to-image="+guarded+"/platform/release:4.14.3", "--allow-explicit-upgrade")
		require.Zero(t, code, errs)
		assert.JSONEq(t, spec(guarded+"/platform/release@"+string(img.Digest), "", false), c.sent()[0].spec(t))
	})
}

// withPassword puts a server in front of a registry that requires the password of one user, and returns its host.
func withPassword(t *testing.T, registry string) string {
	t.Helper()
	target, err := url.Parse(registry)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
