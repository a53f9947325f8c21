// Package telemetry has the logger and the metrics registry of a process, which its parts and libraries share, and the handler that serves
// the metrics. The parts register their own metrics. Package serve has the endpoint, and package guard checks its callers.
package telemetry

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Registry returns the registry of this process, with the metrics of Go and of the process. controller-runtime adds the metrics of its
// clients, controllers, work queues and leader election. It also registers the Go and process metrics, but only in a process with
// controllers.
func Registry() (metrics.RegistererGatherer, error) {
	for _, collector := range []prometheus.Collector{
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)), // like controller-runtime
	} {
		err := metrics.Registry.Register(collector)
		if _, have := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !have {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return metrics.Registry, nil
}

// Handler returns a handler for GET requests that returns all metrics of a registry. An invalid metric does not hide the others.
func Handler(registry prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// Unserved returns the options for a manager whose process serves the metrics itself.
func Unserved() metricsserver.Options { return metricsserver.Options{BindAddress: "0"} }
