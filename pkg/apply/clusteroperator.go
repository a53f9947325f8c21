package apply

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Precreate creates a ClusterOperator with the related objects of its manifest if it does not exist, so that the component's pods find it
// when they start. It does not change an existing ClusterOperator.
func (a *Applier) Precreate(ctx context.Context, m *manifest.Manifest) (Change, error) {
	target, _, err := a.target(ctx, m)
	if err != nil {
		return Change{}, failure.Wrap(m, err)
	}
	following, end := follow(ctx)
	defer end()
	change, err := a.create(ctx, target, m)
	if err == nil && change.Action == Created {
		err = a.relatedObjects(following, target, m, change.ResourceVersion)
	}
	return change, failure.Wrap(m, err)
}

// clusterOperator applies the metadata of a ClusterOperator. The status belongs to the component's operator. Only relatedObjects are set
// until the first status is written, because must-gather tools and the operator itself need them before the first report. The managed
// fields in the response show whether a status was ever written. So if that patch fails after the object was created, the next apply
// repeats it.
func (a *Applier) clusterOperator(ctx context.Context, t request.Target, m *manifest.Manifest) (Change, error) {
	following, end := follow(ctx)
	defer end()
	change, got, err := a.apply(ctx, t, m, nil, false)
	if err != nil || got.meta == nil || change.Deleting || ownership.StatusWritten(got.meta.ManagedFields) {
		return change, err
	}
	return change, a.relatedObjects(following, t, m, change.ResourceVersion)
}

// followTime is the time after the end of a context in which a second write may follow the first.
const followTime = 2 * time.Second

// follow returns a context that ends followTime after ctx.
func follow(ctx context.Context) (following context.Context, end context.CancelFunc) {
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(followTime, cancel) })
	return following, func() {
		stop()
		cancel()
	}
}

// relatedObjects sets the related objects in the status of a ClusterOperator without a status. If the component's operator writes a status
// first, the resource version detects that, and its status wins. The context is one of follow, because the write follows the apply even if
// the process is ending: otherwise it would have no record of the apply, and the next process would repeat it.
func (a *Applier) relatedObjects(ctx context.Context, t request.Target, m *manifest.Manifest, resourceVersion string) error {
	related := body.RelatedObjects(m)
	if len(related) == 0 {
		return nil
	}
	err := a.client.PatchStatus(ctx, t, map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion},
		"status":   map[string]any{"relatedObjects": related},
	})
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("setting related objects: %w", err)
	}
	return nil
}
