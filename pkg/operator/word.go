package operator

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/cluster-version/cvo/pkg/api"
)

// word is what a process tells whoever removes the operator and has taken the Lease from it: that it writes nothing any
// more. Without it the uninstall waits until the fence is closed by time alone.
type word struct {
	// leases are not fenced, like all that is done with the Lease.
	leases         coordinationv1.LeaseInterface
	name, identity string
}

// errUnanswered is why a process does not give its word.
var errUnanswered = errors.New("a write has no answer yet, or ended without one")

// give has the Lease say no longer that this process may still write, if it does. The caller has shut the fence, and opens
// it again only once it holds the Lease: until then the word stays true, whenever it arrives.
func (w *word) give(ctx context.Context, f *fence) (given bool, err error) {
	f.settle(ctx)
	if !f.settled() {
		return false, errUnanswered
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the uninstall renews it meanwhile
		given = false
		lease, err := w.leases.Get(ctx, w.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("reading the Lease: %w", err)
		case ptr.Deref(lease.Spec.HolderIdentity, "") != api.UninstallHolder, lease.Annotations[api.FencedFromAnnotation] != w.identity:
			return nil
		}
		delete(lease.Annotations, api.FencedFromAnnotation)
		delete(lease.Annotations, api.FencedUntilAnnotation)
		_, err = w.leases.Update(ctx, lease, metav1.UpdateOptions{})
		given = err == nil
		return err
	})
	return given, err
}
