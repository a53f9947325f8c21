package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/fixture"
)

func manifestOf(t testing.TB, data string) *manifest.Manifest {
	t.Helper()
	m := &manifest.Manifest{File: "0000_90_keys_configmap.yaml", Document: 1, Object: &unstructured.Unstructured{}}
	require.NoError(t, yaml.Unmarshal([]byte(data), &m.Object.Object))
	return m
}

func TestTrustIsReadFromManifests(t *testing.T) {
	cm := func(annotation, data string) *manifest.Manifest {
		return manifestOf(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: ns, name: c, annotations: {"+annotation+"}}\n"+data)
	}
	const annotation = `release.openshift.io/verification-config-map: ""`
	keys := "data:\n  store-a: https://x/a\n  other: left out\n  verifier-public-key-a: |\n" + indent(public(t, newEntity(t, "alice")), "    ")
	secret := manifestOf(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {"+annotation+"}}")

	p, err := policy.FromManifests([]*manifest.Manifest{secret, cm("a: b", keys), cm(annotation, keys), cm(annotation, "")})
	require.NoError(t, err)
	assert.Equal(t, "ConfigMap ns/c of the release", p.Name)
	assert.Equal(t, []string{"https://x/a"}, p.Stores)
	assert.Equal(t, "verifier-public-key-a", p.Keyrings[0].Name)

	_, err = policy.FromManifests([]*manifest.Manifest{secret, cm("a: b", keys)})
	require.ErrorIs(t, err, policy.ErrNone)
	_, err = policy.FromManifests([]*manifest.Manifest{cm(annotation, strings.Replace(keys, "store-a", "stores", 1))})
	require.ErrorContains(t, err, "it lists no store")
	_, err = policy.FromConfigMap(cm("a: b", keys))
	require.ErrorContains(t, err, "it lacks the annotation")
	_, err = policy.FromConfigMap(cm(annotation, "data: {store-a: https://x}"))
	require.ErrorContains(t, err, "reading trust from 0000_90_keys_configmap.yaml[1] ConfigMap ns/c: it lists no key")
}

func TestTrustOfRealReleasesIsRead(t *testing.T) {
	for _, version := range []string{"4.22.9", "4.23.0"} {
		files, err := filepath.Glob(filepath.Join(fixture.Testdata(t), "payloads", version, "*", "*cluster-update-keys_configmap.yaml"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		data, err := os.ReadFile(files[0])
		require.NoError(t, err)
		p, err := policy.FromConfigMap(manifestOf(t, string(data)))
		require.NoError(t, err)
		assert.Len(t, p.Stores, 2)
		require.Len(t, p.Keyrings, 1)
		assert.Equal(t, "verifier-public-key-redhat", p.Keyrings[0].Name)
		require.NoError(t, p.Validate())
		_, err = policy.Parse("configmap.yaml", data)
		require.NoError(t, err)
	}
}
