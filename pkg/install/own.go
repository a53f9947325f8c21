package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
)

// own reports whether an object is part of what makes the operator run, which goes last.
func (u *remover) own(object *metav1.PartialObjectMetadata) bool {
	gk := object.GroupVersionKind().GroupKind()
	switch {
	case object.Namespace == u.removal.Namespace, gk == (schema.GroupKind{Kind: "Namespace"}) && object.Name == u.removal.Namespace:
		return true
	case gk.Kind == "ClusterVersion":
		return true
	case gk.Kind == crdKind:
		return slices.Contains(operatorCRDs(), object.Name)
	case gk.Group == rbacv1.GroupName:
		return object.Name == Operator || strings.HasPrefix(object.Name, Operator+"-")
	case gk.Group == "admissionregistration.k8s.io":
		return object.Name == deletionGuard
	}
	return false
}

const deletionGuard = "cluster-version-deletion-guard"

// operatorCRDs are those whose objects are the operator's alone.
func operatorCRDs() []string {
	return []string{"releasestatuses.cvo.cluster-version.github.io", "releaserollouts.cvo.cluster-version.github.io", neededCRDs()[0]}
}

// operator deletes what makes the operator run, from what needs it to what it needs. The guard goes after what it
// guards.
func (u *remover) operator(ctx context.Context) error {
	var last []*metav1.PartialObjectMetadata
	add := func(gvk schema.GroupVersionKind, namespace, name string) error {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		object.SetGroupVersionKind(gvk)
		live, err := u.metadata(ctx, object)
		if err == nil && live != nil {
			live.SetGroupVersionKind(gvk)
			last = append(last, live)
		}
		return err
	}
	var errs []error
	for _, name := range operatorCRDs() {
		errs = append(errs, add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: crdKind}, "", name))
	}
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
		errs = append(errs, add(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind}, "", deletionGuard))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding", "ClusterRole", "Role"} {
		found, err := u.roles(ctx, rbacv1.SchemeGroupVersion.WithKind(kind))
		if err != nil {
			return err
		}
		last = append(last, found...)
	}
	if err := add(corev1.SchemeGroupVersion.WithKind("Namespace"), "", u.removal.Namespace); err != nil {
		return err
	}
	for _, object := range last {
		if err := u.startRemoval(ctx, object, metav1.DeletePropagationBackground); err != nil {
			return err
		}
	}
	return u.gone(ctx, last)
}

// roles finds the roles and bindings of the operator outside its namespace, by name and by who made them.
func (u *remover) roles(ctx context.Context, gvk schema.GroupVersionKind) ([]*metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listOf(gvk))
	if err := u.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing %s: %w", gvk.GroupKind(), err)
	}
	var found []*metav1.PartialObjectMetadata
	for i := range list.Items {
		item := &list.Items[i]
		item.SetGroupVersionKind(gvk)
		ours := slices.ContainsFunc(item.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == api.FieldManager || e.Manager == Manager
		})
		for annotation := range item.Annotations { // applied by hand from rendered files
			ours = ours || strings.HasPrefix(annotation, api.IncludePrefix)
		}
		if ours && u.own(item) && item.Namespace != u.removal.Namespace {
			found = append(found, item)
		}
	}
	return found, nil
}
