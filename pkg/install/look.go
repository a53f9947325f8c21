package install

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
	"github.com/cluster-version/cvo/pkg/inventory"
)

// look finds out what there is, and refuses what must not be done.
func (u *remover) look(ctx context.Context) error {
	cv := &configv1.ClusterVersion{}
	switch err := u.Get(ctx, client.ObjectKey{Name: u.removal.Name}, cv); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
	case err != nil:
		return fmt.Errorf("reading ClusterVersion %s: %w", u.removal.Name, err)
	default:
		u.version = cv
	}
	if u.version != nil && !u.removal.Force && len(cv.Status.History) > 0 && cv.Status.History[0].State == configv1.PartialUpdate {
		return &Refusal{fmt.Errorf("release %s is being rolled out, and half of it would stay: wait with 'cvo upgrade wait', or use --force", cv.Status.History[0].Version)}
	}
	var err error
	if u.owned, err = u.list(ctx); err != nil || !u.removal.Platform {
		return err
	}
	return u.readPlaces(ctx)
}

// readPlaces reads the inventory, which goes with the operator at the end. What it does not tell costs the order of some
// objects and nothing else.
func (u *remover) readPlaces(ctx context.Context) error {
	inv, err := inventory.NewStore(u.core, u.removal.Namespace, u.removal.Name).Load(ctx)
	if _, damaged := errors.AsType[*inventory.DamagedError](err); damaged {
		u.say(err.Error() + ": objects that are recorded there are deleted by their kind")
	} else if err != nil {
		return err
	}
	u.places = inv.Records
	return nil
}

// list finds all objects that releases brought, of all kinds that the cluster serves.
func (u *remover) list(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	kinds, err := u.kinds(ctx)
	if err != nil {
		return nil, err
	}
	var all []metav1.PartialObjectMetadata
	seen := map[types.UID]bool{}
	for _, gvk := range kinds {
		if err := u.renew(ctx); err != nil {
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
			if !seen[item.UID] && !ofController(&item) {
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
	return slices.DeleteFunc(all, func(object metav1.PartialObjectMetadata) bool { // they have no owner, and go with the Service
		return object.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Endpoints") && services[client.ObjectKeyFromObject(&object)]
	}), nil
}

// listOf is the kind of a list. The client takes "List" off the end of what it is given, also off that of a kind which
// ends so itself, and finds nothing then.
func listOf(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	return gvk.GroupVersion().WithKind(gvk.Kind + "List")
}

// ofController reports whether a controller has made an object for another, whose labels it gave it: no release brought
// it, and it goes with the other.
func ofController(object *metav1.PartialObjectMetadata) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind != "ClusterVersion"
}

// kinds are all that can be listed and deleted. An API whose server is away is a reason to stop: what it has would be
// left behind, or be deleted with its owner.
func (u *remover) kinds(context.Context) ([]schema.GroupVersionKind, error) {
	lists, err := u.discovery.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("asking for the APIs of the cluster: %w: what an API that is away has cannot be looked after; mend it or remove its APIService", err)
	}
	var kinds []schema.GroupVersionKind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "delete") {
				kinds = append(kinds, gv.WithKind(resource.Kind))
			}
		}
	}
	return kinds, nil
}
