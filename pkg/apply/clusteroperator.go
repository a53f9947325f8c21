package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
)

func isClusterOperator(m *manifest.Manifest) bool {
	return m.Is("config.openshift.io", "ClusterOperator")
}

// Precreate creates a ClusterOperator with the related objects of its manifest if it is not there, so that the
// component's pods find it when they start. An existing one is left alone.
func (a *Applier) Precreate(ctx context.Context, m *manifest.Manifest) (Change, error) {
	target, err := a.target(ctx, m)
	if err != nil {
		return Change{}, wrap(m, err)
	}
	change, err := a.create(ctx, target, m)
	if err == nil && change.Action == Created {
		err = a.relatedObjects(ctx, target, m, change.ResourceVersion)
	}
	return change, wrap(m, err)
}

// clusterOperator applies the metadata of a ClusterOperator. Its status belongs to the operator that it speaks for,
// but for relatedObjects as long as nobody has written any status: they tell must-gather tools and the operator itself
// where to look before it has reported anything. The answer tells by its managed fields whether anybody has, so a patch
// that failed after the object was created is made up for.
func (a *Applier) clusterOperator(ctx context.Context, t target, m *manifest.Manifest) (Change, error) {
	change, got, err := a.apply(ctx, t, m)
	if err != nil || got.meta == nil || change.Deleting || ownership.StatusWritten(got.meta.ManagedFields) {
		return change, err
	}
	return change, a.relatedObjects(ctx, t, m, change.ResourceVersion)
}

// relatedObjects fills the status of a ClusterOperator that nobody has written yet. An operator that was faster has
// written its own status, which stands: the resource version decides that.
func (a *Applier) relatedObjects(ctx context.Context, t target, m *manifest.Manifest, resourceVersion string) error {
	related := relatedObjects(m)
	if len(related) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion},
		"status":   map[string]any{"relatedObjects": related},
	})
	if err != nil {
		return fmt.Errorf("%w: related objects: %w", errManifest, err)
	}
	if err := a.client.patchStatus(ctx, t, data); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("setting related objects: %w", err)
	}
	return nil
}

// relatedObjects returns the related objects of a manifest with the strings that the CRD requires: real manifests leave
// them out where they would be empty (all objects of a resource, the core group), and typed clients send them.
func relatedObjects(m *manifest.Manifest) []any {
	list, _, _ := unstructured.NestedFieldNoCopy(m.Object.Object, "status", "relatedObjects")
	entries, _ := list.([]any)
	related := make([]any, 0, len(entries))
	for _, entry := range entries {
		object, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		object = maps.Clone(object)
		for _, required := range []string{"group", "resource", "name"} {
			if object[required] == nil {
				object[required] = ""
			}
		}
		related = append(related, object)
	}
	return related
}
