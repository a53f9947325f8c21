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
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/operator/rolloutpage"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/endpoint"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/process"
)

// Phases of a run.
const (
	phaseInstall = "install"
	phaseUpdate  = "update"
	phaseRestart = "restart"
	phaseIdle    = "idle"
	phaseDrift   = "drift"
)

// phaseNames returns the phases in order.
func phaseNames() []string {
	return []string{phaseInstall, phaseUpdate, phaseRestart, phaseIdle, phaseDrift}
}

// phaseLimit is the time after which a phase counts as stuck, per thousand manifests and in addition to the operators' delay.
const phaseLimit = 5 * time.Minute

// operation is one cvo on one control plane, from the install to the idle period.
type operation struct {
	*bench
	subject  subject
	scenario scenario
	env      *env.Env
	client   client.WithWatch
	address  string
	served   *serve.Client
	cvo      *process.Process
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
			err = fmt.Errorf("%w; end of its log:\n%s", err, op.cvo.Tail())
		}
		return m, err
	}
	op.stop() // the audit log has open watches only after they end
	m.Phases = op.phases
	if audited {
		err = errors.Join(op.countRequests(m.Phases), op.keepAudit())
	}
	return m, err
}

func (o *operation) stop() {
	if o.cvo != nil {
		o.cvo.Stop()
	}
}

// keepAudit copies the audit log to the other logs if those are kept.
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
	prepare.Env = append(os.Environ(), o.environ()...)
	if out, err := prepare.CombinedOutput(); err != nil {
		return fmt.Errorf("preparing the cluster: %w: %s", err, out)
	}
	operators, err := process.Start(o.logs, "operators", o.environ(), o.operators, "--delay", o.options.delay.String())
	if err != nil {
		return err
	}
	defer operators.Stop()
	for _, phase := range o.plan() {
		profiled := o.startProfile(ctx, o.env, o.subject.name, phase.name)
		if err := phase.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		profiled()
	}
	return nil
}

type phase struct {
	name string
	run  func(context.Context) error
}

// plan returns the phases of a scenario. Without a release to update to, some are omitted.
func (o *operation) plan() []phase {
	if len(o.scenario.releases) == 1 {
		return []phase{{phaseInstall, o.install}, {phaseIdle, o.idle}}
	}
	return []phase{
		{phaseInstall, o.install}, {phaseUpdate, o.update}, {phaseRestart, o.restart}, {phaseIdle, o.idle}, {phaseDrift, o.drift},
	}
}

// first and last return the first and last release of the scenario.
func (o *operation) first() releaseInput { return o.scenario.releases[0] }
func (o *operation) last() releaseInput  { return o.scenario.releases[len(o.scenario.releases)-1] }

// limit returns the time after which a phase counts as stuck.
func (o *operation) limit() time.Duration {
	return time.Duration(1+len(o.last().payload.Manifests)/1000)*phaseLimit + 20*o.options.delay
}

// environ makes a process use the control plane.
func (o *operation) environ() []string { return []string{"KUBECONFIG=" + o.env.Kubeconfig} }

// launch starts cvo as an administrator would do outside of a cluster.
func (o *operation) launch() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o.address = listener.Addr().String()
	if err := listener.Close(); err != nil {
		return err
	}
	o.cvo, err = process.Start(o.logs, "cvo", o.environ(), o.subject.path, "start", "--release-image", o.first().image.ByDigest(),
		"--trust", o.trust, "--payload-cache", filepath.Join(o.env.Dir, "cache"), "--listen", o.address)
	return err
}

// install lasts from the start of the process until the history entry is Completed.
func (o *operation) install(ctx context.Context) error {
	before := o.used()
	p := Phase{Name: phaseInstall, Manifests: len(o.first().payload.Manifests), start: time.Now()}
	if err := o.launch(); err != nil {
		return err
	}
	return o.complete(ctx, p, o.first().payload.Release, before)
}

