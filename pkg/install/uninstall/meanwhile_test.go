package uninstall_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/install/uninstall"
	"github.com/cluster-version/cvo/test/installed"
)

// before returns a config for clients that call do before they send a request.
func before(cfg *rest.Config, do func(*http.Request)) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			do(r)
			return next.RoundTrip(r)
		})
	})
	return cfg
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func takesLease(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/leases/version")
}

// TestUninstallIncludesTheLastWrites lets the operator create one object and recreate another after the uninstall has listed them and
// before it acquires the Lease.
func TestUninstallIncludesTheLastWrites(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	require.NoError(t, c.Create(t.Context(), installed.Lease("", 1)))
	installed.CollectGarbage(t, c)
	write := sync.OnceFunc(func() {
		assert.NoError(t, c.Create(t.Context(), ofPlatform(cv, configMap("last"))))
		assert.NoError(t, c.Delete(t.Context(), configMap("of-the-platform")))
		assert.NoError(t, c.Create(t.Context(), ofPlatform(cv, configMap("of-the-platform"))))
	})
	_, err := run(t, before(cfg, func(r *http.Request) {
		if takesLease(r) {
			write()
		}
	}), uninstall.Removal{Platform: true})
	require.NoError(t, err)
	assert.False(t, installed.Exists(t, c, configMap("last")))
	assert.False(t, installed.Exists(t, c, configMap("of-the-platform")))
}

// createAgain creates another ClusterVersion with the name of a deleted one.
func createAgain(t *testing.T, c client.Client, cv *configv1.ClusterVersion) *configv1.ClusterVersion {
	t.Helper()
	fresh := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: cv.Name}, Spec: cv.Spec}
	assert.NoError(t, c.Create(t.Context(), fresh))
	return fresh
}

// TestUninstallKeepsThePlatformOfARecreatedClusterVersion recreates the ClusterVersion before the uninstall acquires the Lease. The operator
// claims one object for the new ClusterVersion, and another one still names the deleted one.
func TestUninstallKeepsThePlatformOfARecreatedClusterVersion(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	require.NoError(t, c.Create(t.Context(), installed.Lease("", 1)))
	installed.CollectGarbage(t, c)
	write := sync.OnceFunc(func() {
		metav1.SetMetaDataAnnotation(&cv.ObjectMeta, api.AllowDeletionAnnotation, "true")
		assert.NoError(t, c.Update(t.Context(), cv))
		assert.NoError(t, c.Delete(t.Context(), cv))
		assert.NoError(t, c.Create(t.Context(), ofPlatform(createAgain(t, c, cv), configMap("claimed"))))
	})
	_, err := run(t, before(cfg, func(r *http.Request) {
		if takesLease(r) {
			write()
		}
	}), uninstall.Removal{})
	require.NoError(t, err)
	for _, name := range []string{"claimed", "of-the-platform"} {
		object := configMap(name)
		require.True(t, installed.Exists(t, c, object))
		assert.Empty(t, object.OwnerReferences, "the garbage collector would delete %s", name)
	}
}

// TestUninstallStopsIfTheClusterVersionReturns recreates the ClusterVersion as soon as it is deleted, like a GitOps tool.
func TestUninstallStopsIfTheClusterVersionReturns(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	for _, removal := range []uninstall.Removal{{}, {Platform: true}} {
		_, err := uninstall.Run(t.Context(), clock.RealClock{}, cfg, removal, func(r target.Result) {
			if r.Kind == "ClusterVersion" {
				createAgain(t, c, cv)
			}
		}, func(text string) { t.Log(text) })
		var unfinished *uninstall.UnfinishedError
		require.ErrorAs(t, err, &unfinished)
		require.ErrorContains(t, err, "ClusterVersion version exists again: pause the tool that recreates it, such as a GitOps controller, and run the command again")
		assert.Contains(t, unfinished.Left, "the operator's own objects exist")
		require.True(t, installed.Exists(t, c, &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: cv.Name}}))
	}
	_, err := run(t, cfg, uninstall.Removal{})
	require.NoError(t, err)
}

