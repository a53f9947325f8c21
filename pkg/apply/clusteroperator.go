package apply

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
)

func isClusterOperator(m *manifest.Manifest) bool {
	return m.Is("config.openshift.io", "ClusterOperator")
}

// clusterOperator applies the metadata of a ClusterOperator. Its status belongs to the operator that it speaks for,
// but for relatedObjects at creation: they tell must-gather tools and the operator itself where to look before it
// has reported anything.
func (a *Applier) clusterOperator(ctx context.Context, t target, m *manifest.Manifest) (Change, error) {
	change, err := a.apply(ctx, t, m)
	if err != nil || change.Action != Created {
		return change, err
	}
	return change, a.relatedObjects(ctx, t, m)
}

func (a *Applier) createClusterOperator(ctx context.Context, t target, m *manifest.Manifest) (Change, error) {
	data, err := json.Marshal(a.body(m, false))
	if err != nil {
		return Change{}, fmt.Errorf("encoding: %w", err)
	}
	meta, err := a.client.create(ctx, t, data)
	if err != nil {
		return Change{}, err
	}
	return receipt(Created, meta), a.relatedObjects(ctx, t, m)
}

// relatedObjects fills the status of a ClusterOperator that was just created. An operator that was faster has
// written its own status, which stands: the resource version of a merge patch decides that.
func (a *Applier) relatedObjects(ctx context.Context, t target, m *manifest.Manifest) error {
	related, found, err := unstructured.NestedSlice(m.Object.Object, "status", "relatedObjects")
	if err != nil || !found || len(related) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"status": map[string]any{"relatedObjects": related}})
	if err != nil {
		return fmt.Errorf("encoding related objects: %w", err)
	}
	if err := a.client.patchStatus(ctx, t, data); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("setting related objects: %w", err)
	}
	return nil
}
