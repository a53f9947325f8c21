//go:build linux

// Package daemon is the part of the node stage that runs on each node. It follows the requests in the annotations of its MachineConfigNode and
// its Node: it reads and stages the requested MachineConfig, requests a drain, applies the config through package machine, requests that the
// cordon is lifted, and reports the result. The cluster's node disruption policies decide about the drain and the reboot. The state is in the
// Node and on the host, so a restarted daemon continues.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/machine"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// Delays after consecutive failures.
var (
	// requestRetry is the delay after a failed request to the API server.
	requestRetry = backoff.Doubling{First: time.Second, Max: time.Minute}
	// changeRetry is the delay after a change that failed on the host. It is longer, because each attempt drains the node.
	changeRetry = backoff.Doubling{First: time.Minute, Max: time.Hour}
)

// Daemon updates one node.
type Daemon struct {
	client  client.WithWatch
	host    *host.Host
	machine Machine
	clock   clock.Clock
	node    string
	// version is the version of the release that contains the daemon.
	version string

	// policies are the administrator's node disruption policies of the cluster.
	policies operatorv1.NodeDisruptionPolicyConfig
	// attempts is also a record of the host.
	attempts attempts
	// knowsLast reports whether missed has read the last result of a service. It is false again while a service runs that another process has started.
	knowsLast bool
	// trialSince is the time at which this process has first seen the pending change on trial; zero if none is.
	trialSince time.Time
	// staging is the result of the last request to stage a config.
	staging staging
	drift   drift
	// mayRestore is the controller's permission to restore content without a request of an administrator.
	mayRestore bool
	ownDrains  drains

	// reports counts failed reports, and nextReport is the earliest time of the next one after one without an answer.
	reports    retry
	nextReport time.Time
}

// Machine changes the host and reports what it can do, see machine.Machine.
type Machine interface {
	Stage(ctx context.Context, content config.Content) error
	Apply(ctx context.Context, name string, content config.Content, actions []disruption.Action) error
	Resume(ctx context.Context) error
	Undo(ctx context.Context) error
	Confirm(ctx context.Context, name string) error
	LastFailure() machine.Failure
	Release(ctx context.Context) error
	Accepts(ctx context.Context, action disruption.Action) (bool, error)
	Refusal(ctx context.Context, content config.Content, actions []disruption.Action) (string, error)
	Unsupported(content config.Content) string
	ChangesBoot(from, to config.Content) bool
}

// New returns the daemon of a node, from the release with a version. c reads from the API server, without a cache.
func New(c client.WithWatch, h *host.Host, m Machine, clk clock.Clock, node, version string) *Daemon {
	return &Daemon{client: c, host: h, machine: m, clock: clk, node: node, version: version}
}

// state is the newest known state of the node's objects.
type state struct {
	node     watch.Latest[*corev1.Node]
	machine  watch.Latest[*mcfgv1.MachineConfigNode]
	settings *operatorv1.MachineConfiguration
	// hasSynced reports whether the existing objects are known.
	hasSynced bool
}

// settingsName is the name of the MachineConfiguration with the node disruption policies.
const settingsName = "cluster"

