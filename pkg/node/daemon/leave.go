//go:build linux

package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// leave makes one step toward a host without the node stage. It undoes a pending change, unless the machine has rebooted with it, and waits until the
// cordon is lifted. Then it removes the stage's folder and reports that. The results are those of step.
func (d *Daemon) leave(ctx context.Context, n *corev1.Node) (written *corev1.Node, after time.Duration, err error) {
	state, hasEnded, written, after, err := d.endPending(ctx, n, "")
	if !hasEnded || err != nil {
		return written, after, err
	}
	if released, written, err := d.release(ctx, n, state.Current.Name); !released || err != nil {
		return written, 0, err
	}
	has, err := d.host.HasFolder()
	if err != nil {
		return nil, 0, err
	}
	if has {
		switch err := d.machine.Release(ctx); {
		case errors.Is(err, host.ErrBusy):
			return nil, 0, err
		case err != nil:
			written, err := d.degrade(ctx, n, fmt.Sprintf("releasing the node: %v", err))
			return written, requestRetry.Max, err
		}
		logr.FromContextOrDiscard(ctx).Info("node released", "config", state.Current.Name)
	}
	d.attempts = attempts{} // it was in that folder
	d.drift.unwatch()
	d.drift = drift{}
	written, err = d.annotate(ctx, n, map[string]string{
		api.CurrentConfigAnnotation: "", api.NodeStateAnnotation: api.NodeReleased, api.NodeReasonAnnotation: "",
	})
	return written, 0, err
}

// rejoin creates the stage's folder of a node that is not released. It is missing after a release. A container sees a new folder only after its restart,
// so the error of a read-only host ends the daemon.
func (d *Daemon) rejoin(n *corev1.Node) error {
	if pool.IsReleased(n) {
		return nil
	}
	if err := d.host.MakeFolder(); errors.Is(err, unix.EROFS) {
		return fmt.Errorf("node %s returns to the node stage, so its daemon must restart: %w", n.Name, err)
	}
	return nil
}
