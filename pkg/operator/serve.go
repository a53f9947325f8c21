package operator

import (
	"encoding/json"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/clusterversion"
)

// serve adds the endpoints beside /metrics: liveness, readiness and the progress of the rollout as JSON.
func serve(mgr manager.Manager, reconciler *clusterversion.Reconciler, listen string) error {
	if listen == noListener {
		return nil
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	progress := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(reconciler.Progress())
	})
	for path, h := range map[string]http.Handler{"/healthz": ok, "/readyz": ok, "/progress": progress} {
		if err := mgr.AddMetricsServerExtraHandler(path, h); err != nil {
			return fmt.Errorf("serving %s: %w", path, err)
		}
	}
	return nil
}
