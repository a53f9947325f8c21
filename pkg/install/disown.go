package install

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
)

// disown removes the references to the ClusterVersion from what releases brought. The garbage collector would do so for
// a deletion that orphans; but what it does not know of yet it would delete as soon as the owner is gone.
func (u *remover) disown(ctx context.Context) error {
	if u.removal.DryRun {
		return nil
	}
	// Until it was stopped, the operator may have made more than was there at first, or made something anew.
	var err error
	if u.owned, err = u.list(ctx); err != nil || u.version == nil {
		return err
	}
	if len(u.owned) > 0 {
		u.say(fmt.Sprintf("taking %d objects out of the ClusterVersion's hands", len(u.owned)))
	}
	for i := range u.owned {
		if err := errors.Join(u.renew(ctx), u.disownOne(ctx, &u.owned[i])); err != nil {
			return err
		}
	}
	// Nobody acts any more, so what is looked at now is what the garbage collector will find.
	again, err := u.list(ctx)
	if err != nil {
		return err
	}
	for i := range again {
		if refersTo(&again[i], u.version.UID) {
			return fmt.Errorf("%s is owned by the ClusterVersion again: something still applies the release; stop it and do this again", describe(&again[i]))
		}
	}
	return nil
}

func (u *remover) disownOne(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !refersTo(object, u.version.UID) {
			return nil
		}
		others := slices.DeleteFunc(slices.Clone(object.OwnerReferences), func(o metav1.OwnerReference) bool { return o.UID == u.version.UID })
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"ownerReferences": others, "resourceVersion": object.ResourceVersion, "uid": object.UID,
		}})
		if err != nil {
			return err
		}
		err = u.Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(Manager))
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

func refersTo(object client.Object, uid types.UID) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == uid })
}
