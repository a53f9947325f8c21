package watch

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RetryMost is the longest time until a failed reconcile is retried. It is short, because the cause may end without an event, such as an outage
// of the API server.
const RetryMost = 30 * time.Second

// Retries returns the options of a controller that retries a failed reconcile at least every RetryMost. With controller-runtime's default, that
// time grows to a quarter of an hour, and a failed reconcile's RequeueAfter is ignored.
func Retries() controller.Options {
	return controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, RetryMost)}
}
