package operator

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// releaseRecord keeps the ReleaseStatus in the cluster. It is read and written seldom, so nothing watches it.
type releaseRecord struct {
	reader client.Reader
	client client.Client
}

// Get implements clusterversion.Record.
func (r releaseRecord) Get(ctx context.Context, name string) (*api.ReleaseStatus, error) {
	return ReadReleaseStatus(ctx, r.reader, name)
}

// ReadReleaseStatus returns the ReleaseStatus of a ClusterVersion, nil if there is none. The error of a cluster that does
// not serve the kind is one for which meta.IsNoMatchError holds.
func ReadReleaseStatus(ctx context.Context, reader client.Reader, name string) (*api.ReleaseStatus, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind))
	switch err := reader.Get(ctx, client.ObjectKey{Name: name}, u); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // none is a valid answer
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", api.ReleaseStatusKind, name, err)
	}
	status := &api.ReleaseStatus{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, status); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", api.ReleaseStatusKind, name, err)
	}
	return status, nil
}

// Put implements clusterversion.Record.
func (r releaseRecord) Put(ctx context.Context, status *api.ReleaseStatus) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("encoding %s %s: %w", api.ReleaseStatusKind, status.Name, err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind))
	if status.ResourceVersion == "" {
		err = r.client.Create(ctx, u, client.FieldOwner(api.FieldManager))
	} else {
		err = r.client.Update(ctx, u, client.FieldOwner(api.FieldManager))
	}
	if err != nil {
		return fmt.Errorf("writing %s %s: %w", api.ReleaseStatusKind, status.Name, err)
	}
	return nil
}
