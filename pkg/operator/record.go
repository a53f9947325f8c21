package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

// releaseRecord keeps in the cluster what is known of releases that were accepted. It is read and written seldom, so
// nothing watches it.
type releaseRecord struct {
	reader client.Reader
	client client.Client
	images image.Options
}

// keptReleases is how many releases of the history stay in the cache: what runs, and what it came from.
const keptReleases = 2

// Accepted implements clusterversion.Record: the signatures of the release go to a ConfigMap, so that it verifies again
// without its store, and the cache is cut back to its limit.
func (r releaseRecord) Accepted(ctx context.Context, cv *configv1.ClusterVersion, verified release.Verified) error {
	if err := r.keepSignatures(ctx, verified); err != nil {
		return err
	}
	keep := []release.Digest{verified.Digest}
	for _, entry := range cv.Status.History[:min(len(cv.Status.History), keptReleases)] {
		_, digest, _ := strings.Cut(entry.Image, "@")
		keep = append(keep, release.Digest(digest))
	}
	images, err := image.New(r.images)
	if err != nil {
		return err
	}
	_, err = images.Prune(ctx, slices.DeleteFunc(keep, func(d release.Digest) bool { return d == "" })...)
	return err
}

func (r releaseRecord) keepSignatures(ctx context.Context, verified release.Verified) error {
	cm := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: api.ConfigManagedNamespace, Name: verify.ManagedName}
	err := r.reader.Get(ctx, key, cm)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	managed, changed := verify.ReadManaged(cm.BinaryData).With(verified.Digest, verified.Evidence)
	if !changed {
		return nil
	}
	cm.Namespace, cm.Name, cm.BinaryData = key.Namespace, key.Name, managed.BinaryData()
	if cm.Labels == nil {
		cm.Labels = map[string]string{}
	}
	cm.Labels[api.VerificationSignatureLabel] = ""
	if apierrors.IsNotFound(err) {
		err = r.client.Create(ctx, cm, client.FieldOwner(api.FieldManager))
	} else {
		err = r.client.Update(ctx, cm, client.FieldOwner(api.FieldManager))
	}
	if err != nil {
		return fmt.Errorf("keeping signatures in ConfigMap %s: %w", key, err)
	}
	return nil
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
