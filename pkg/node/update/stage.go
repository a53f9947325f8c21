package update

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// machines returns all MachineConfigNodes by name, in the newest version that this process knows. With an older one, a reconcile would request
// more nodes to stage than may.
func (r *pools) machines(ctx context.Context) (map[string]*mcfgv1.MachineConfigNode, error) {
	var list mcfgv1.MachineConfigNodeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineConfigNodes: %w", err)
	}
	byName := make(map[string]*mcfgv1.MachineConfigNode, len(list.Items))
	for _, m := range r.writtenMachines.All(pointers.To(list.Items)) {
		byName[m.Name] = m
	}
	return byName, nil
}

// stage requests the nodes that are next to stage the pool's config.
func (r *pools) stage(ctx context.Context, o *rollout) error {
	config := o.pool.Spec.Configuration.Name
	return r.annotate(ctx, o.staging, api.StageAnnotation, &config, func(m *mcfgv1.MachineConfigNode) {
		logr.FromContextOrDiscard(ctx).Info("staging requested", "pool", o.pool.Name, "node", m.Name, "config", config)
	})
}

// permit writes whether the nodes restore the content of their config by themselves.
func (r *pools) permit(ctx context.Context, o *rollout) error {
	var value *string
	if o.restores() {
		value = new("true")
	}
	return r.annotate(ctx, o.permissions, api.RestoreAnnotation, value, func(*mcfgv1.MachineConfigNode) {})
}

// annotate writes an annotation of MachineConfigNodes, or removes it if value is nil. The controller is the only writer of the annotation, so the patch
// needs no lock. written is called for each one.
func (r *pools) annotate(ctx context.Context, machines []*mcfgv1.MachineConfigNode, name string, value *string, written func(*mcfgv1.MachineConfigNode)) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}})
	if err != nil {
		return err
	}
	var failures []error
	for _, m := range machines {
		next := m.DeepCopy()
		err := r.client.Patch(ctx, next, client.RawPatch(types.MergePatchType, patch))
		if apierrors.IsNotFound(err) {
			continue // its deletion and its creation are events
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("writing annotation %s of MachineConfigNode %s: %w", name, m.Name, err))
			continue
		}
		r.writtenMachines.Add(next)
		written(next)
	}
	return errors.Join(failures...)
}

// mattersToStaging reports whether a change of a MachineConfigNode may be the result of staging, its request, or the controller's permission to restore content.
func mattersToStaging(before, after *mcfgv1.MachineConfigNode) bool {
	return before.Annotations[api.StageAnnotation] != after.Annotations[api.StageAnnotation] ||
		before.Annotations[api.RestoreAnnotation] != after.Annotations[api.RestoreAnnotation] ||
		!equality.Semantic.DeepEqual(meta.FindStatusCondition(before.Status.Conditions, pool.Staged), meta.FindStatusCondition(after.Status.Conditions, pool.Staged))
}
