package uninstall

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// crds reads the CRDs of the cluster.
func (u *remover) crds(ctx context.Context) ([]apiextensionsv1.CustomResourceDefinition, error) {
	if err := u.lease.Renew(ctx); err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind(target.CRDKind + "List"))
	if err := u.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing CRDs: %w", err)
	}
	crds := make([]apiextensionsv1.CustomResourceDefinition, len(list.Items))
	for i, item := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &crds[i]); err != nil {
			return nil, fmt.Errorf("reading CRD %s: %w", item.GetName(), err)
		}
	}
	return crds, nil
}

// heldBack names, for each CRD of the platform and each namespace with objects of these CRDs, an object to keep: one that holds data, or does not
// come from a release. The text is the beginning of a sentence.
type heldBack struct {
	crds, namespaces map[string]string
}

// instancesToKeep finds the objects of the platform's CRDs to keep; none if they are deleted as well.
func (u *remover) instancesToKeep(ctx context.Context, crds []apiextensionsv1.CustomResourceDefinition) (heldBack, error) {
	found := heldBack{crds: map[string]string{}, namespaces: map[string]string{}}
	if u.removal.DeleteData {
		return found, nil
	}
	for i := range u.owned {
		object := &u.owned[i]
		if object.Kind != target.CRDKind || u.neededByOperator(object) {
			continue
		}
		k := slices.IndexFunc(crds, func(crd apiextensionsv1.CustomResourceDefinition) bool { return crd.Name == object.Name })
		if k < 0 {
			continue
		}
		if err := u.lease.Renew(ctx); err != nil {
			return heldBack{}, err
		}
		items, err := u.instances(ctx, &crds[k])
		if err != nil {
			return heldBack{}, err
		}
		kind := schema.GroupKind{Group: crds[k].Spec.Group, Kind: crds[k].Spec.Names.Kind}
		for _, item := range items {
			var held string
			switch {
			case manifest.HoldsData(kind):
				held = "contains data"
			case item.Labels[api.OwnedByLabel] != u.removal.Name || ownership.ForeignController(&item) != nil && !u.isCopy(&item):
				held = "is not part of the release"
			default:
				continue
			}
			held = fmt.Sprintf("%s %s %s", kind.Kind, client.ObjectKeyFromObject(&item), held)
			found.crds[object.Name], found.namespaces[item.Namespace] = held, held
		}
	}
	return found, nil
}

// instances returns the objects of a CRD.
func (u *remover) instances(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) ([]metav1.PartialObjectMetadata, error) {
	for _, version := range crd.Spec.Versions {
		if !version.Served {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(listOf(schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}))
		switch err := u.List(ctx, list); {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("looking for objects of CRD %s: %w", crd.Name, err)
		}
		return list.Items, nil
	}
	return nil, nil
}
