package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// readInstallation reads the installation and returns an error if removing it is not allowed.
func (u *remover) readInstallation(ctx context.Context) error {
	if err := u.readVersion(ctx); err != nil {
		return err
	}
	if cv := u.version; cv != nil && !u.removal.Force && len(cv.Status.History) > 0 && cv.Status.History[0].State == configv1.PartialUpdate {
		u.rollout = &target.Refusal{Err: &RolloutError{cv.Status.History[0].Version}}
		if !u.removal.DryRun {
			return u.rollout
		}
	}
	if err := u.checkNamespace(ctx); err != nil {
		return err
	}
	var err error
	if u.owned, err = u.list(ctx); err != nil || !u.removal.Platform {
		return err
	}
	return u.readInventory(ctx)
}

// readVersion reads the ClusterVersion and returns an error if the cluster has one with another name.
func (u *remover) readVersion(ctx context.Context) error {
	if err := u.lease.Renew(ctx); err != nil {
		return err
	}
	versions := &configv1.ClusterVersionList{}
	if err := u.List(ctx, versions); err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return fmt.Errorf("reading ClusterVersions: %w", err)
	}
	u.version = nil
	for i := range versions.Items {
		cv := &versions.Items[i]
		if cv.Name != u.removal.Name {
			// It would be deleted with its definition, and then the garbage collector would delete the platform that it owns.
			return &target.Refusal{Err: fmt.Errorf("this cluster has ClusterVersion %q, which an uninstall of %q would also delete: check --name", cv.Name, u.removal.Name)}
		}
		u.version = cv
	}
	return nil
}

// readInventory reads the inventory, before the uninstall deletes it with the operator. Missing records affect only the order of some
// deletions.
func (u *remover) readInventory(ctx context.Context) error {
	inv, err := inventory.NewStore(u.core, u.removal.Namespace, u.removal.Name).Load(ctx)
	if _, damaged := errors.AsType[*inventory.DamagedError](err); damaged {
		u.log(err.Error() + ": deleting the affected objects in the order of their kinds")
	} else if err != nil {
		return err
	}
	clusterScoped := map[schema.GroupKind]bool{}
	for _, object := range u.owned {
		clusterScoped[object.GroupVersionKind().GroupKind()] = object.Namespace == ""
	}
	inv = inv.WithoutStrayNamespaces(func(id manifest.ID) bool { return clusterScoped[schema.GroupKind{Group: id.Group, Kind: id.Kind}] })
	u.records = inv.Records
	return nil
}

// list returns all objects that come from releases, of every kind that the cluster serves.
func (u *remover) list(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	kinds, err := u.kinds(ctx, func(metav1.APIResource) bool { return true })
	if err != nil {
		return nil, err
	}
	var all []metav1.PartialObjectMetadata
	seen := map[types.UID]bool{}
	for _, gvk := range kinds {
		if err := u.lease.Renew(ctx); err != nil {
			return nil, err
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(listOf(gvk))
		switch err := u.List(ctx, list, client.MatchingLabels{api.OwnedByLabel: u.removal.Name}); {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("listing %s: %w", gvk.GroupKind(), err)
		}
		for _, item := range list.Items {
			item.SetGroupVersionKind(gvk)
			if !seen[item.UID] && !u.isCopy(&item) {
				seen[item.UID] = true
				all = append(all, item)
			}
		}
	}
	services := map[types.NamespacedName]bool{}
	for i := range all {
		if all[i].GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Service") {
			services[client.ObjectKeyFromObject(&all[i])] = true
		}
	}
	return slices.DeleteFunc(all, func(object metav1.PartialObjectMetadata) bool { // Endpoints have no owner reference and are deleted with their Service
		return object.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Endpoints") && services[client.ObjectKeyFromObject(&object)]
	}), nil
}

// listOf returns the kind of a list. The client strips the suffix "List" from the given kind. Without the added "List", it would also strip
// it from a kind that ends with "List", and find nothing.
func listOf(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	return gvk.GroupVersion().WithKind(gvk.Kind + "List")
}

// isCopy reports whether a controller has created an object for another object and copied its labels. Such an object does not come from a
// release, and is deleted with its owner. An object that an earlier run has disowned is not a copy: it has fields that the operator applied.
func (u *remover) isCopy(object *metav1.PartialObjectMetadata) bool {
	return ownership.ForeignController(object) != nil && !ownership.Applied(object.ManagedFields) && !slices.ContainsFunc(object.OwnerReferences, u.isOwner)
}

// kinds returns the selected kinds that can be listed and deleted. It fails if an API's server is down. Otherwise the objects of that API
// would stay, or be deleted with their owner.
func (u *remover) kinds(ctx context.Context, selected func(metav1.APIResource) bool) ([]schema.GroupVersionKind, error) {
	lists, err := u.discovery.ServerPreferredResourcesWithContext(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("reading the cluster's APIs: %w", context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("reading the cluster's APIs: %w: repair the unavailable API or remove its APIService, because its objects cannot be listed", err)
	}
	var kinds []schema.GroupVersionKind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "delete") && selected(resource) {
				kinds = append(kinds, gv.WithKind(resource.Kind))
			}
		}
	}
	return kinds, nil
}