// update lasts from the edit of the ClusterVersion until Completed.
func (o *operation) update(ctx context.Context) error {
	o.cvo.ResetPeak()
	before := o.used()
	p := Phase{Name: phaseUpdate, Manifests: len(o.last().payload.Manifests), start: time.Now()}
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	edit := fmt.Appendf(nil, `{"spec":{"desiredUpdate":{"image":%q}}}`, o.last().image.ByDigest())
	if err := o.client.Patch(ctx, cv, client.RawPatch("application/merge-patch+json", edit)); err != nil {
		return err
	}
	return o.complete(ctx, p, o.last().payload.Release, before)
}

// complete watches a rollout to its end and waits until the operator has written its last status.
func (o *operation) complete(ctx context.Context, p Phase, rel release.Release, before used) error {
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
	p.use(before, o.used())
	if err := o.settled(ctx); err != nil {
		return err
	}
	p.end = time.Now()
	o.phases = append(o.phases, p)
	return nil
}

// used are the resources that the processes have used so far.
type used struct {
	cvo process.Usage
	// server is the processor time of the control plane.
	server float64
}

// used returns the resources used so far. Before cvo starts, those are the resources of the control plane.
func (o *operation) used() used {
	u := used{server: serverCPU(o.env)}
	if o.cvo != nil {
		u.cvo = o.cvo.Usage()
	}
	return u
}

// use sets the resources that were used during the phase.
func (p *Phase) use(before, after used) {
	p.CPU, p.PeakMiB, p.FileMiB = after.cvo.CPU-before.cvo.CPU, after.cvo.PeakMiB, after.cvo.FileMiB
	p.ServerCPU = after.server - before.server
}

// serverCPU returns the processor time of a control plane so far, in seconds.
func serverCPU(e *env.Env) float64 {
	var sum float64
	for _, pid := range e.Processes() {
		sum += process.UsageOf(pid).CPU
	}
	return sum
}

// restart replaces the process on a cluster without pending work.
func (o *operation) restart(ctx context.Context) error {
	o.cvo.Stop()
	before := used{server: serverCPU(o.env)}
	p := Phase{Name: phaseRestart, Manifests: len(o.last().payload.Manifests), start: time.Now()}
	if err := o.launch(); err != nil {
		return err
	}
	if err := o.settled(ctx); err != nil {
		return err
	}
	p.Seconds = time.Since(p.start).Seconds()
	p.use(before, o.used())
	// The last status write may still be under way. It belongs to this phase, not to the idle one.
	time.Sleep(2 * time.Second)
	p.end = time.Now()
	o.phases = append(o.phases, p)
	return nil
}

func (o *operation) idle(ctx context.Context) error {
	if o.options.idle == 0 {
		return nil
	}
	o.cvo.ResetPeak()
	before := o.used()
	p := Phase{Name: phaseIdle, start: time.Now()}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.options.idle):
	}
	after := o.used()
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

// settled polls the progress of the process until a pass in mode Reconciling is complete. It polls rarely enough not to affect the figures.
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
		case <-o.cvo.Exited:
			return errors.New("cvo has ended")
		case <-tick.C:
		}
	}
}

// passComplete reads the progress of the leading process. Older binaries serve no TLS and are read at their old address. The connection
// stays open, because handshakes would affect the figures.
func (o *operation) passComplete(ctx context.Context) (bool, error) {
	var progress report.Progress
	err := o.ask(ctx, &progress)
	if err != nil {
		o.served = nil
		err = errors.Join(err, o.askPlainly(ctx, &progress))
	}
	return progress.Complete && progress.Mode == release.Reconciling, err
}

func (o *operation) ask(ctx context.Context, progress *report.Progress) (err error) {
	if o.served == nil {
		o.served, err = endpoint.Connect(ctx, o.env.Config("bench"), api.OperatorNamespace, api.ClusterVersionName, "https://"+o.address)
		if err != nil {
			return err
		}
	}
	account, _, err := rolloutpage.Read(ctx, o.served, false, "")
	if err == nil {
		*progress = account.Progress
	}
	return err
}

func (o *operation) askPlainly(ctx context.Context, progress *report.Progress) error {
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
