// Package pullsecret maintains the operator's copy of the cluster's pull secret. It watches the original in openshift-config and the copy
// in the operator's namespace, and writes the copy when they differ. It does not interpret the credentials; packages egress and credentials
// do.
package pullsecret

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// Keeper keeps the copy of the cluster's pull secret equal to the original. The operator's pods use the copy, because a pod cannot use a
// Secret of another namespace. If the original is deleted, the copy stays, because no pod could start without it. Only the leader writes.
type Keeper struct {
	clock     clock.Clock
	client    corev1client.CoreV1Interface
	namespace string
	// repairs limits the rate of writes, because another client may keep changing the copy.
	repairs fence.Repairs

	// changes guards original and copy.
	changes        *watch.Changes
	original, copy *corev1.Secret
}

// NewKeeper returns a keeper of the copy in a namespace.
func NewKeeper(clk clock.Clock, client corev1client.CoreV1Interface, namespace string) *Keeper {
	return &Keeper{clock: clk, client: client, namespace: namespace, repairs: fence.NewRepairs(clk.Now()), changes: watch.NewChanges()}
}

// retryInterval is the time between a failed write and the next attempt, unless something changes earlier.
const retryInterval = 30 * time.Second

// Start implements manager.Runnable.
func (k *Keeper) Start(ctx context.Context) error {
	watch.Run(ctx, func() { k.keepOn(ctx) },
		watch.NewSingle(k.client.Secrets(api.ConfigNamespace), &corev1.Secret{}, api.PullSecret, watch.OnState(func(original *corev1.Secret) {
			k.changes.Record(func() { k.original = original })
		})),
		watch.NewSingle(k.client.Secrets(k.namespace), &corev1.Secret{}, api.PullSecretCopy, watch.OnState(func(there *corev1.Secret) {
			k.changes.Record(func() { k.copy = there })
		})),
	)
	return nil
}

// keepOn writes the copy when it differs, until ctx ends.
func (k *Keeper) keepOn(ctx context.Context) {
	for {
		var again <-chan time.Time
		if err := k.keep(ctx); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "cannot update the copy of the pull secret")
			again = k.clock.After(retryInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-k.changes.C():
		case <-again:
		}
	}
}

// keep writes the copy if it differs.
func (k *Keeper) keep(ctx context.Context) error {
	var original, there *corev1.Secret
	k.changes.Locked(func() { original, there = k.original, k.copy })
	if original == nil || len(original.Data[corev1.DockerConfigJsonKey]) == 0 {
		return nil
	}
	wanted := original.Data[corev1.DockerConfigJsonKey]
	if there != nil && bytes.Equal(there.Data[corev1.DockerConfigJsonKey], wanted) {
		return nil
	}
	if there != nil && there.Type != corev1.SecretTypeDockerConfigJson {
		return fmt.Errorf("writing Secret %s/%s: its type is %s, which cannot be changed: delete the Secret", k.namespace, api.PullSecretCopy, there.Type)
	}
	if !k.repairs.Allowed(k.clock.Now()) {
		return fmt.Errorf("writing Secret %s/%s: %w", k.namespace, api.PullSecretCopy, fence.ErrTooMany)
	}
	copied := applycorev1.Secret(api.PullSecretCopy, k.namespace).
		WithAnnotations(map[string]string{"kubernetes.io/description": api.PullSecretCopyDescription}).
		WithType(corev1.SecretTypeDockerConfigJson).
		WithData(map[string][]byte{corev1.DockerConfigJsonKey: wanted})
	_, err := k.client.Secrets(k.namespace).Apply(ctx, copied, metav1.ApplyOptions{FieldManager: api.FieldManager, Force: true})
	if k.repairs.Count(err); err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", k.namespace, api.PullSecretCopy, err)
	}
	return nil
}
