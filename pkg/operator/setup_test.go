package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestFailuresAreRetriedSoon checks that the operator retries soon, even after a long series of failures.
func TestFailuresAreRetriedSoon(t *testing.T) {
	limiter := controllerOptions().RateLimiter
	for range 100 {
		assert.LessOrEqual(t, limiter.When(reconcile.Request{}), retryMost)
	}
	assert.Equal(t, retryMost, limiter.When(reconcile.Request{}))
}
