package watch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// TestFailuresAreRetriedSoon checks that a controller retries soon, even after a long series of failures.
func TestFailuresAreRetriedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mgr, err := manager.New(&rest.Config{}, manager.Options{Controller: config.Controller{SkipNameValidation: new(true)}})
		require.NoError(t, err)
		var longest time.Duration
		last := time.Now()
		failing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			longest, last = max(longest, time.Since(last)), time.Now()
			return reconcile.Result{}, errors.New("the API server is down")
		})
		c, err := Controller(mgr, "test", 1).
			WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
				queue.Add(reconcile.Request{})
				return nil
			})).
			Build(failing)
		require.NoError(t, err)
		go func() { assert.NoError(t, c.Start(t.Context())) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, RetryMost, longest)
	})
}
