package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLeaseMustOutlastALostRenewal checks that Run rejects a retry period before it sends a request: these options name no API server.
func TestLeaseMustOutlastALostRenewal(t *testing.T) {
	err := Run(t.Context(), Options{LeaseDuration: 4 * time.Second, RetryPeriod: 3 * time.Second})
	require.ErrorContains(t, err, "a retry period of 3s is too long")
}
