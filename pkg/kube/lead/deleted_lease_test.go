package lead

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWatchingStandbyWaitsAfterADeletion deletes the Lease of a leader that still writes. A standby that knows the leader only from its watch
// must wait until the leader's fence has closed.
func TestWatchingStandbyWaitsAfterADeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, renew := following()
		renew("other")
		ctx, cancel := context.WithCancel(t.Context())
		ended := elect(ctx, t, c.Candidate)
		time.Sleep(DefaultRetryPeriod)
		renew("other")
		synctest.Wait()
		require.Zero(t, c.lock.reads())
		deleted := time.Now()
		c.lock.delete()
		c.lease.see(nil)
		for !c.leads() {
			time.Sleep(10 * time.Millisecond)
		}
		assert.GreaterOrEqual(t, time.Since(deleted), 12*time.Second, "the lease in recordOf: the other leader's fence may still be open")
		cancel()
		<-ended
	})
}
