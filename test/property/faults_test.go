package property

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/test/fault"
)

// TestPropertyUnderFaults plays a history for each seed over a connection that loses requests and answers, or is
// answered by an overloaded server: what comes out must be the same.
func TestPropertyUnderFaults(t *testing.T) {
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

// faultyDriver makes a driver, up to a third of whose requests go wrong.
func faultyDriver(t *testing.T, config *rest.Config, seed uint64) Driver {
	t.Helper()
	o := fault.Random(seed, 0.33)
	o.RetryAfter = -1 // at once: waiting is client-go's, and known to work
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
