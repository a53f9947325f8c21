package operator

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
)

// pullSecretKeeper keeps the copy of the cluster's pull secret that the operator's pods are started with equal to the
// original: a pod can use no secret of another namespace. An original that is deleted leaves the copy, without which no
// pod could be started any more. Only the leader writes.
type pullSecretKeeper struct {
	clock     clock.Clock
	client    corev1client.CoreV1Interface
	namespace string
	// repairs bounds how often is written, for somebody else may want the copy otherwise.
	repairs bucket

	noted
	original, copy *corev1.Secret
}

func newPullSecretKeeper(clk clock.Clock, client corev1client.CoreV1Interface, namespace string) *pullSecretKeeper {
	return &pullSecretKeeper{clock: clk, client: client, namespace: namespace, repairs: bucket{left: repairsAtOnce, at: clk.Now()}, noted: newNoted()}
}

// pullSecretRetry is how long the keeper waits after a write that failed, unless something changes before.
const pullSecretRetry = 30 * time.Second

// Start implements manager.Runnable.
func (k *pullSecretKeeper) Start(ctx context.Context) error {
	watchAll(ctx, func() { k.keepOn(ctx) },
		newSingle(k.client.Secrets(api.ConfigNamespace), &corev1.Secret{}, api.PullSecret, each(func(original *corev1.Secret) {
			k.note(func() { k.original = original })
		})),
		newSingle(k.client.Secrets(k.namespace), &corev1.Secret{}, api.PullSecretCopy, each(func(there *corev1.Secret) {
			k.note(func() { k.copy = there })
		})),
	)
	return nil
}

// keepOn writes the copy whenever it differs, until ctx ends.
func (k *pullSecretKeeper) keepOn(ctx context.Context) {
	for {
		var again <-chan time.Time
		if err := k.keep(ctx); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "the copy of the pull secret is not as it should be")
			again = k.clock.After(pullSecretRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-k.changed:
		case <-again:
		}
	}
}

// keep writes the copy if it differs.
func (k *pullSecretKeeper) keep(ctx context.Context) error {
	k.mu.Lock()
	original, there := k.original, k.copy
	k.mu.Unlock()
	if original == nil || len(original.Data[corev1.DockerConfigJsonKey]) == 0 {
		return nil
	}
	wanted := original.Data[corev1.DockerConfigJsonKey]
	if there != nil && bytes.Equal(there.Data[corev1.DockerConfigJsonKey], wanted) {
		return nil
	}
	if there != nil && there.Type != corev1.SecretTypeDockerConfigJson {
		return fmt.Errorf("writing Secret %s/%s: it is of type %s, which cannot be changed: delete it", k.namespace, api.PullSecretCopy, there.Type)
	}
	if !k.repairs.fill(k.clock.Now()) {
		return fmt.Errorf("writing Secret %s/%s: %w", k.namespace, api.PullSecretCopy, errTooMany)
	}
	copied := applycorev1.Secret(api.PullSecretCopy, k.namespace).
		WithAnnotations(map[string]string{"kubernetes.io/description": api.PullSecretCopyDescription}).
		WithType(corev1.SecretTypeDockerConfigJson).
		WithData(map[string][]byte{corev1.DockerConfigJsonKey: wanted})
	_, err := k.client.Secrets(k.namespace).Apply(ctx, copied, metav1.ApplyOptions{FieldManager: api.FieldManager, Force: true})
	if k.repairs.take(err); err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", k.namespace, api.PullSecretCopy, err)
	}
	return nil
}
