package lead

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/fence"
)

// acknowledgement confirms that this process has stopped writing to an uninstall that has taken the Lease from it. Without the
// confirmation, the uninstall waits until the fence has closed by time.
type acknowledgement struct {
	// leases has no fence, like all requests for the Lease.
	leases         coordinationv1.LeaseInterface
	name, identity string
}

// errUnanswered is the reason why nothing has been confirmed yet.
var errUnanswered = errors.New("a write may still take effect")

// give removes the annotations from the Lease that allow this process to write, if the Lease has them. The fence is closed, and opens again
// only once this process holds the Lease. Until then the confirmation stays true, even if it arrives late.
func (a *acknowledgement) give(ctx context.Context, f *fence.Fence) (given bool, err error) {
	f.Drain(ctx)
	if left, write := f.Effective(); left > 0 {
		return false, fmt.Errorf("%w, for %s: %s", errUnanswered, left.Round(time.Millisecond), write)
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the uninstall renews the Lease in the meantime
		given = false
		lease, err := a.leases.Get(ctx, a.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("reading the Lease: %w", err)
		case ptr.Deref(lease.Spec.HolderIdentity, "") != api.UninstallHolder, lease.Annotations[api.FencedFromAnnotation] != a.identity:
			return nil
		}
		delete(lease.Annotations, api.FencedFromAnnotation)
		delete(lease.Annotations, api.FencedUntilAnnotation)
		_, err = a.leases.Update(ctx, lease, metav1.UpdateOptions{})
		given = err == nil
		return err
	})
	return given, err
}
