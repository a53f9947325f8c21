package install_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/manifests/apicrd"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
)

var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// releaseWithCRDs has the two CRDs that the operator works with.
func releaseWithCRDs(t *testing.T) *payload.Payload {
	t.Helper()
	dir := t.TempDir()
	_, err := apicrd.Copy(t.Context(), dir)
	require.NoError(t, err)
	p := &payload.Payload{Release: release.Release{Version: "1.0.0"}}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		list, err := manifest.Parse(filepath.Base(file), data, manifest.Limits{})
		require.NoError(t, err)
		for _, m := range list {
			if _, excluded := (manifest.Filter{}).Exclude(m); !excluded {
				p.Manifests = append(p.Manifests, m)
			}
		}
	}
	return p
}

func TestPrepare(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, configv1.Install(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	cfg := controlPlane.Config("install")
	p := releaseWithCRDs(t)

	var said []string
	options := install.Options{Namespace: "my-operator", Progress: func(what string) { said = append(said, what) }}
	require.NoError(t, install.Prepare(t.Context(), cfg, p, options))
	assert.Equal(t, []string{
		"namespace my-operator", "namespace openshift-config", "namespace openshift-config-managed",
		"CRD clusterversions.config.openshift.io", "CRD clusteroperators.config.openshift.io", "ClusterVersion version",
	}, said)
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	first := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(first), first))
	assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4`, first.Spec.ClusterID)
	require.NoError(t, c.List(t.Context(), &configv1.ClusterOperatorList{}), "ClusterOperators are served")

	require.NoError(t, install.Prepare(t.Context(), cfg, p, options), "again")
	second := &configv1.ClusterVersion{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(first), second))
	assert.Equal(t, first, second)
}

func TestPrepareNeedsTheCRDs(t *testing.T) {
	p := &payload.Payload{Release: release.Release{Version: "1.0.0"}}
	err := install.Prepare(t.Context(), controlPlane.Config("install"), p, install.Options{})
	require.ErrorContains(t, err, "release 1.0.0 brings no CRD clusterversions.config.openshift.io")
}

// What a step of an API server may take, and how often it is looked at.
const (
	stepTimeout = time.Minute
	stepTick    = 50 * time.Millisecond
)