// Run follows the Node until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	changes := watch.NewChanges()
	var latest state
	node := watch.NewSingle(reader[*corev1.NodeList]{d.client, func() *corev1.NodeList { return &corev1.NodeList{} }}, &corev1.Node{}, d.node,
		watch.OnState(func(n *corev1.Node) { changes.Record(func() { latest.node.Observe(n) }) }))
	machineNode := watch.NewSingle(reader[*mcfgv1.MachineConfigNodeList]{d.client, func() *mcfgv1.MachineConfigNodeList { return &mcfgv1.MachineConfigNodeList{} }},
		&mcfgv1.MachineConfigNode{}, d.node,
		watch.OnState(func(m *mcfgv1.MachineConfigNode) { changes.Record(func() { latest.machine.Observe(m) }) }))
	settings := watch.NewSingle(reader[*operatorv1.MachineConfigurationList]{d.client, func() *operatorv1.MachineConfigurationList { return &operatorv1.MachineConfigurationList{} }},
		&operatorv1.MachineConfiguration{}, settingsName,
		watch.OnState(func(m *operatorv1.MachineConfiguration) { changes.Record(func() { latest.settings = m }) }))
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("node", d.node))
	d.recall(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		watch.Run(ctx, func() { changes.Record(func() { latest.hasSynced = true }) }, node, machineNode, settings)
		return nil
	})
	group.Go(func() error {
		var steps, stagings retry
		var due <-chan time.Time
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changes.C():
			case <-due:
			case <-d.drift.changed:
				d.drift.expire(d.clock.Now())
			}
			var seen state
			changes.Locked(func() { seen = latest })
			if seen.node.Object == nil || !seen.hasSynced {
				continue // the Node is deleted, or not there yet
			}
			d.policies = operatorv1.NodeDisruptionPolicyConfig{}
			if seen.settings != nil {
				d.policies = seen.settings.Spec.NodeDisruptionPolicy
			}
			if err := d.rejoin(seen.node.Object); err != nil {
				return err
			}
			d.mayRestore = seen.machine.Object != nil && seen.machine.Object.Annotations[api.RestoreAnnotation] == "true"
			if pool.IsReleased(seen.node.Object) {
				seen.machine.Object = nil // there is nothing to stage and to report
			}
			stageAgain, err := d.stage(ctx, seen.machine.Object)
			stageAgain = stagings.after(ctx, "staging failed", err, stageAgain)
			report := func() (again time.Duration) {
				reported, again := d.tryReport(ctx, seen)
				if reported != nil {
					changes.Locked(func() { latest.machine.Wrote(seen.machine, reported) })
					seen.machine.Object = reported
				}
				return again
			}
			reportAgain := report()
			written, after, err := d.step(ctx, seen.node.Object)
			if errors.Is(err, machine.ErrRebooting) {
				err, reportAgain = nil, report() // there may be no later step in this boot
				d.drift.unwatch()                // what the change has written needs none
			}
			if written != nil {
				changes.Record(func() { latest.node.Wrote(seen.node, written) })
			}
			due = nil
			if after := first(steps.after(ctx, "following the node failed", err, after), reportAgain, stageAgain); after > 0 {
				due = d.clock.After(after)
			}
		}
	})
	return group.Wait()
}

// first returns the shortest of delays, of which 0 is none.
func first(delays ...time.Duration) time.Duration {
	delays = slices.DeleteFunc(delays, func(d time.Duration) bool { return d == 0 })
	if len(delays) == 0 {
		return 0
	}
	return slices.Min(delays)
}

// retry counts consecutive failures of a request. A failure of one kind of request does not delay another.
type retry struct{ failures int }

// after returns the delay before the next attempt: the usual one, 0 for none, or one that grows with the failures. It logs an error with a message,
// unless the process ends, as in each reboot.
func (r *retry) after(ctx context.Context, message string, err error, usual time.Duration) time.Duration {
	if err == nil {
		r.failures = 0
		return usual
	}
	r.failures++
	after := requestRetry.After(r.failures)
	if ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Error(err, message, "retry", after.String())
	}
	return after
}

