package watch

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RetryMost is the longest time until a failed reconcile is retried. It is short, because the cause may end without an event, such as an outage
// of the API server.
const RetryMost = 30 * time.Second

// Controller returns the builder of a controller with Retries. All controllers are built with it. workers is the number of requests that are
// reconciled at the same time.
func Controller(mgr manager.Manager, name string, workers int) *builder.Builder {
	options := Retries()
	options.MaxConcurrentReconciles = workers
	return builder.ControllerManagedBy(mgr).Named(name).WithOptions(options)
}

// Retries returns the options of a controller that retries a failed reconcile within RetryMost. controller-runtime ignores RequeueAfter after an
// error, and its default delay grows to a quarter of an hour.
func Retries() controller.Options {
	return controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, RetryMost)}
}
