//go:build linux

package nodes_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/controlplane"
	"github.com/cluster-version/cvo/pkg/node/evict"
	"github.com/cluster-version/cvo/pkg/node/generate"
	"github.com/cluster-version/cvo/pkg/node/kubelet"
	"github.com/cluster-version/cvo/pkg/node/update"
)

// late is a cache that lacks all objects until it is caught up.
type late struct {
	client.Client
	isCaughtUp atomic.Bool
	// reads counts lists.
	reads atomic.Int32
	// doomed has an object for each kind of list. Another client deletes it between the list of the API server and the first one of the cache.
	doomed map[string]client.Object
	admin  client.Client
}

func (l *late) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	defer l.reads.Add(1)
	kind := fmt.Sprintf("%T", list)
	if o := l.doomed[kind]; o != nil {
		delete(l.doomed, kind)
		if err := l.admin.Delete(ctx, o); err != nil {
			return err
		}
		return wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(l.Get(ctx, client.ObjectKeyFromObject(o), o)), nil
		})
	}
	if !l.isCaughtUp.Load() {
		return nil
	}
	return l.Client.List(ctx, list, options...)
}

// lateManager is a manager with a late cache.
type lateManager struct {
	manager.Manager
	cache *late
}

func (m lateManager) GetClient() client.Client { return m.cache }

// writes has the kinds to which the controllers have written.
type writes struct {
	http.RoundTripper
	mutex sync.Mutex
	kinds map[string]bool
}

func (w *writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		w.mutex.Lock()
		for _, kind := range []string{"/nodes/", "/machineconfigpools/", "/kubeletconfigs/"} {
			if strings.Contains(r.URL.Path+"/", kind) {
				w.kinds[kind] = true
			}
		}
		w.mutex.Unlock()
	}
	return w.RoundTripper.RoundTrip(r)
}

func (w *writes) all() (kinds []string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for kind := range w.kinds {
		kinds = append(kinds, kind)
	}
	return kinds
}

// TestControllersWaitForTheCacheOfANewLeader has a pending drain, and a KubeletConfig and pools that need a write. The controllers have the
// permissions of the manifests. An object of each kind is deleted before the cache shows it.
func TestControllersWaitForTheCacheOfANewLeader(t *testing.T) {
	s := prepare(t)
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	require.NoError(t, s.client.Create(t.Context(), &mcfgv1.KubeletConfig{ObjectMeta: named("limits")}))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{
		api.DesiredConfigAnnotation: "new", api.DesiredDrainAnnotation: "drain-new",
	}}}
	require.NoError(t, s.client.Create(t.Context(), n))
	doomedConfig := &mcfgv1.ControllerConfig{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: api.MachineConfigController}, doomedConfig))
	doomedConfig.ObjectMeta = named("doomed")
	doomed := map[string]client.Object{
		"*v1.NodeList":              &corev1.Node{ObjectMeta: named("doomed")},
		"*v1.MachineConfigPoolList": &mcfgv1.MachineConfigPool{ObjectMeta: named("doomed")},
		"*v1.MachineConfigList":     &mcfgv1.MachineConfig{ObjectMeta: named("doomed")},
		"*v1.KubeletConfigList":     &mcfgv1.KubeletConfig{ObjectMeta: named("doomed")},
		"*v1.ControllerConfigList":  doomedConfig,
	}
	for _, o := range doomed {
		require.NoError(t, s.client.Create(t.Context(), o))
	}
	written := &writes{kinds: map[string]bool{}}
	cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig(s.tokens["controller"]))
	require.NoError(t, err)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		written.RoundTripper = next
		return written
	})
	once := true
	mgr, err := manager.New(cfg, manager.Options{
		Scheme: s.client.Scheme(), Metrics: telemetry.Unserved(), Logger: logr.Discard(), Controller: config.Controller{SkipNameValidation: &once},
		Cache: cluster.CacheOptions(client.ObjectKey{}),
	})
	require.NoError(t, err)
	cache := &late{Client: mgr.GetClient(), doomed: doomed, admin: s.client}
	caughtUp, err := cluster.NewCatchUp(lateManager{mgr, cache})
	require.NoError(t, err)
	recorder := record.NewFakeRecorder(100)
	guard := controlplane.New(mgr.GetClient(), mgr.GetAPIReader(), cfg, clock.RealClock{})
	require.NoError(t, update.Add(t.Context(), mgr, caughtUp, guard, clock.RealClock{}, recorder, update.Options{Release: "1.0.0"}))
	require.NoError(t, evict.Add(t.Context(), mgr, caughtUp, guard, clock.RealClock{}, recorder, evict.Options{}))
	require.NoError(t, generate.Add(mgr, caughtUp, clock.RealClock{}, "1.0.0", kubelet.Options{}))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, mgr.Start(ctx)) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})

	require.Eventually(t, func() bool { return cache.reads.Load() > 6 }, limit, time.Millisecond)
	assert.Empty(t, written.all())
	cache.isCaughtUp.Store(true)
	s.eventually(func(c *assert.CollectT) {
		assert.ElementsMatch(c, []string{"/nodes/", "/machineconfigpools/", "/kubeletconfigs/"}, written.all())
	})
	stop()
	running.Wait()
	assert.Empty(t, doomed, "each kind was compared")
}
