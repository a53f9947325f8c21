package watch_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// nodes is a client of Nodes. It has their versions by name. The lock orders the accesses: the virtual time of a test does not.
type nodes struct {
	client.Client
	mutex    sync.Mutex
	versions map[string]string
	// lists and lookups count requests for all Nodes, and for one by name. refused is the error of the next list.
	lists, lookups int
	refused        error
}

func (n *nodes) Scheme() *runtime.Scheme { return scheme.Scheme }

func (n *nodes) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	var o client.ListOptions
	o.ApplyOptions(options)
	only := ""
	if o.FieldSelector == nil {
		n.lists++
	} else {
		n.lookups++
		only, _ = o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	}
	if err := n.refused; err != nil {
		n.refused = nil
		return err
	}
	list.SetResourceVersion("10")
	for _, name := range slices.Sorted(maps.Keys(n.versions)) {
		if only != "" && name != only {
			continue
		}
		o := metav1.ObjectMeta{Name: name, ResourceVersion: n.versions[name]}
		switch l := list.(type) {
		case *corev1.NodeList:
			l.Items = append(l.Items, corev1.Node{ObjectMeta: o})
		case *metav1.PartialObjectMetadataList:
			l.Items = append(l.Items, metav1.PartialObjectMetadata{ObjectMeta: o})
		}
	}
	return nil
}

func (n *nodes) set(versions map[string]string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.versions = versions
}

// counts returns the numbers of requests.
func (n *nodes) counts() (lists, lookups int) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.lists, n.lookups
}

// Get is refused: the controllers may list and watch some kinds, and not get them.
func (n *nodes) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewForbidden(corev1.Resource("nodes"), key.Name, errors.New("no verb get"))
}

// TestNewLeaderWaitsForItsCache has an API server with Nodes a and b, whose state at the start has version 10.
func TestNewLeaderWaitsForItsCache(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cached map[string]string
		// server has the versions after the start; nil if they do not change.
		server map[string]string
		isLate bool
		// looksUp reports whether an object of the snapshot is missing, so that the API server is asked for it.
		looksUp bool
	}{
		{name: "the cache is the same", cached: map[string]string{"a": "5", "b": "7"}},
		{name: "a node has an earlier version", cached: map[string]string{"a": "5", "b": "6"}, isLate: true},
		{name: "a node is missing", cached: map[string]string{"b": "7"}, isLate: true, looksUp: true},
		{name: "a deleted node still exists", cached: map[string]string{"a": "5", "b": "7", "c": "9"}, isLate: true},
		{name: "the last deleted node still exists", cached: map[string]string{"a": "5", "b": "7", "c": "10"}, isLate: true},
		{name: "a node has changed since", cached: map[string]string{"a": "12", "b": "7"}},
		{name: "a node was created since", cached: map[string]string{"a": "5", "b": "7", "c": "11"}},
		{name: "a node was deleted since", cached: map[string]string{"b": "7"}, server: map[string]string{"b": "7"}, looksUp: true},
		{name: "a new list is not complete", cached: map[string]string{"a": "12", "b": "6"}, isLate: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, cache := &nodes{versions: map[string]string{"a": "5", "b": "7"}, refused: errors.New("busy")}, &nodes{versions: map[string]string{"a": "1"}}
				var lines, requests atomic.Int32
				ctx, stop := context.WithCancel(logr.NewContext(t.Context(), funcr.New(func(string, string) { lines.Add(1) }, funcr.Options{})))
				defer stop()
				c := watch.NewCatchUp(cache, server, &corev1.NodeList{})
				r := c.Delay(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					requests.Add(1)
					return reconcile.Result{}, nil
				}))
				go func() { assert.NoError(t, c.Start(ctx)) }()
				go func() { _, _ = r.Reconcile(ctx, reconcile.Request{}) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				lists, _ := server.counts()
				require.Equal(t, 2, lists, "one was refused")
				require.Zero(t, requests.Load())

				cache.set(tt.cached)
				if tt.server != nil {
					server.set(tt.server)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, !tt.isLate, requests.Load() == 1)
				lists, lookups := server.counts()
				assert.Equal(t, tt.looksUp, lookups > 0)
				assert.Equal(t, 2, lists)
				assert.EqualValues(t, 2, lines.Load(), "one for the error, one for the wait")

				before, _ := cache.counts()
				if tt.isLate {
					cache.set(map[string]string{"a": "12", "b": "12"})
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				require.EqualValues(t, 1, requests.Load())
				reads, _ := cache.counts()
				assert.Equal(t, tt.isLate, reads > before)
				_, err := r.Reconcile(ctx, reconcile.Request{})
				require.NoError(t, err)
				assert.EqualValues(t, 2, requests.Load())
			})
		})
	}
}

// TestDelayEndsWithTheProcess has a cache that stays late.
func TestDelayEndsWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &nodes{}
		server := &nodes{versions: map[string]string{"a": "5"}}
		c := watch.NewCatchUp(cache, server, &corev1.NodeList{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Start(ctx) }()
		time.Sleep(time.Minute)
		stop()
		require.NoError(t, <-ended)
		_, err := c.Delay(nil).Reconcile(ctx, reconcile.Request{})
		assert.ErrorIs(t, err, context.Canceled)
	})
}
