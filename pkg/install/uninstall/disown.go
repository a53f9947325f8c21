package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/install/target"
)

// disown removes the owner references to the ClusterVersion from the objects of releases. A deletion with orphan propagation has the same
// purpose. But once the owner no longer exists, the garbage collector deletes objects that it did not know before.
func (u *remover) disown(ctx context.Context) error {
	if u.removal.DryRun {
		return nil
	}
	// Before the operator stopped, the ClusterVersion may have been recreated, and the operator may have created objects.
	if err := u.readVersion(ctx); err != nil {
		return err
	}
	var err error
	if u.owned, err = u.list(ctx); err != nil || u.version == nil {
		return err
	}
	if len(u.owned) > 0 {
		u.log("removing the owner references from " + printable.Count(len(u.owned), "object"))
	}
	for i := range u.owned {
		if err := errors.Join(u.lease.Renew(ctx), u.disownOne(ctx, &u.owned[i])); err != nil {
			return err
		}
	}
	// No operator runs now, so this listing contains all objects that the garbage collector will find.
	again, err := u.list(ctx)
	if err != nil {
		return err
	}
	for i := range again {
		if slices.ContainsFunc(again[i].OwnerReferences, u.isOwner) {
			return fmt.Errorf("%s is owned by the ClusterVersion again: stop the process that still applies the release, and run the command again", describe(&again[i]))
		}
	}
	return nil
}

func (u *remover) disownOne(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !slices.ContainsFunc(object.OwnerReferences, u.isOwner) {
			return nil
		}
		others := slices.DeleteFunc(slices.Clone(object.OwnerReferences), u.isOwner)
		metadata := map[string]any{"ownerReferences": others, "resourceVersion": object.ResourceVersion, "uid": object.UID}
		if ownership.ForeignController(object) != nil && !ownership.Applied(object.ManagedFields) {
			metadata["labels"] = map[string]any{api.OwnedByLabel: nil} // otherwise it would count as a copy
		}
		patch, err := json.Marshal(map[string]any{"metadata": metadata})
		if err != nil {
			return err
		}
		err = u.Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(target.Manager))
		if apierrors.IsConflict(err) {
			if err := u.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
		}
		return err
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%s: %w", describe(object), err)
	}
	return nil
}

// isOwner reports whether a reference names the ClusterVersion, with any UID, because it may have been recreated.
func (u *remover) isOwner(o metav1.OwnerReference) bool {
	return ownership.IsClusterVersion(&o) && o.Name == u.removal.Name
}
