package operator

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/inventory"
)

// ClusterOwner is what an operator in that namespace marks objects as belonging to.
func ClusterOwner(cv *configv1.ClusterVersion, namespace string) apply.Owner {
	return apply.Owner{Name: cv.Name, UID: cv.UID, ApplySet: inventory.ApplySetID(namespace, cv.Name)}
}

// ClusterInjection reads what a cluster puts into manifests that ask for it. What the cluster does not have injects
// nothing.
func ClusterInjection(ctx context.Context, reader client.Reader) (apply.Injection, error) {
	proxy, err := configuration(ctx, reader, &configv1.Proxy{})
	if err != nil {
		return apply.Injection{}, err
	}
	server, err := configuration(ctx, reader, &configv1.APIServer{})
	if err != nil {
		return apply.Injection{}, err
	}
	infrastructure, err := configuration(ctx, reader, &configv1.Infrastructure{})
	if err != nil {
		return apply.Injection{}, err
	}
	return apply.NewInjection(proxy, server, infrastructure)
}

// configuration reads the object named cluster of a kind; nil if it, or its kind, is not there.
func configuration[T client.Object](ctx context.Context, reader client.Reader, object T) (T, error) {
	var none T
	switch err := reader.Get(ctx, client.ObjectKey{Name: "cluster"}, object); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %T cluster: %w", object, err)
	}
	return object, nil
}
