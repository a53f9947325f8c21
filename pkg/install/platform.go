package install

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// platform deletes what releases brought, in the order that deletionSteps gives it.
func (u *remover) platform(ctx context.Context) error {
	if !u.removal.Platform {
		return nil
	}
	defined, err := u.definitions(ctx)
	if err != nil {
		return err
	}
	var going []*metav1.PartialObjectMetadata
	for i := range u.owned {
		object := &u.owned[i]
		if u.own(object) {
			continue
		}
		if err := u.renew(ctx); err != nil {
			return err
		}
		why, err := u.keep(ctx, object)
		if err != nil {
			return err
		}
		if why != "" {
			kept := outcomeOf(object, Kept)
			kept.Message = why
			u.tell(kept)
			continue
		}
		going = append(going, object)
	}
	steps, err := deletionSteps(going, u.places, defined)
	if err != nil {
		return err
	}
	for _, step := range steps {
		for _, object := range step {
			if err := u.startRemoval(ctx, object, metav1.DeletePropagationBackground); err != nil {
				return err
			}
		}
		if err := u.gone(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// definitions are the kinds that CRDs define, by the CRD's name.
func (u *remover) definitions(ctx context.Context) (map[string]schema.GroupKind, error) {
	list, err := u.crds(ctx)
	kinds := map[string]schema.GroupKind{}
	for _, crd := range list {
		kinds[crd.Name] = schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
	}
	return kinds, err
}

// keep says why an object of the platform is not deleted: something would go with it that no release brought.
func (u *remover) keep(ctx context.Context, object *metav1.PartialObjectMetadata) (string, error) {
	switch gk := object.GroupVersionKind().GroupKind(); {
	case u.removal.DeleteData:
		return "", nil
	case gk == (schema.GroupKind{Kind: "PersistentVolume"}), gk == (schema.GroupKind{Kind: "PersistentVolumeClaim"}),
		gk == (schema.GroupKind{Group: "cdi.kubevirt.io", Kind: "DataVolume"}):
		return "it holds data; --delete-data deletes it", nil
	case gk == (schema.GroupKind{Kind: "Namespace"}):
		if object.Name == api.ConfigNamespace || object.Name == api.ConfigManagedNamespace {
			return "it holds configuration of administrators, such as the trust policy; --delete-data deletes it", nil
		}
		claims := &corev1.PersistentVolumeClaimList{}
		if err := u.List(ctx, claims, client.InNamespace(object.Name), client.Limit(1)); err != nil {
			return "", fmt.Errorf("looking for volume claims in namespace %s: %w", object.Name, err)
		}
		if len(claims.Items) > 0 {
			return "there are volume claims in it; --delete-data deletes them", nil
		}
	case gk.Kind == crdKind:
		return u.instances(ctx, object.Name)
	}
	return "", nil
}
