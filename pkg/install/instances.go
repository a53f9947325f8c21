package install

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
)

// crds reads the definitions of kinds.
func (u *remover) crds(ctx context.Context) ([]apiextensionsv1.CustomResourceDefinition, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind(crdKind + "List"))
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

// instances says why a CRD is not deleted: there are objects of its kind that no release brought.
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
			if item.Labels[api.OwnedByLabel] != u.removal.Name {
				return fmt.Sprintf("%s %s is none of the release's and would go with it; --delete-data deletes it",
					crd.Spec.Names.Kind, client.ObjectKeyFromObject(&item)), nil
			}
		}
		return "", nil
	}
	return "", nil
}
