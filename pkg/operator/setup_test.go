package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestFailuresAreRetriedSoon: however long something failed, its end is noticed soon.
func TestFailuresAreRetriedSoon(t *testing.T) {
	limiter := controllerOptions().RateLimiter
	for range 100 {
		assert.LessOrEqual(t, limiter.When(reconcile.Request{}), retryMost)
	}
	assert.Equal(t, retryMost, limiter.When(reconcile.Request{}))
}