// step makes one step toward the desired config. Its error is machine.ErrRebooting if the machine reboots. written is the Node if the step has
// changed it. after is the time until the next step; 0 if only a change of the Node requires one.
func (d *Daemon) step(ctx context.Context, n *corev1.Node) (written *corev1.Node, after time.Duration, err error) {
	if n.Annotations[api.NodeStateAnnotation] != "" && n.Annotations[api.DaemonReleaseAnnotation] != d.version {
		written, err := d.annotate(ctx, n, map[string]string{}) // while a drain lasts, there may be no other write
		return written, 0, err
	}
	if pool.IsReleased(n) {
		return d.leave(ctx, n)
	}
	desired := n.Annotations[api.DesiredConfigAnnotation]
	if desired != "" && n.Annotations[api.NodeStateAnnotation] == api.NodeReleased {
		return nil, 0, nil // it is that of before the release, and the controller removes it
	}
	state, hasEnded, written, after, err := d.endPending(ctx, n, desired)
	if !hasEnded || err != nil {
		return written, after, err
	}
	d.trialSince = time.Time{}
	d.missed(ctx, state, desired)
	current, rolledBack := state.Current, state.RolledBack
	isRequested := d.isRetryRequested(n, desired)
	if rolledBack.Config != "" && (rolledBack.Config != desired || isRequested) {
		if err := d.host.ForgetRollBack(); err != nil {
			return nil, 0, err
		}
		rolledBack = host.RolledBack{}
	}
	isCurrent := desired == "" || desired == current.Name
	var compareAgain time.Duration
	if isCurrent && (isRequested || d.attempts.Config != "" || rolledBack.Config != "" || d.mayRestore) {
		compareAgain = d.compare(ctx, state)
	}
	next := d.attempts
	if isRequested {
		next = attempts{Counted: d.attempts.Counted, Retried: retryID(n), Config: desired, Replaces: true}
		logr.FromContextOrDiscard(ctx).Info("retrying on request", "config", desired)
	} else if isCurrent && d.attempts.Config == "" && rolledBack.Config == "" {
		required, again, err := d.ownRestore(ctx, n, state)
		if err != nil {
			return nil, 0, err
		}
		compareAgain = first(compareAgain, again)
		if required != nil {
			if required.Drain {
				d.ownDrains.add(d.clock.Now())
			}
			next = d.attempts.none()
			next.Config, next.Replaces = desired, true
			logr.FromContextOrDiscard(ctx).Info("restoring the content", "config", desired)
		}
	}
	if isCurrent && d.drift.reason == "" {
		next = next.none()
		if rolledBack.Config != "" { // of an attempt to restore the content
			if err := d.host.ForgetRollBack(); err != nil {
				return nil, 0, err
			}
			rolledBack = host.RolledBack{}
		}
	}
	d.save(ctx, next)
	switch {
	case rolledBack.Config != "":
		written, err := d.reportRollBack(ctx, n, current.Name, rolledBack.Reason)
		return written, compareAgain, err
	case isCurrent && d.attempts.Config != desired, desired == "":
		written, after, err = d.settle(ctx, n, state)
	default:
		written, after, err = d.update(ctx, n, current, desired)
	}
	return written, first(after, compareAgain), err
}

// reportRollBack reports that the guard has undone the desired config. The node serves with its former config. Only another desired config or a
// request of an administrator starts an update.
func (d *Daemon) reportRollBack(ctx context.Context, n *corev1.Node, current, reason string) (*corev1.Node, error) {
	text := fmt.Sprintf("the node returned to its former config: %s. Change or delete the MachineConfig that causes this, or repair the node and run 'cvo nodes retry %s'",
		reason, n.Name)
	if written, err := d.degrade(ctx, n, text); written != nil || err != nil {
		return written, err
	}
	_, written, err := d.release(ctx, n, current)
	return written, err
}

// endPending calls end if a change is pending. hasEnded is true once none is, and state is the host's then. The other results are those of step.
func (d *Daemon) endPending(ctx context.Context, n *corev1.Node, desired string) (state host.State, hasEnded bool, written *corev1.Node, after time.Duration, err error) {
	state, err = d.host.State()
	if state.Change == nil || err != nil {
		return state, err == nil, nil, 0, err
	}
	switch err := d.end(ctx, *state.Change, desired); {
	case errors.Is(err, machine.ErrRebooting):
		return state, false, nil, requestRetry.Max, err
	case errors.Is(err, host.ErrBusy), errors.Is(err, errUnreachable):
		return state, false, nil, 0, err
	case errors.Is(err, errOnTrial):
		written, err := d.reportLateGuard(ctx, n, state.Change.To.Name)
		return state, false, written, trialInterval, err
	case err != nil:
		if state.Change.To.Name == desired {
			d.fail(ctx, desired, api.NodeDegraded, err.Error())
		}
		written, err := d.degrade(ctx, n, err.Error())
		return state, false, written, requestRetry.Max, err
	}
	state, err = d.host.State()
	return state, err == nil, nil, 0, err
}

