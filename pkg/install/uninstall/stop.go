package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/install/target"
)

// stop stops all operators, inside and outside the cluster. It takes the Lease from the leader. An operator that cannot renew the Lease
// stops writing, and confirms this once none of its writes is in progress. If no confirmation arrives, for example from an earlier version
// or a suspended operator, stop waits until the operator's fence has certainly ended.
//
// Then stop scales down the Deployment, repeatedly if needed, because an operator that renews slowly repairs the Deployment while it still
// can. It starts when the operator confirms, or when the operator should have noticed the loss. Before that, the operator would repair the
// Deployment and start pods, only for them to be stopped. A kubelet may wait for the whole grace period of a pod that is stopped while it
// starts.
func (u *remover) stop(ctx context.Context) error {
	if u.removal.DryRun {
		return nil
	}
	logged := ""
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		if err := u.lease.Acquire(ctx); err != nil {
			return false, err
		}
		if u.lease.AwaitsAck() {
			return false, nil
		}
		if err := u.scaleDown(ctx); err != nil {
			return false, err
		}
		pods := &corev1.PodList{}
		if err := u.List(ctx, pods, client.InNamespace(u.removal.Namespace), client.MatchingLabels{target.PodLabel: target.Operator}); err != nil {
			return false, err
		}
		running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return target.IsFinished(&pod) })
		waiting := ""
		switch {
		case len(running) > 0:
			waiting = fmt.Sprintf("waiting for %s to terminate: %s", printable.Count(len(running), "operator pod"), strings.Join(u.whereabouts(running), ", "))
		case u.lease.Fencing():
			holder, until := u.lease.Fenced()
			waiting = fmt.Sprintf("waiting at most until %s for operator %s to confirm that it has stopped writing", until.UTC().Format(time.TimeOnly), holder)
		default:
			return true, nil
		}
		if waiting != logged {
			u.log(waiting)
			logged = waiting
		}
		return false, nil
	})
}

// pollInterval is how often stop checks whether the operator has stopped.
const pollInterval = 250 * time.Millisecond

// whereabouts describes pods by their name and node, with the remedy for a pod that should have terminated.
func (u *remover) whereabouts(pods []corev1.Pod) []string {
	texts := make([]string, len(pods))
	for i, pod := range pods {
		texts[i] = pod.Name
		if pod.Spec.NodeName != "" {
			texts[i] += " on node " + pod.Spec.NodeName
		}
		// The deletion timestamp is the end of the grace period.
		if pod.DeletionTimestamp != nil && u.clock.Now().After(pod.DeletionTimestamp.Add(overdue)) {
			texts[i] += fmt.Sprintf(" (overdue: if the node is off, run 'kubectl -n %s delete pod %s --force')", pod.Namespace, pod.Name)
		}
	}
	return texts
}

// overdue is the time that a kubelet may need to delete a pod after its grace period.
const overdue = 30 * time.Second

func (u *remover) scaleDown(ctx context.Context) error {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: u.removal.Namespace, Name: target.Operator}
	switch err := u.Get(ctx, key, deployment); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case ptr.Deref(deployment.Spec.Replicas, 1) == 0:
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	return client.IgnoreNotFound(u.Patch(ctx, deployment, patch, client.FieldOwner(target.Manager)))
}
