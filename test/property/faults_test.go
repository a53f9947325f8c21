package property

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/test/fault"
)

// TestHistoriesUnderFaultsReachTheRelease plays a history for each seed with a connection that loses requests and responses, or an
// overloaded server. The result must be the same.
func TestHistoriesUnderFaultsReachTheRelease(t *testing.T) {
	prepare(t)
	var stats statistics
	t.Run("seeds", func(t *testing.T) {
		for i := range (*seeds + 3) / 4 {
			seed := *first + uint64(i)
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				check(t, seed, faultyDriver(t, server.config, seed), &stats)
			})
		}
	})
	stats.log(t)
}

// faultyDriver returns a driver for which up to a third of the requests fail.
func faultyDriver(t *testing.T, config *rest.Config, seed uint64) Driver {
	t.Helper()
	o := fault.Random(seed, 0.33)
	o.RetryAfter = -1 // at once, because client-go does the waiting and is known to work
	var transport *fault.Transport
	var err error
	driver, driverErr := newApplierDriver(config, func(next http.RoundTripper) http.RoundTripper {
		transport, err = fault.New(next, o)
		if err != nil {
			return next
		}
		return transport
	}, 60)
	require.NoError(t, driverErr)
	require.NoError(t, err)
	t.Cleanup(func() { t.Logf("faults of seed %d: %v", seed, transport.Count()) })
	return driver
}
