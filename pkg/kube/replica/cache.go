package replica

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// syncPeriod is the time between two checks whether the cache has synced.
const syncPeriod = 10 * time.Millisecond

// promptCache is a cache that reports within syncPeriod that it has synced. The embedded cache checks its informers at the start of a wait
// and then only every 100 ms, which was most of the time between the start of a process and its claim of the Lease.
type promptCache struct{ cache.Cache }

func newCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	c, err := cache.New(cfg, o)
	if err != nil {
		return nil, err
	}
	return promptCache{c}, nil
}

// WaitForCacheSync implements cache.Informers.
func (c promptCache) WaitForCacheSync(ctx context.Context) bool {
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, syncPeriod)
		synced := c.Cache.WaitForCacheSync(short)
		cancel()
		if synced {
			return true
		}
	}
	return false
}
