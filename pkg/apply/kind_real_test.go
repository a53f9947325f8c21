package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/ring"
)

// TestRealManifestsAreAppliedOnce writes every manifest of a real release once, and once more if something is injected into it. The gate
// installs the release and counts the requests (TestRealReleasesInstallAndUpdate).
func TestRealManifestsAreAppliedOnce(t *testing.T) {
	ring.NeedOuter(t)
	data := fixture.Testdata(t)
	e := env.New(t, env.Options{Audit: env.AuditNone})
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(e.Config("tests"), client.Options{Scheme: scheme})
	require.NoError(t, err)

	stages := realStages(t, data)
	createNamespaces(t, c, stages)
	httpClient, err := rest.HTTPClientFor(e.Config("apply"))
	require.NoError(t, err)
	connection, err := request.Connect(e.Config("apply"), httpClient)
	require.NoError(t, err)
	d, err := discovery.NewDiscoveryClientForConfig(e.Config("discovery"))
	require.NoError(t, err)
	written := 0
	for _, stage := range stages {
		plain := apply.New(connection, kinds.NewMapper(clock.RealClock{}, d, nil), owner)
		injecting := plain.WithValues(inject.Values{
			Proxy:     inject.Proxy{HTTP: "http://proxy", No: "localhost"},
			TLS:       inject.TLSOf(nil),
			APIServer: inject.APIServer{Host: "api-int"},
		})
		var workers errgroup.Group
		workers.SetLimit(8)
		written += len(stage)
		errs := make([]error, len(stage))
		for i, m := range stage {
			workers.Go(func() error {
				errs[i] = settle(t.Context(), plain, m)
				if inject.Requested(m) {
					errs[i] = errors.Join(errs[i], settle(t.Context(), injecting, m))
				}
				return nil
			})
		}
		require.NoError(t, workers.Wait())
		require.NoError(t, errors.Join(errs...))
		established(t, c)
	}
	assert.Greater(t, written, 800)
}

// settle applies a manifest until nothing is written. The API server's own controllers, which set statuses, may write in between.
func settle(ctx context.Context, a *apply.Applier, m *manifest.Manifest) error {
	last := ""
	for range 10 {
		change, err := a.Apply(ctx, m, release.Updating)
		if err != nil || change.ResourceVersion == last {
			return err
		}
		last = change.ResourceVersion
	}
	return fmt.Errorf("%s never settles: every apply writes it", m)
}

// realStages returns the objects of a release in an order that works for applying them.
func realStages(t *testing.T, data string) [4][]*manifest.Manifest {
	t.Helper()
	var stages [4][]*manifest.Manifest
	crd, err := os.ReadFile(filepath.Join(data, "payloads/bootstrap/imagestream.crd.yaml"))
	require.NoError(t, err)
	imageStreams := parse(t, string(crd))
	stages[stageOf(imageStreams)] = append(stages[stageOf(imageStreams)], imageStreams)
	for _, m := range realRelease(t, os.DirFS(filepath.Join(data, "payloads/4.23.0"))) {
		if !m.Tombstone() {
			stages[stageOf(m)] = append(stages[stageOf(m)], m)
		}
	}
	return stages
}

// stageOf puts manifests last that would block others in a cluster without running components.
func stageOf(m *manifest.Manifest) int {
	switch gvk := m.GVK(); {
	case gvk.Kind == "Namespace":
		return 0
	case gvk.Kind == "CustomResourceDefinition":
		return 1
	case gvk.Kind == "APIService", gvk.Group == "admissionregistration.k8s.io":
		return 3
	}
	return 2
}

// realRelease returns the manifests of a release for a cluster with every capability.
func realRelease(t *testing.T, release fs.FS) []*manifest.Manifest {
	t.Helper()
	p, err := payload.Load(release, "registry.example/release", payload.Options{
		Filter: inclusion.Filter{Capabilities: inclusion.AllCapabilities(nil)},
	})
	require.NoError(t, err)
	return p.Manifests
}

// createNamespaces creates the namespaces that the installer or other components create on real platforms.
func createNamespaces(t *testing.T, c client.Client, stages [4][]*manifest.Manifest) {
	t.Helper()
	for _, stage := range stages {
		for _, m := range stage {
			if id := m.ID(); id.Namespace != "" {
				err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: id.Namespace}})
				if !apierrors.IsAlreadyExists(err) {
					require.NoError(t, err)
				}
			}
		}
	}
}

// established waits until all CRDs are established.
func established(t *testing.T, c client.Client) {
	t.Helper()
	var last error
	assert.Eventually(t, func() bool {
		crds := &apiextensionsv1.CustomResourceDefinitionList{}
		if last = c.List(t.Context(), crds); last != nil {
			return false
		}
		for _, crd := range crds.Items {
			if !slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			}) {
				last = errors.New(crd.Name + " is not established")
				return false
			}
		}
		return true
	}, time.Minute, 100*time.Millisecond)
	require.NoError(t, last)
}
