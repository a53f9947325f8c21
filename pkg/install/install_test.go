package install_test

import (
	"io/fs"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/install/plan"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
)

var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// releaseWithCRDs returns a release with the two CRDs that the operator works with.
func releaseWithCRDs(t *testing.T) *payload.Payload {
	t.Helper()
	p := &payload.Payload{Release: release.Release{Version: "1.0.0"}}
	names, err := fs.Glob(manifests.FS(), "*_01_*.crd.yaml")
	require.NoError(t, err)
	require.Len(t, names, 2)
	for _, name := range names {
		data, err := fs.ReadFile(manifests.FS(), name)
		require.NoError(t, err)
		list, err := manifest.Parse(name, data, manifest.Limits{})
		require.NoError(t, err)
		for _, m := range list {
			if _, excluded := (inclusion.Filter{}).Exclude(m); !excluded {
				p.Manifests = append(p.Manifests, m)
			}
		}
	}
	return p
}

func TestPreparationCreatesTheMissingObjects(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, configv1.Install(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	cfg := controlPlane.For(t).Config("install")
	capabilities := &configv1.ClusterVersionCapabilitiesSpec{
		BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone, AdditionalEnabledCapabilities: []configv1.ClusterVersionCapability{"Console"},
	}
	objects, err := plan.NewPreparation(releaseWithCRDs(t), plan.Settings{
		Namespace: "my-operator", Channel: "stable", Upstream: "https://updates.example.com/graph", Capabilities: capabilities,
		ClusterID: "11111111-2222-4333-8444-555555555555", PullSecret: []byte(`{"auths":{"registry.example":{"auth":"dXNlcjpwYXNz"}}}`),
		Authorities: []byte("certificates"), Registries: map[string]string{"insecure-registries": "kind-registry:5000"}, Trust: map[string]string{"trust.yaml": "not for the cluster"},
	})
	require.NoError(t, err)

	results, err := install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
	require.NoError(t, err)
	var said []string
	for _, r := range results {
		said = append(said, r.String()+" "+string(r.Outcome))
	}
	assert.Equal(t, []string{
		"Namespace my-operator created", "Namespace openshift-config created", "Namespace openshift-config-managed created",
		"ConfigMap openshift-config/cluster-version-operator-registries created",
		"ConfigMap openshift-config-managed/trusted-ca-bundle created", "Secret openshift-config/pull-secret created",
		"CustomResourceDefinition clusterversions.config.openshift.io created", "CustomResourceDefinition clusteroperators.config.openshift.io created",
		"ClusterVersion version created",
	}, said)
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	first := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(first), first))
	assert.Equal(t, configv1.ClusterVersionSpec{
		ClusterID: "11111111-2222-4333-8444-555555555555", Channel: "stable", Upstream: "https://updates.example.com/graph", Capabilities: capabilities,
	}, first.Spec)
	secret := &corev1.Secret{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "openshift-config", Name: "pull-secret"}, secret))
	assert.JSONEq(t, `{"auths":{"registry.example":{"auth":"dXNlcjpwYXNz"}}}`, string(secret.Data[corev1.DockerConfigJsonKey]))
	require.NoError(t, c.List(t.Context(), &configv1.ClusterOperatorList{}), "ClusterOperators are served")

	results, err = install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
	require.NoError(t, err)
	for _, r := range results {
		assert.Equal(t, target.Unchanged, r.Outcome, "second run: %s", r)
	}
	second := &configv1.ClusterVersion{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(first), second))
	assert.Equal(t, first, second)
}

func TestPreparationRequiresTheCRDs(t *testing.T) {
	_, err := plan.NewPreparation(&payload.Payload{Release: release.Release{Version: "1.0.0"}}, plan.Settings{})
	require.ErrorContains(t, err, "release 1.0.0 does not contain CRD clusterversions.config.openshift.io")
}
