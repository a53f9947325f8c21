package watch_test

import (
	"context"
	"errors"
	"maps"
	"slices"
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

// nodes is a client of Nodes. It has their versions by name.
type nodes struct {
	client.Client
	versions map[string]string
	// lists and lookups count requests for all Nodes, and for one by name. refused is the error of the next list.
	lists, lookups int
	refused        error
}

func (n *nodes) Scheme() *runtime.Scheme { return scheme.Scheme }

func (n *nodes) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
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
				var lines []string
				ctx, stop := context.WithCancel(logr.NewContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})))
				defer stop()
				c := watch.NewCatchUp(cache, server, &corev1.NodeList{})
				requests := 0
				r := c.Delay(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					requests++
					return reconcile.Result{}, nil
				}))
				go func() { assert.NoError(t, c.Start(ctx)) }()
				go func() { _, _ = r.Reconcile(ctx, reconcile.Request{}) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, 2, server.lists, "one was refused")
				require.Zero(t, requests)

				cache.versions = tt.cached
				if tt.server != nil {
					server.versions = tt.server
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, !tt.isLate, requests == 1)
				assert.Equal(t, tt.looksUp, server.lookups > 0)
				assert.Equal(t, 2, server.lists)
				assert.Len(t, lines, 2, "one for the error, one for the wait")

				reads := cache.lists
				if tt.isLate {
					cache.versions = map[string]string{"a": "12", "b": "12"}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, 1, requests)
				assert.Equal(t, tt.isLate, cache.lists > reads)
				_, err := r.Reconcile(ctx, reconcile.Request{})
				require.NoError(t, err)
				assert.Equal(t, 2, requests)
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
