//go:build linux

package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/pkg/node/progress"
)

// reportTimeout is the timeout of a report. The next step of the update waits for it. Steps until the next attempt do not.
const reportTimeout = 5 * time.Second

// tryReport reports the step of the update, unless the last report got no answer and the next attempt is not due. again is the time until the next
// attempt; 0 if only a change of an object requires one.
func (d *Daemon) tryReport(ctx context.Context, s state) (reported *mcfgv1.MachineConfigNode, again time.Duration) {
	if wait := d.nextReport.Sub(d.clock.Now()); wait > 0 {
		return nil, wait
	}
	reported, err := d.report(ctx, s)
	again = d.reports.after(ctx, "reporting the progress failed", err, 0)
	if errors.Is(err, context.DeadlineExceeded) { // an answer delays no step, so the next step may report again
		d.nextReport = d.clock.Now().Add(again)
	}
	return reported, again
}

// report writes the step of the update and the result of staging into the node's MachineConfigNode, which the controller creates. It returns nil
// if the status is the same. The daemon is the only writer of the status, so the patch needs no lock.
func (d *Daemon) report(ctx context.Context, s state) (*mcfgv1.MachineConfigNode, error) {
	before := s.machine.Object
	if before == nil {
		return nil, nil // its creation is an event
	}
	p, err := d.progress(s.node.Object)
	if err != nil {
		return nil, err
	}
	p.Generation = before.Generation
	after := before.DeepCopy()
	now := d.clock.Now().UTC().Truncate(time.Second)
	if p.Desired != "" {
		after.Status = progress.Status(before.Status, p, now)
	}
	if d.staging.config != "" {
		pool.SetStaged(&after.Status.Conditions, d.staging.config, d.staging.failure, now)
	}
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	err = d.client.Status().Patch(ctx, after, client.MergeFrom(before))
	if apierrors.IsNotFound(err) {
		return nil, nil // the deletion is an event
	}
	if err != nil {
		return nil, fmt.Errorf("writing the status of MachineConfigNode %s: %w", d.node, err)
	}
	return after, nil
}

// progress returns how far the update of the node is.
func (d *Daemon) progress(n *corev1.Node) (progress.Progress, error) {
	state, err := d.host.State()
	if err != nil {
		return progress.Progress{}, err
	}
	p := progress.Progress{Step: progress.Preparing, Current: state.Current.Name, Desired: n.Annotations[api.DesiredConfigAnnotation]}
	if pool.IsDegraded(n) {
		p.Failure = n.Annotations[api.NodeReasonAnnotation]
	}
	switch change := state.Change; {
	case change != nil && change.Phase == host.Applied && change.NeedsReboot():
		p.Step = progress.Rebooting
	case p.Current == p.Desired && (pool.IsDone(n) || pool.IsDegraded(n) && !drain.IsRequested(n) && drain.IsAnswered(n)):
		p.Step = progress.Updated // the host may differ from it
	case p.Current == p.Desired && d.attempts.Config != p.Desired:
		p.Step = progress.Resuming
	case n.Annotations[api.DesiredDrainAnnotation] != drain.Before(p.Desired):
	case !drain.IsAnswered(n):
		p.Step = progress.Draining
	default:
		p.Step = progress.Applying
	}
	return p, nil
}

// reader lists and watches the objects of one kind.
type reader[List client.ObjectList] struct {
	client client.WithWatch
	empty  func() List
}

// List implements watch.Client.
func (r reader[List]) List(ctx context.Context, o metav1.ListOptions) (List, error) {
	list := r.empty()
	return list, r.client.List(ctx, list, &client.ListOptions{Raw: &o})
}

// Watch implements watch.Client.
func (r reader[List]) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	return r.client.Watch(ctx, r.empty(), &client.ListOptions{Raw: &o})
}
