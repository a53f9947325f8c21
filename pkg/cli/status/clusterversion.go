package status

import (
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/view/tree"
)

// clusterVersionLines describes a rollout from its ClusterVersion, without the operator's report.
func clusterVersionLines(ctx context.Context, cfg *rest.Config, name string, now time.Time) ([]string, error) {
	scheme := runtime.NewScheme()
	if err := configv1.Install(scheme); err != nil {
		return nil, fmt.Errorf("preparing scheme: %w", err)
	}
	reader, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	cv := &configv1.ClusterVersion{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, cv); err != nil {
		return nil, fmt.Errorf("reading ClusterVersion %s: %w", name, err)
	}
	return tree.OfClusterVersion(cv, now), nil
}
