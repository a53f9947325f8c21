// Package archive stores records of accepted releases in the cluster. A ReleaseStatus has the records of a ClusterVersion. A ConfigMap has
// the signatures, so that a release can be verified again without its signature store. The package also prunes the image cache. The
// reconciler decides what to record.
package archive

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

// Archive stores records of accepted releases in the cluster. It is used rarely, so this package does not watch them. It implements
// releasestatus.Object.
type Archive struct {
	reader client.Reader
	client client.Client
	images image.Options
}

// New returns an archive that reads without the client's cache and prunes the cache of images.
func New(reader client.Reader, client client.Client, images image.Options) Archive {
	return Archive{reader, client, images}
}

// keptReleases is the number of history releases that stay in the cache: the running one and its predecessor.
const keptReleases = 2

// Accepted implements releasestatus.Object. It writes the signatures of the release to a ConfigMap, so that the release can be verified
// again without its signature store. It also prunes the cache to its limit.
func (a Archive) Accepted(ctx context.Context, cv *configv1.ClusterVersion, verified release.Verified) error {
	if err := a.keepSignatures(ctx, verified); err != nil {
		return err
	}
	keep := []release.Digest{verified.Digest}
	for _, entry := range cv.Status.History[:min(len(cv.Status.History), keptReleases)] {
		keep = append(keep, release.Pullspec(entry.Image).Digest())
	}
	images, err := image.New(a.images)
	if err != nil {
		return err
	}
	_, err = images.Prune(ctx, slices.DeleteFunc(keep, func(d release.Digest) bool { return d == "" })...)
	return err
}

func (a Archive) keepSignatures(ctx context.Context, verified release.Verified) error {
	cm := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: api.ConfigManagedNamespace, Name: store.ManagedName}
	err := a.reader.Get(ctx, key, cm)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	managed, changed := store.ReadManaged(cm.BinaryData).With(verified.Digest, verified.Evidence)
	if !changed {
		return nil
	}
	cm.Namespace, cm.Name, cm.BinaryData = key.Namespace, key.Name, managed.BinaryData()
	if cm.Labels == nil {
		cm.Labels = map[string]string{}
	}
	cm.Labels[api.VerificationSignatureLabel] = ""
	if apierrors.IsNotFound(err) {
		err = a.client.Create(ctx, cm, client.FieldOwner(api.FieldManager))
	} else {
		err = a.client.Update(ctx, cm, client.FieldOwner(api.FieldManager))
	}
	if err != nil {
		return fmt.Errorf("storing signatures in ConfigMap %s: %w", key, err)
	}
	return nil
}

// Get implements releasestatus.Object. A ReleaseStatus that cannot be parsed counts as an empty one.
func (a Archive) Get(ctx context.Context, name string) (*api.ReleaseStatus, error) {
	u, err := getReleaseStatus(ctx, a.reader, name)
	if u == nil || err != nil {
		return nil, err
	}
	status, err := releaseStatusOf(u)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("cannot parse ReleaseStatus", "error", err.Error())
		return &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: name, UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}}, nil
	}
	return status, nil
}

// ReadReleaseStatus returns the ReleaseStatus of a ClusterVersion, nil if there is none. If the cluster does not serve the kind, the error
// satisfies meta.IsNoMatchError.
func ReadReleaseStatus(ctx context.Context, reader client.Reader, name string) (*api.ReleaseStatus, error) {
	u, err := getReleaseStatus(ctx, reader, name)
	if u == nil || err != nil {
		return nil, err
	}
	return releaseStatusOf(u)
}

func getReleaseStatus(ctx context.Context, reader client.Reader, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind))
	switch err := reader.Get(ctx, client.ObjectKey{Name: name}, u); {
	case apierrors.IsNotFound(err):
		return nil, nil // none is a valid answer
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", api.ReleaseStatusKind, name, err)
	}
	return u, nil
}

func releaseStatusOf(u *unstructured.Unstructured) (*api.ReleaseStatus, error) {
	status := &api.ReleaseStatus{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, status); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", api.ReleaseStatusKind, u.GetName(), err)
	}
	return status, nil
}

// Put implements releasestatus.Object.
func (a Archive) Put(ctx context.Context, status *api.ReleaseStatus) (*api.ReleaseStatus, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", api.ReleaseStatusKind, status.Name, err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind))
	if status.ResourceVersion == "" {
		err = a.client.Create(ctx, u, client.FieldOwner(api.FieldManager))
	} else {
		err = a.client.Update(ctx, u, client.FieldOwner(api.FieldManager))
	}
	if err != nil {
		return nil, fmt.Errorf("writing %s %s: %w", api.ReleaseStatusKind, status.Name, err)
	}
	return releaseStatusOf(u) // the client has replaced the content of u with the stored object
}
