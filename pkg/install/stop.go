package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stop has no operator act any more. The Lease is taken from whoever leads, in the cluster or outside: an operator that
// cannot renew it does not write, and gives its word for that as soon as no write of it is under way; without its word, as
// from one of an earlier version or one that is stopped, it is waited until its fence is closed for certain. Then the
// Deployment is scaled down, again and again if need be, because an operator that renews slowly repairs it while it still
// can. That begins with the word, or when an operator should have noticed: until then it would repair what is done to its
// Deployment, pods would start only to be ended, and a kubelet may wait out the whole grace period of one that is ended
// while it starts.
func (u *remover) stop(ctx context.Context) error {
	if u.removal.DryRun {
		return nil
	}
	if err := u.take(ctx); err != nil {
		return err
	}
	noticed := u.clock.Now().Add(notice)
	said := ""
	return wait.PollUntilContextCancel(ctx, glance, true, func(ctx context.Context) (bool, error) {
		if err := errors.Join(u.renew(ctx), u.hear(ctx)); err != nil {
			return false, err
		}
		if u.fencing() && u.clock.Now().Before(noticed) {
			return false, nil
		}
		if err := u.scaleDown(ctx); err != nil {
			return false, err
		}
		pods := &corev1.PodList{}
		if err := u.List(ctx, pods, client.InNamespace(u.removal.Namespace), client.MatchingLabels{podLabel: Operator}); err != nil {
			return false, err
		}
		waiting := ""
		switch {
		case len(pods.Items) > 0:
			waiting = fmt.Sprintf("waiting for %d pods of the operator to end", len(pods.Items))
		case u.fencing():
			waiting = fmt.Sprintf("waiting until %s, for operator %s to notice that it leads no more", u.fenced.UTC().Format(time.TimeOnly), u.fencedHolder)
		default:
			return true, nil
		}
		if waiting != said {
			u.say(waiting)
			said = waiting
		}
		return false, nil
	})
}

// glance is how often it is looked whether the operator has stopped.
const glance = 250 * time.Millisecond

func (u *remover) scaleDown(ctx context.Context) error {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: u.removal.Namespace, Name: Operator}
	switch err := u.Get(ctx, key, deployment); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case ptr.Deref(deployment.Spec.Replicas, 1) == 0:
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	return client.IgnoreNotFound(u.Patch(ctx, deployment, patch, client.FieldOwner(Manager)))
}
