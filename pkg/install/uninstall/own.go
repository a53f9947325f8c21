package uninstall

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
	"github.com/cluster-version/cvo/pkg/install/target"
)

// namespaceKind is the kind of a namespace.
var namespaceKind = schema.GroupKind{Kind: "Namespace"}

// neededByOperator reports whether the operator needs an object to run. Such objects are deleted last.
func (u *remover) neededByOperator(object *metav1.PartialObjectMetadata) bool {
	gk := object.GroupVersionKind().GroupKind()
	switch {
	case object.Namespace == u.removal.Namespace, gk == namespaceKind && object.Name == u.removal.Namespace:
		return true
	case gk.Kind == "ClusterVersion":
		return true
	case gk.Kind == target.CRDKind:
		return slices.Contains(target.OperatorCRDs(), object.Name)
	case gk.Group == rbacv1.GroupName:
		return object.Name == target.Operator || strings.HasPrefix(object.Name, target.Operator+"-")
	case gk.Group == "admissionregistration.k8s.io":
		return slices.Contains(guards(), object.Name)
	}
	return false
}

// guards returns the names of the policies that protect the operator's own objects.
func guards() []string {
	return []string{"cluster-version-deletion-guard", "cluster-version-record-guard"}
}

// operator deletes the operator's own objects, each before the objects that it needs. It deletes the guard after the objects that the guard
// protects.
func (u *remover) operator(ctx context.Context) error {
	var last []*metav1.PartialObjectMetadata
	add := func(gvk schema.GroupVersionKind, namespace, name string) error {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		object.SetGroupVersionKind(gvk)
		if err := u.lease.Renew(ctx); err != nil {
			return err
		}
		live, err := u.Metadata(ctx, object)
		if err == nil && live != nil {
			live.SetGroupVersionKind(gvk)
			last = append(last, live)
		}
		return err
	}
	var errs []error
	for _, name := range target.OperatorCRDs() {
		errs = append(errs, add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: target.CRDKind}, "", name))
	}
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
		for _, name := range guards() {
			errs = append(errs, add(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind}, "", name))
		}
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
	u.pending = slices.Clone(last)
	for _, object := range last {
		if err := u.startRemoval(ctx, object, metav1.DeletePropagationBackground); err != nil {
			return err
		}
	}
	return u.awaitDeletion(ctx, last)
}

// roles returns the operator's roles and bindings outside its namespace, selected by name and creator.
func (u *remover) roles(ctx context.Context, gvk schema.GroupVersionKind) ([]*metav1.PartialObjectMetadata, error) {
	if err := u.lease.Renew(ctx); err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listOf(gvk))
	if err := u.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing %s: %w", gvk.GroupKind(), err)
	}
	var found []*metav1.PartialObjectMetadata
	for i := range list.Items {
		item := &list.Items[i]
		item.SetGroupVersionKind(gvk)
		if isOurs(item) && u.neededByOperator(item) && item.Namespace != u.removal.Namespace {
			found = append(found, item)
		}
	}
	return found, nil
}

// isOurs reports whether the operator or 'cvo install' has written an object, or an administrator has applied it from rendered files.
func isOurs(object *metav1.PartialObjectMetadata) bool {
	for annotation := range object.Annotations {
		if strings.HasPrefix(annotation, api.IncludePrefix) {
			return true
		}
	}
	return slices.ContainsFunc(object.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == api.FieldManager || e.Manager == target.Manager
	})
}
