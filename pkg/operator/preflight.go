package operator

import (
	"context"
	"errors"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/preview"
	"github.com/cluster-version/cvo/pkg/release"
)

// previewWidth is how many objects a preflight asks about at a time: it has time, and a rollout may be under way.
const previewWidth = 4

// PreviewOptions are what an operator in that namespace would apply a release with, but for what it knows of earlier ones.
func PreviewOptions(ctx context.Context, reader client.Reader, cv *configv1.ClusterVersion, namespace string) (preview.Options, error) {
	injection, err := ClusterInjection(ctx, reader)
	if err != nil {
		return preview.Options{}, err
	}
	options := preview.Options{
		Owner: ClusterOwner(cv, namespace), Injection: injection, Mode: release.Initializing,
		Prune: cv.Annotations[api.PruneAnnotation] == "true",
	}
	completed := func(e configv1.UpdateHistory) bool { return e.State == configv1.CompletedUpdate }
	if slices.ContainsFunc(cv.Status.History, completed) {
		options.Mode = release.Updating
	}
	return options, nil
}

// newPreview returns what tells the reconciler what an update would do.
func newPreview(mgr manager.Manager, store clusterversion.Store, allowed *permissions, options Options) clusterversion.Preview {
	return func(ctx context.Context, cv *configv1.ClusterVersion, p *payload.Payload) (*preview.Report, error) {
		how, err := PreviewOptions(ctx, mgr.GetAPIReader(), cv, options.Namespace)
		if err != nil {
			return nil, err
		}
		how.Width = previewWidth
		how.Inventory, err = store.Load(ctx)
		if _, damaged := errors.AsType[*inventory.DamagedError](err); err != nil && !damaged {
			return nil, err
		}
		// A dry run takes what the real one takes.
		if err := allowed.preflight(ctx, p); err != nil {
			return nil, err
		}
		defer allowed.release(context.WithoutCancel(ctx), needPreflight)
		return preview.Run(ctx, mgr.GetConfig(), p, how)
	}
}
