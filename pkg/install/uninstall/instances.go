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
	"github.com/cluster-version/cvo/pkg/install/target"
)

// crds reads the CRDs of the cluster.
func (u *remover) crds(ctx context.Context) ([]apiextensionsv1.CustomResourceDefinition, error) {
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

// instances returns the reason to keep a CRD: objects of its kind that do not come from a release. It is empty if there are none.
func (u *remover) instances(ctx context.Context, name string) (string, error) {
	crds, err := u.crds(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(crds, func(crd apiextensionsv1.CustomResourceDefinition) bool { return crd.Name == name })
	if i < 0 {
		return "", nil
	}
	crd := crds[i]
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
			return "", fmt.Errorf("looking for objects of CRD %s: %w", name, err)
		}
		for _, item := range list.Items {
			if item.Labels[api.OwnedByLabel] != u.removal.Name || otherController(&item) != nil && !u.isCopy(&item) {
				return fmt.Sprintf("%s %s is not part of the release and would be deleted with the CRD; --delete-data deletes both",
					crd.Spec.Names.Kind, client.ObjectKeyFromObject(&item)), nil
			}
		}
		return "", nil
	}
	return "", nil
}
