package engines

import (
	"context"
	"errors"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/clusterversion/ledger"
	"github.com/cluster-version/cvo/pkg/clusterversion/preflight"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// previewWidth is the number of parallel requests of a preflight. It is low because a preflight is not urgent and a rollout may be running.
const previewWidth = 4

// Preview returns the function with which the reconciler computes the changes of an update. store stores the inventory.
func (e *Engines) Preview(store ledger.Store) preflight.Preview {
	return func(ctx context.Context, cv *configv1.ClusterVersion, running []*manifest.Manifest, p *payload.Payload) (*preview.Report, error) {
		how, err := preview.ReadOptions(ctx, e.manager.GetAPIReader(), cv, e.options.Namespace)
		if err != nil {
			return nil, err
		}
		how.Width = previewWidth
		how.Running = func(context.Context) ([]*manifest.Manifest, error) { return running, nil }
		how.Inventory, err = store.Load(ctx)
		if _, damaged := errors.AsType[*inventory.DamagedError](err); err != nil && !damaged {
			return nil, err
		}
		// A dry run needs the same permissions as the real request. They may have been written even if the call failed.
		defer e.allowed.EndPreflight(context.WithoutCancel(ctx))
		if err := e.allowed.Preflight(ctx, p); err != nil {
			return nil, err
		}
		return preview.Run(ctx, e.manager.GetConfig(), p, how)
	}
}
