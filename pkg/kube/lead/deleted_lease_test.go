package lead

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// deletableLock is a Lease that another client has deleted.
type deletableLock struct {
	*memoryLock
	gone atomic.Bool
}

func (l *deletableLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.gone.Load() {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "version")
	}
	return l.memoryLock.Get(ctx)
}

func (l *deletableLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.gone.Store(false)
	return l.memoryLock.Create(ctx, r)
}

// TestWatchingStandbyWaitsAfterADeletion deletes the Lease of a leader that still writes. A standby that knows the leader only from its watch
// must wait until the leader's fence has closed.
func TestWatchingStandbyWaitsAfterADeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, renew := following()
		lock := &deletableLock{memoryLock: c.lock}
		c.Interface = lock
		renew("other")
		ctx, cancel := context.WithCancel(t.Context())
		ended := elect(ctx, t, c.Candidate)
		time.Sleep(DefaultRetryPeriod)
		renew("other")
		synctest.Wait()
		require.Zero(t, c.lock.reads())
		deleted := time.Now()
		lock.gone.Store(true)
		c.lease.see(nil)
		for !c.leads() {
			time.Sleep(10 * time.Millisecond)
		}
		assert.GreaterOrEqual(t, time.Since(deleted), 12*time.Second, "the lease in recordOf: the other leader's fence may still be open")
		cancel()
		<-ended
	})
}
