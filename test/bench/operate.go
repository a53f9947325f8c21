package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/operator"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
	"github.com/cluster-version/cvo/test/env"
)

// The phases of a run.
const (
	phaseInstall = "install"
	phaseUpdate  = "update"
	phaseRestart = "restart"
	phaseIdle    = "idle"
	phaseDrift   = "drift"
)

// phaseNames are the phases in their order.
func phaseNames() []string {
	return []string{phaseInstall, phaseUpdate, phaseRestart, phaseIdle, phaseDrift}
}

// phaseLimit is when a phase counts as stuck, for each thousand manifests and beyond what the operators' delay explains.
const phaseLimit = 5 * time.Minute

// operation is one cvo on one control plane, from install to idle.
type operation struct {
	*bench
	subject  subject
	scenario scenario
	env      *env.Env
	client   client.WithWatch
	address  string
	served   *operator.Client
	cvo      *process
	phases   []Phase
}

// operate measures a cvo binary.
func (b *bench) operate(ctx context.Context, s subject, sc scenario, audited bool) (m Measurement, err error) {
	m.Subject, m.Scenario = s.name, sc.name
	level := env.AuditNone
	if audited {
		level = env.AuditWrites
	}
	e, err := b.cluster(ctx, level, sc)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	op := &operation{bench: b, subject: s, scenario: sc, env: e}
	defer op.stop()
	if err := op.run(ctx); err != nil {
		if op.cvo != nil {
			err = fmt.Errorf("%w; the end of its log:\n%s", err, op.cvo.tail())
		}
		return m, err
	}
	op.stop() // open watches are in the audit log only when they end
	m.Phases = op.phases
	if audited {
		err = errors.Join(op.countRequests(m.Phases), op.keepAudit())
	}
	return m, err
}

func (o *operation) stop() {
	if o.cvo != nil {
		o.cvo.stop()
	}
}

// keepAudit puts the audit log beside the other logs, if those are kept.
func (o *operation) keepAudit() error {
	if o.options.keep == "" {
		return nil
	}
	return os.Link(o.env.AuditLog, filepath.Join(o.logs, fmt.Sprintf("audit-%d.log", time.Now().Unix())))
}

func (o *operation) run(ctx context.Context) error {
	scheme := runtime.NewScheme()
	err := configv1.Install(scheme)
	if err != nil {
		return err
	}
	if o.client, err = client.NewWithWatch(o.env.Config("bench"), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	prepare := exec.CommandContext(ctx, o.subject.path, "install", "--no-operator", "--release-image", o.first().image.ByDigest(), "--trust", o.trust)
	prepare.Env = append(os.Environ(), "KUBECONFIG="+o.env.Kubeconfig)
	if out, err := prepare.CombinedOutput(); err != nil {
		return fmt.Errorf("preparing the cluster: %w: %s", err, out)
	}
	operators, err := o.start(o.env.Kubeconfig, "operators", o.operators, "--delay", o.options.delay.String())
	if err != nil {
		return err
	}
	defer operators.stop()
	for _, phase := range o.plan() {
		if err := phase.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
	}
	return nil
}

type phase struct {
	name string
	run  func(context.Context) error
}

// plan is what happens in a scenario: all of it where there is something to update to.
func (o *operation) plan() []phase {
	if len(o.scenario.releases) == 1 {
		return []phase{{phaseInstall, o.install}, {phaseIdle, o.idle}}
	}
	return []phase{
		{phaseInstall, o.install}, {phaseUpdate, o.update}, {phaseRestart, o.restart}, {phaseIdle, o.idle}, {phaseDrift, o.drift},
	}
}

// first and last are the releases that the scenario begins and ends with.
func (o *operation) first() releaseInput { return o.scenario.releases[0] }
func (o *operation) last() releaseInput  { return o.scenario.releases[len(o.scenario.releases)-1] }

// limit is when a phase counts as stuck.
func (o *operation) limit() time.Duration {
	return time.Duration(1+len(o.last().payload.Manifests)/1000)*phaseLimit + 20*o.options.delay
}

// launch starts cvo as an administrator would outside of a cluster.
func (o *operation) launch() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o.address = listener.Addr().String()
	if err := listener.Close(); err != nil {
		return err
	}
	o.cvo, err = o.start(o.env.Kubeconfig, "cvo", o.subject.path, "start", "--release-image", o.first().image.ByDigest(),
		"--trust", o.trust, "--payload-cache", filepath.Join(o.env.Dir, "cache"), "--listen", o.address)
	return err
}

// install goes from the start of the process to the history entry's Completed.
func (o *operation) install(ctx context.Context) error {
	p := Phase{Name: phaseInstall, Manifests: len(o.first().payload.Manifests), start: time.Now()}
	if err := o.launch(); err != nil {
		return err
	}
	return o.complete(ctx, p, o.first().payload.Release, usage{})
}

