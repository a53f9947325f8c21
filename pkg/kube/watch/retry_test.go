package watch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestFailuresAreRetriedSoon checks that a controller retries soon, even after a long series of failures.
func TestFailuresAreRetriedSoon(t *testing.T) {
	limiter := Retries().RateLimiter
	for range 100 {
		assert.LessOrEqual(t, limiter.When(reconcile.Request{}), RetryMost)
	}
	assert.Equal(t, RetryMost, limiter.When(reconcile.Request{}))
}