// end ends the change that an earlier process has left: it completes a change to the desired config, and undoes any other. If the machine has
// rebooted with another config, end confirms that, because the undo would need another reboot before the update to the desired config.
func (d *Daemon) end(ctx context.Context, change host.Change, desired string) error {
	boot, err := d.host.Boot()
	if err != nil {
		return err
	}
	hasRebooted := change.Phase == host.Applied && change.NeedsReboot() && !change.AwaitsReboot(boot)
	if change.To.Name == desired && change.IsOnTrial() {
		return errOnTrial
	}
	if change.To.Name == desired || hasRebooted {
		err := d.machine.Resume(ctx)
		if err == nil {
			return d.confirm(ctx, change.To.Name)
		}
		isObsolete := errors.Is(err, machine.ErrDiffers) && change.To.Name != desired
		if !errors.Is(err, host.ErrUndoing) && !isObsolete {
			return err
		}
	}
	if err := d.machine.Undo(ctx); err != nil {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("change undone", "config", change.To.Name, "paths", pathsOf(change))
	return nil
}

// settle reports that the node runs its desired config, once the cordon is lifted, or how the host differs from it. The results are those of step.
func (d *Daemon) settle(ctx context.Context, n *corev1.Node, s host.State) (written *corev1.Node, after time.Duration, err error) {
	if released, written, err := d.release(ctx, n, s.Current.Name); !released || err != nil {
		return written, 0, err
	}
	after = d.compare(ctx, s)
	state := api.NodeDone
	if d.drift.reason != "" {
		state = api.NodeDegraded
	}
	written, err = d.annotate(ctx, n, map[string]string{
		api.CurrentConfigAnnotation: s.Current.Name, api.NodeStateAnnotation: state, api.NodeReasonAnnotation: excerpt(d.drift.reason),
	})
	return written, after, err
}

// release requests that the cordon is lifted, if the daemon has requested a drain. released is true once the node has no cordon of ours.
func (d *Daemon) release(ctx context.Context, n *corev1.Node, current string) (released bool, written *corev1.Node, err error) {
	switch {
	case drain.IsRequested(n):
		written, err = d.annotate(ctx, n, map[string]string{api.DesiredDrainAnnotation: drain.EndOf(current)})
		return false, written, err
	case !drain.IsAnswered(n):
		return false, nil, nil // the controller's answer is an event
	}
	return true, nil, nil
}

// update changes the host to the desired config once the node is drained. If that is the current one, it restores its content.
func (d *Daemon) update(ctx context.Context, n *corev1.Node, current host.Config, desired string) (written *corev1.Node, after time.Duration, err error) {
	if d.attempts.Config == desired {
		if after := d.attempts.wait(d.clock.Now()); after > 0 {
			written, err := d.explain(ctx, n, d.attempts.State, d.attempts.Reason)
			if written == nil && err == nil {
				_, written, err = d.release(ctx, n, current.Name)
			}
			return written, after, err
		}
	}
	wanted := drain.Before(desired)
	isRequested := n.Annotations[api.DesiredDrainAnnotation] == wanted
	if isRequested && !drain.IsAnswered(n) {
		return nil, 0, nil // the controller's answer is an event
	}
	content, err := d.load(ctx, desired)
	switch {
	case isTransient(err):
		return nil, 0, err
	case errors.Is(err, errNotStaged), errors.Is(err, errUnsupported):
		return d.giveUp(ctx, n, desired, err)
	case err != nil:
		return d.refuse(ctx, n, desired, err)
	}
	decision, err := d.decide(ctx, current, desired, content)
	if reason, ok := errors.AsType[obstacle](err); ok {
		return d.refuse(ctx, n, desired, reason)
	}
	if err != nil {
		return nil, 0, err
	}
	if decision.Drain && !isRequested {
		reason := ""
		if d.attempts.Config == desired {
			reason = n.Annotations[api.NodeReasonAnnotation] // the pool counts the failure until the attempt has ended
		}
		written, err := d.annotate(ctx, n, map[string]string{
			api.NodeStateAnnotation: api.NodeWorking, api.NodeReasonAnnotation: reason, api.DesiredDrainAnnotation: wanted,
		})
		return written, 0, err
	}
	switch err := d.apply(ctx, desired, content, decision.Actions); {
	case errors.Is(err, machine.ErrRebooting):
		logr.FromContextOrDiscard(ctx).Info("rebooting", "config", desired)
		return nil, requestRetry.Max, err
	case errors.Is(err, host.ErrBusy):
		d.knowsLast = false
		return nil, 0, err
	case errors.Is(err, errOnTrial):
		return nil, trialInterval, nil
	case err != nil:
		return d.giveUp(ctx, n, desired, err)
	}
	state, err := d.host.State()
	if err != nil {
		return nil, 0, err
	}
	return d.settle(ctx, n, state)
}

// refuse reports why the node keeps its current config for now. If a drain is requested, for this config or a former target, that counts as a failed
// attempt: the cordon is lifted next, and another drain waits.
func (d *Daemon) refuse(ctx context.Context, n *corev1.Node, desired string, reason error) (written *corev1.Node, after time.Duration, err error) {
	if drain.IsRequested(n) {
		return d.giveUp(ctx, n, desired, reason)
	}
	written, err = d.degrade(ctx, n, reason.Error())
	return written, requestRetry.Max, err
}

// giveUp reports that a config cannot be applied to the host. Unless the undo failed, the cordon is lifted next.
func (d *Daemon) giveUp(ctx context.Context, n *corev1.Node, name string, reason error) (written *corev1.Node, after time.Duration, err error) {
	state := api.NodeDegraded
	if errors.Is(reason, errUnsupported) {
		state = api.NodeUnreconcilable
	}
	d.fail(ctx, name, state, reason.Error())
	written, err = d.explain(ctx, n, state, reason.Error())
	return written, time.Nanosecond, err
}

// obstacle is a reason not to update the host yet: it differs from its config, cannot be compared with it, or its init system does not answer or
// refuses an action.
type obstacle string

func (o obstacle) Error() string { return string(o) }

// decide compares the host before an update, and returns what the policies require. They require nothing of a host without a config that already
// has the new content. An error may be an obstacle. If an administrator requested that, what differs is no obstacle: they decide about that, too.
func (d *Daemon) decide(ctx context.Context, current host.Config, desired string, content config.Content) (decision disruption.Decision, err error) {
	own, err := d.host.Content(current)
	if err != nil {
		return decision, err
	}
	expected := own
	if current.Name == "" {
		expected = content
	}
	found, err := d.host.Verify(expected)
	switch {
	case err != nil:
		return decision, obstacle(err.Error())
	case current.Name == "" && len(found) == 0 && !d.machine.ChangesBoot(own, content):
		return decision, nil
	case d.attempts.Config == desired && d.attempts.Replaces:
		own = host.Without(own, found)
	case current.Name != "" && len(found) > 0:
		return decision, obstacle(d.difference(current.Name, found))
	}
	if decision, err = d.disruption(ctx, own, content); err != nil {
		return decision, err
	}
	switch refusal, err := d.machine.Refusal(ctx, content, decision.Actions); {
	case err != nil:
		return decision, obstacle(err.Error())
	case refusal != "":
		return decision, obstacle(refusal)
	}
	return decision, nil
}

// disruption returns what the policies require for a change of the content. An error is an obstacle.
func (d *Daemon) disruption(ctx context.Context, from, to config.Content) (disruption.Decision, error) {
	policies, err := disruption.ForHost(d.policies, func(a disruption.Action) (bool, error) { return d.machine.Accepts(ctx, a) })
	if err != nil {
		return disruption.Decision{}, obstacle(err.Error())
	}
	return disruption.Decide(config.Difference(from, to), policies), nil
}

func (d *Daemon) apply(ctx context.Context, name string, content config.Content, actions []disruption.Action) error {
	if err := d.machine.Apply(ctx, name, content, actions); err != nil {
		return err
	}
	return d.confirm(ctx, name)
}

const (
	// trialInterval is the time between two looks at the trial of a change.
	trialInterval = 5 * time.Second
	// trialLimit is how long a change may be on trial before the Node reports Degraded. By default, a guard decides within 30 minutes.
	trialLimit = 35 * time.Minute
)

var (
	// errOnTrial means that the guard has not accepted the change yet. If it does not, it undoes the change.
	errOnTrial = errors.New("the change is on trial")
	// errUnreachable means that the node did not reach the API server after a change without a reboot.
	errUnreachable = errors.New("confirming the change needs the API server")
)

// confirm makes the applied change current. If services were restarted for it, the guard must accept the change before, and the node must reach the API
// server: all that the daemon knows of the cluster may be older than the change. After a reboot, it is not.
func (d *Daemon) confirm(ctx context.Context, name string) error {
	change, _, err := d.host.Pending()
	if err != nil {
		return err
	}
	log := logr.FromContextOrDiscard(ctx)
	if change.IsOnTrial() {
		log.Info("config on trial", "config", name)
		return errOnTrial
	}
	if change.Ran {
		// A list, because the daemon has no permission to get its Node.
		if err := d.client.List(ctx, &corev1.NodeList{}, client.MatchingFields{metav1.ObjectNameField: d.node}); err != nil {
			return fmt.Errorf("%w: %w", errUnreachable, err)
		}
	}
	if err := d.machine.Confirm(ctx, name); err != nil {
		return err
	}
	log.Info("config applied", "config", name, "paths", pathsOf(change))
	d.save(ctx, d.attempts.none())
	d.drift.unwatch()
	d.drift = drift{at: d.drift.at, changes: d.drift.changes} // the rest is that of before
	return nil
}

// reportLateGuard reports that the guard has not judged a change on trial in time, for example because its service does not run.
func (d *Daemon) reportLateGuard(ctx context.Context, n *corev1.Node, name string) (written *corev1.Node, err error) {
	now := d.clock.Now()
	if d.trialSince.IsZero() {
		d.trialSince = now
	}
	if now.Sub(d.trialSince) < trialLimit {
		return nil, nil
	}
	return d.degrade(ctx, n, fmt.Sprintf("%s has neither accepted nor undone MachineConfig %s for %s. Run 'systemctl status %[1]s' on node %[4]s, and start the service if it does not run",
		config.GuardUnit, name, trialLimit, n.Name))
}

// loggedPaths is the maximum number of paths in a line of the log.
const loggedPaths = 20

// pathsOf returns the changed paths as a text.
func pathsOf(change host.Change) string {
	paths := make([]string, len(change.Steps))
	for i, step := range change.Steps {
		paths[i] = step.Path
	}
	return printable.List(paths, loggedPaths)
}

// degrade reports that the daemon cannot apply the desired config, with the reason.
func (d *Daemon) degrade(ctx context.Context, n *corev1.Node, reason string) (*corev1.Node, error) {
	return d.explain(ctx, n, api.NodeDegraded, reason)
}

// explain writes a state that needs a reason.
func (d *Daemon) explain(ctx context.Context, n *corev1.Node, state, reason string) (*corev1.Node, error) {
	written, err := d.annotate(ctx, n, map[string]string{
		api.NodeStateAnnotation: state, api.NodeReasonAnnotation: excerpt(reason),
	})
	if written != nil {
		logr.FromContextOrDiscard(ctx).Info("node degraded", "config", n.Annotations[api.DesiredConfigAnnotation], "reason", reason)
	}
	return written, err
}

// excerpt returns as much of a reason as an annotation may have.
func excerpt(reason string) string { return printable.Excerpt(reason, api.NodeReasonText) }

// annotate writes those annotations of the Node that differ. It returns nil if none does. The daemon is the only writer of its annotations,
// so the patch needs no lock.
func (d *Daemon) annotate(ctx context.Context, n *corev1.Node, annotations map[string]string) (*corev1.Node, error) {
	annotations[api.DaemonReleaseAnnotation] = d.version
	for key, value := range annotations {
		if n.Annotations[key] == value {
			delete(annotations, key)
		}
	}
	if len(annotations) == 0 {
		return nil, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return nil, err
	}
	written := n.DeepCopy()
	err = d.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		return nil, nil // the deletion is an event
	}
	if err != nil {
		return nil, fmt.Errorf("writing the annotations of node %s: %w", n.Name, err)
	}
	return written, nil
}
