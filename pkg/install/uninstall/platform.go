package uninstall

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// platform deletes the objects of releases, in the order of deletionSteps.
func (u *remover) platform(ctx context.Context) error {
	if !u.removal.Platform {
		return nil
	}
	crds, err := u.crds(ctx)
	if err != nil {
		return err
	}
	// defined maps the name of each CRD to the kind that it defines.
	defined := map[string]schema.GroupKind{}
	for _, crd := range crds {
		defined[crd.Name] = schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
	}
	held, err := u.instancesToKeep(ctx, crds)
	if err != nil {
		return err
	}
	var going, claimed []*metav1.PartialObjectMetadata
	for i := range u.owned {
		object := &u.owned[i]
		if u.neededByOperator(object) {
			continue
		}
		if ownership.ForeignController(object) != nil {
			claimed = append(claimed, object)
			continue
		}
		if err := u.lease.Renew(ctx); err != nil {
			return err
		}
		why, err := u.reasonToKeep(ctx, object, held)
		if err != nil {
			return err
		}
		if why != "" {
			u.keep(object, why)
			continue
		}
		going = append(going, object)
	}
	var lost []*metav1.PartialObjectMetadata
	for _, object := range claimed {
		if slices.ContainsFunc(going, func(g *metav1.PartialObjectMetadata) bool {
			return g.GroupVersionKind().GroupKind() == namespaceKind && g.Name == object.Namespace
		}) {
			lost = append(lost, object)
			continue
		}
		u.controlled(object, target.Kept, "")
	}
	steps, err := deletionSteps(going, u.records, defined)
	if err != nil {
		return err
	}
	u.pending = slices.Concat(steps...)
	for _, step := range steps {
		for _, object := range step {
			if err := u.startRemoval(ctx, object, metav1.DeletePropagationBackground); err != nil {
				return err
			}
		}
		if err := u.awaitDeletion(ctx, step); err != nil {
			return err
		}
	}
	for _, object := range lost {
		u.controlled(object, target.Deleted, ", but its namespace is deleted")
	}
	return nil
}

// controlled records the outcome for an object of another controller.
func (u *remover) controlled(object *metav1.PartialObjectMetadata, outcome target.Outcome, why string) {
	result := outcomeOf(object, outcome)
	result.Message = ownership.Controlled(object) + why
	u.record(result)
}

func (u *remover) keep(object *metav1.PartialObjectMetadata, why string) {
	kept := outcomeOf(object, target.Kept)
	kept.Message = why
	u.record(kept)
}

// reasonToKeep returns the reason not to delete an object of the platform: the deletion would also delete data, or an object that does not
// come from a release. It is empty if there is none.
func (u *remover) reasonToKeep(ctx context.Context, object *metav1.PartialObjectMetadata, held heldBack) (string, error) {
	switch gk := object.GroupVersionKind().GroupKind(); {
	case u.removal.DeleteData:
		return "", nil
	case manifest.HoldsData(gk):
		return "it contains data; --delete-data deletes it", nil
	case gk == namespaceKind:
		if object.Name == api.ConfigNamespace || object.Name == api.ConfigManagedNamespace {
			return "it contains configuration of administrators, such as the trust policy; --delete-data deletes it", nil
		}
		if what := held.namespaces[object.Name]; what != "" {
			return what + " and would be deleted with the namespace; --delete-data deletes both", nil
		}
		claims := &corev1.PersistentVolumeClaimList{}
		if err := u.List(ctx, claims, client.InNamespace(object.Name), client.Limit(1)); err != nil {
			return "", fmt.Errorf("looking for volume claims in namespace %s: %w", object.Name, err)
		}
		if len(claims.Items) > 0 {
			return "it contains volume claims; --delete-data deletes them", nil
		}
	case gk.Kind == target.CRDKind:
		if what := held.crds[object.Name]; what != "" {
			return what + " and would be deleted with the CRD; --delete-data deletes both", nil
		}
	case gk == (schema.GroupKind{Group: appsv1.GroupName, Kind: "StatefulSet"}):
		set := &appsv1.StatefulSet{}
		if err := u.Get(ctx, client.ObjectKeyFromObject(object), set); client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading StatefulSet %s/%s: %w", object.Namespace, object.Name, err)
		}
		retention := set.Spec.PersistentVolumeClaimRetentionPolicy
		if retention != nil && retention.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType && len(set.Spec.VolumeClaimTemplates) > 0 {
			return "its volume claims would be deleted with it; --delete-data deletes both", nil
		}
	}
	return "", nil
}
