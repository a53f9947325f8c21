package platform_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/cluster-version/cvo/test/e2e/platform"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestPlatformCreatesSignedReleases creates releases as tests on real clusters do, in a registry in this process.
func TestPlatformCreatesSignedReleases(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test builds the operator's image")
	}
	registry := fixture.StartRegistry(t)
	p, err := platform.New(t.Context(), platform.Options{Dir: t.TempDir(), Host: registry.Host()})
	require.NoError(t, err)
	first, err := p.Release(t.Context(), platform.Release{Version: "1.0.0"})
	require.NoError(t, err)
	second, err := p.Release(t.Context(), platform.Release{Version: "1.1.0", Previous: []string{"1.0.0"}})
	require.NoError(t, err)
	again, err := p.Release(t.Context(), platform.Release{Version: "1.1.0", Previous: []string{"1.0.0"}})
	require.NoError(t, err)
	assert.Equal(t, second, again, "the same release has the same digest")

	for _, pullspec := range []string{first, second} {
		_, err := p.Run(t.Context(), "release", "verify", pullspec, "--trust", p.Trust)
		require.NoError(t, err)
	}
	images, err := p.Run(t.Context(), "release", "info", second, "--pullspecs")
	require.NoError(t, err)
	assert.Equal(t, 11, strings.Count(images, registry.Host()+"/components/"), images)
	graph, err := p.Run(t.Context(), "release", "graph", second)
	require.NoError(t, err)
	assert.Contains(t, graph, "Deployment.apps openshift-cluster-version/cluster-version-operator", "the release contains the operator")

	t.Run("applies changes", func(t *testing.T) { testChanges(t, p) })
	t.Run("omits the signature", func(t *testing.T) { testUnsigned(t, p) })
}

func testChanges(t *testing.T, p *platform.Platform) {
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: more\n  namespace: example-dns\n  annotations:\n    " + platform.Included + "\n"
	changed, err := p.Release(t.Context(), platform.Release{
		Version: "1.1.1", From: "1.1.0", Previous: []string{"1.0.0", "1.1.0"},
		Changes: []platform.Change{
			platform.With("example-dns", "0000_30_example-dns_20_more.yaml", manifest),
			platform.Without("example-monitoring", "0000_90_example-monitoring_01_dashboards.yaml"),
			platform.Switch("example-identity", "degraded", "true"),
			platform.Switch("example-console", "example-console.notReady", "true"),
		},
	})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "release")
	_, err = p.Run(t.Context(), "release", "extract", changed, "--layout", "image", "--to", dir)
	require.NoError(t, err)
	read := func(file string) string {
		data, err := os.ReadFile(filepath.Join(dir, "release-manifests", file))
		require.NoError(t, err)
		return string(data)
	}
	assert.Contains(t, read("0000_30_example-dns_20_more.yaml"), "name: more")
	assert.NoFileExists(t, filepath.Join(dir, "release-manifests/0000_90_example-monitoring_01_dashboards.yaml"))
	assert.Contains(t, read("0000_40_example-identity_04_operator.yaml"), "- operator\n        - --switch=degraded=true\n")
	assert.Contains(t, read("0000_50_example-console_05_console.yaml"), "- --switch=example-console.notReady=true\n")

	_, err = p.Release(t.Context(), platform.Release{Version: "1.1.2", From: "1.1.0", Changes: []platform.Change{
		platform.Edit("example-dns", "missing text", ""),
	}})
	require.ErrorContains(t, err, `no manifest of example-dns contains "missing text"`)
}

func testUnsigned(t *testing.T, p *platform.Platform) {
	unsigned, err := p.Release(t.Context(), platform.Release{Version: "1.0.1", From: "1.0.0", Unsigned: true})
	require.NoError(t, err)
	_, err = p.Run(t.Context(), "release", "verify", unsigned, "--trust", p.Trust)
	require.Error(t, err)
}

func TestSwitchesAreSetInAConfigMap(t *testing.T) {
	client := fake.NewClientset()
	set := func(entries map[string]string) error {
		return platform.SetSwitches(t.Context(), client, "example-dns", entries)
	}
	found := func(client kubernetes.Interface) map[string]string {
		list, err := client.CoreV1().ConfigMaps(corev1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		entries := map[string]string{}
		for _, c := range list.Items {
			entries = c.Data
		}
		return entries
	}
	require.NoError(t, set(nil))
	require.NoError(t, set(map[string]string{"slow": "30s@1.1.0", "example-dns.notReady": "true"}))
	require.NoError(t, set(map[string]string{"degraded": "true"}))
	assert.Equal(t, map[string]string{"degraded": "true"}, found(client))
	require.ErrorContains(t, set(map[string]string{"sleepy": "true@1.1.0"}), "no such switch")
	require.NoError(t, set(nil))
	assert.Empty(t, found(client))
}