// TestUninstallRenewsTheLeaseThroughout delays each list, and each request about one object of the platform, by the longest time that the
// Lease may go without renewal.
func TestUninstallRenewsTheLeaseThroughout(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	require.NoError(t, c.Create(t.Context(), installed.Lease("", 1)))
	installed.CollectGarbage(t, c)
	for i := range 6 {
		require.NoError(t, c.Create(t.Context(), ofPlatform(cv, configMap(fmt.Sprintf("slow-%d", i)))))
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("slow-%d", i)}}
		require.NoError(t, c.Create(t.Context(), ofPlatform(cv, namespace)))
	}
	for _, kind := range []string{"Gadget", "Gizmo"} {
		plural := strings.ToLower(kind) + "s"
		crd := widgets()
		crd.SetName(plural + ".example.com")
		names := map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"}
		require.NoError(t, unstructured.SetNestedMap(crd.Object, names, "spec", "names"))
		require.NoError(t, c.Create(t.Context(), ofPlatform(cv, crd)))
	}
	clk := clocktesting.NewFakeClock(time.Now())
	var mu sync.Mutex
	held, slow := false, map[string]bool{}
	var silent, longest []string
	watched := before(cfg, func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		list := listed(r)
		switch {
		case takesLease(r):
			held, silent = true, nil
		case held && (list != "" || strings.Contains(r.URL.Path, "/slow-") && r.Method != http.MethodPatch):
			clk.Step(3 * time.Second)
			slow[cmp.Or(list, r.Method)] = true
			if silent = append(silent, r.Method+" "+r.URL.Path); len(silent) > len(longest) {
				longest = slices.Clone(silent)
			}
		}
	})
	_, err := uninstall.Run(t.Context(), clk, watched, uninstall.Removal{Platform: true}, func(target.Result) {}, func(text string) { t.Log(text) })
	require.NoError(t, err)
	for _, request := range []string{http.MethodGet, http.MethodDelete, "persistentvolumeclaims", "gadgets", "gizmos", "clusterroles", "roles"} {
		assert.Contains(t, slow, request)
	}
	assert.Len(t, longest, 1, "another process may consider the uninstall dead")
}

func TestFailedDryRunHasUninstalledNothing(t *testing.T) {
	t.Parallel()
	cfg, _, _ := installed.Cluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	failing := before(cfg, func(r *http.Request) {
		if listed(r) == "clusterroles" && r.URL.Query().Get("labelSelector") == "" {
			cancel()
		}
	})

	_, err := uninstall.Run(ctx, clock.RealClock{}, failing, uninstall.Removal{DryRun: true}, func(target.Result) {}, func(string) {})

	require.ErrorIs(t, err, context.Canceled)
	var unfinished *uninstall.UnfinishedError
	assert.NotErrorAs(t, err, &unfinished)
}

// TestInterruptionEndsDiscovery interrupts an uninstall while the API server does not respond to discovery.
func TestInterruptionEndsDiscovery(t *testing.T) {
	t.Parallel()
	cfg, _, _ := installed.Cluster(t)
	for _, test := range []struct {
		name, want string
		// after is the resource whose list precedes the request that hangs; empty for none.
		after string
	}{
		{"of one kind", "reading ClusterVersions: ", ""},
		{"of all kinds", "reading the cluster's APIs: ", "leases"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var hangs atomic.Bool
			hangs.Store(test.after == "")
			hanging := before(cfg, func(r *http.Request) {
				switch list := listed(r); {
				case list == "" && hangs.Load():
					interrupt()
					<-r.Context().Done()
				case list == test.after:
					hangs.Store(true)
				}
			})

			_, err := uninstall.Run(ctx, clock.RealClock{}, hanging, uninstall.Removal{DryRun: true}, func(target.Result) {}, func(string) {})

			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "repair the unavailable API")
		})
	}
}

// listed returns the resource that a request lists; empty for other requests.
func listed(r *http.Request) string {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if path[0] == "apis" {
		path = path[1:]
	}
	if len(path) < 3 || r.Method != http.MethodGet {
		return "" // discovery
	}
	if path = path[2:]; len(path) > 2 && path[0] == "namespaces" {
		path = path[2:]
	}
	if len(path) > 1 {
		return ""
	}
	return path[0]
}