// update goes from the edit of the ClusterVersion to Completed.
func (o *operation) update(ctx context.Context) error {
	o.cvo.resetPeak()
	before := o.cvo.usage()
	p := Phase{Name: phaseUpdate, Manifests: len(o.last().payload.Manifests), start: time.Now()}
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	edit := fmt.Appendf(nil, `{"spec":{"desiredUpdate":{"image":%q}}}`, o.last().image.ByDigest())
	if err := o.client.Patch(ctx, cv, client.RawPatch("application/merge-patch+json", edit)); err != nil {
		return err
	}
	return o.complete(ctx, p, o.last().payload.Release, before)
}

// complete watches a rollout to its end, then waits until the operator has said all that it has to say.
func (o *operation) complete(ctx context.Context, p Phase, rel release.Release, before usage) error {
	var accepted time.Time
	version := rel.Version
	err := o.await(ctx, func(cv *configv1.ClusterVersion) bool {
		history := cv.Status.History
		if len(history) == 0 || history[0].Version != version {
			return false
		}
		if accepted.IsZero() {
			accepted = time.Now()
		}
		return history[0].State == configv1.CompletedUpdate
	})
	if err != nil {
		return err
	}
	p.Seconds, p.Rollout = time.Since(p.start).Seconds(), time.Since(accepted).Seconds()
	after := o.cvo.usage()
	p.use(before, after)
	if err := o.settled(ctx); err != nil {
		return err
	}
	p.end = time.Now()
	o.phases = append(o.phases, p)
	return nil
}

// use fills in what the process took during the phase.
func (p *Phase) use(before, after usage) {
	p.CPU, p.PeakMiB, p.FileMiB = after.cpu-before.cpu, after.peakMiB, after.fileMiB
}

// restart replaces the process on a cluster where there is nothing to do.
func (o *operation) restart(ctx context.Context) error {
	o.cvo.stop()
	p := Phase{Name: phaseRestart, Manifests: len(o.last().payload.Manifests), start: time.Now()}
	if err := o.launch(); err != nil {
		return err
	}
	if err := o.settled(ctx); err != nil {
		return err
	}
	p.Seconds = time.Since(p.start).Seconds()
	p.use(usage{}, o.cvo.usage())
	// The last status is on its way; it belongs here and not to idleness.
	time.Sleep(2 * time.Second)
	p.end = time.Now()
	o.phases = append(o.phases, p)
	return nil
}

func (o *operation) idle(ctx context.Context) error {
	if o.options.idle == 0 {
		return nil
	}
	o.cvo.resetPeak()
	before := o.cvo.usage()
	p := Phase{Name: phaseIdle, start: time.Now()}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.options.idle):
	}
	after := o.cvo.usage()
	p.end = time.Now()
	p.Seconds = p.end.Sub(p.start).Seconds()
	p.use(before, after)
	o.phases = append(o.phases, p)
	return nil
}

// await watches the ClusterVersion until the condition holds.
func (o *operation) await(ctx context.Context, condition func(*configv1.ClusterVersion) bool) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit())
	defer cancel()
	for {
		w, err := o.client.Watch(ctx, &configv1.ClusterVersionList{})
		if err != nil {
			return fmt.Errorf("watching ClusterVersion: %w", err)
		}
		for e := range w.ResultChan() {
			if cv, ok := e.Object.(*configv1.ClusterVersion); ok && condition(cv) {
				w.Stop()
				return nil
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for ClusterVersion: %w", ctx.Err())
		}
	}
}

// settled asks the process for its progress until a pass in the mode Reconciling is complete. It looks rarely enough
// not to be seen in the figures.
func (o *operation) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit())
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := o.passComplete(ctx)
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for a complete pass: %w (last answer: %w)", ctx.Err(), err)
		case <-o.cvo.exited:
			return errors.New("cvo has ended")
		case <-tick.C:
		}
	}
}

// passComplete asks the process that leads. A binary from before it served over TLS is asked where it served then. The
// connection is kept: handshakes would be seen in the figures.
func (o *operation) passComplete(ctx context.Context) (bool, error) {
	var progress rollout.Progress
	err := o.ask(ctx, &progress)
	if err != nil {
		o.served = nil
		err = errors.Join(err, o.askPlainly(ctx, &progress))
	}
	return progress.Complete && progress.Mode == release.Reconciling, err
}

func (o *operation) ask(ctx context.Context, progress *rollout.Progress) (err error) {
	if o.served == nil {
		o.served, err = operator.Connect(ctx, o.env.Config("bench"), api.OperatorNamespace, api.ClusterVersionName, "https://"+o.address)
		if err != nil {
			return err
		}
	}
	account, _, err := o.served.Rollout(ctx, false, "")
	if err == nil {
		*progress = account.Progress
	}
	return err
}

func (o *operation) askPlainly(ctx context.Context, progress *rollout.Progress) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.address+"/progress", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(progress)
}
