package replica

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// syncing is a cache whose informers sync at a time. It waits like the caches of controller-runtime.
type syncing struct {
	cache.Cache
	at time.Time
}

func (s syncing) WaitForCacheSync(ctx context.Context) bool {
	return toolscache.WaitForCacheSync(ctx.Done(), func() bool { return !time.Now().Before(s.at) })
}

func TestCacheReportsPromptlyThatItHasSynced(t *testing.T) {
	for _, took := range []time.Duration{0, 3 * time.Millisecond, 42 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			assert.True(t, promptCache{syncing{at: began.Add(took)}}.WaitForCacheSync(t.Context()))
			assert.Less(t, time.Since(began), took+syncPeriod+time.Millisecond)
		})
	}
}

func TestWaitForTheCacheEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.False(t, promptCache{syncing{at: time.Now().Add(time.Hour)}}.WaitForCacheSync(ctx))
	})
}
