package uninstall

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/kube/leader"
)

// checkNamespace returns an error if the operator of this cluster is in another namespace, or if the namespace does not belong to an
// operator. An uninstall would leave that operator running, and delete the namespace with everything in it.
func (u *remover) checkNamespace(ctx context.Context) error {
	found := false
	for _, isHere := range []func(context.Context) (bool, error){u.deploymentIsHere, u.leaseIsHere, u.inventoryIsHere} {
		here, err := isHere(ctx)
		if err != nil {
			return err
		}
		found = found || here
	}
	if found {
		return nil
	}
	namespace, err := u.coreObject(ctx, "Namespace", "", u.removal.Namespace)
	if err != nil || namespace == nil || namespace.DeletionTimestamp != nil {
		return err // there is nothing to lose
	}
	// An interrupted uninstall has deleted all other evidence.
	account, err := u.coreObject(ctx, "ServiceAccount", u.removal.Namespace, target.Operator)
	if err != nil || account != nil && isOurs(account) {
		return err
	}
	return &target.Refusal{Err: fmt.Errorf("namespace %s has no operator of this cluster, and an uninstall would delete it: check --namespace", u.removal.Namespace)}
}

// elsewhere returns the refusal because of evidence that the operator of this cluster is in another namespace.
func elsewhere(namespace, evidence string, args ...any) error {
	return &target.Refusal{Err: fmt.Errorf("%s: use --namespace %s", fmt.Sprintf(evidence, args...), namespace)}
}

// deploymentIsHere reports whether the Deployment of an operator is in the namespace. The default namespace needs none, unless another
// namespace has one.
func (u *remover) deploymentIsHere(ctx context.Context) (bool, error) {
	gvk := appsv1.SchemeGroupVersion.WithKind("Deployment")
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listOf(gvk))
	if err := u.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: target.Operator}); err != nil {
		return false, fmt.Errorf("looking for %s %s: %w", gvk.Kind, target.Operator, err)
	}
	// Others are operators of other clusters, such as one with a hosted control plane.
	deployments := slices.DeleteFunc(list.Items, func(d metav1.PartialObjectMetadata) bool { return !isOurs(&d) })
	here := slices.ContainsFunc(deployments, func(d metav1.PartialObjectMetadata) bool { return d.Namespace == u.removal.Namespace })
	if len(deployments) > 0 && !here {
		return false, elsewhere(deployments[0].Namespace, "%s %s/%s runs the operator of this cluster", gvk.Kind, deployments[0].Namespace, target.Operator)
	}
	return here || u.removal.Namespace == api.OperatorNamespace, nil
}

// leaseIsHere reports whether the Lease of an operator is in the namespace. The holders of other programs' Leases have another form.
func (u *remover) leaseIsHere(ctx context.Context) (here bool, err error) {
	leases, err := leader.FindAll(ctx, u.config, u.removal.Name)
	if err != nil {
		return false, err
	}
	for _, l := range leases {
		isOperator := l.Unique != ""
		if l.Namespace == u.removal.Namespace {
			here = isOperator || l.Host == ""
		} else if isOperator && !l.Gone {
			return false, elsewhere(l.Namespace, "%s, the operator of this cluster, holds Lease %s/%s", l.Host, l.Namespace, l.LeaseName)
		}
	}
	return here, nil
}

// inventoryIsHere reports whether the record of the cluster's releases names the namespace as that of the inventory.
func (u *remover) inventoryIsHere(ctx context.Context) (here bool, err error) {
	records := &unstructured.UnstructuredList{}
	records.SetGroupVersionKind(listOf(api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind)))
	if err := u.List(ctx, records); err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("reading ReleaseStatuses: %w", err)
	}
	for _, record := range records.Items {
		if record.GetName() != u.removal.Name { // its ClusterVersion may be deleted, and is then created again
			return false, &target.Refusal{Err: fmt.Errorf("this cluster has ReleaseStatus %q, so the name of its ClusterVersion is not %q: check --name", record.GetName(), u.removal.Name)}
		}
		namespace, _, _ := unstructured.NestedString(record.Object, "status", "inventory", "namespace")
		if namespace != "" && namespace != u.removal.Namespace {
			return false, elsewhere(namespace, "ReleaseStatus %s names %s as the namespace of the operator", u.removal.Name, namespace)
		}
		here = namespace != ""
	}
	return here, nil
}

// coreObject returns the metadata of an object in the core group, or nil if it does not exist.
func (u *remover) coreObject(ctx context.Context, kind, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return u.Metadata(ctx, object)
}
