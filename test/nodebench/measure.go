//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/test/process"
)

// quickFile is a file whose change requires nothing, by a node disruption policy. Changes of others require a drain and a reboot.
const (
	quickFile = "/etc/nodebench/quick"
	rollFile  = "/etc/nodebench/roll"
)

// measurement is a measurement in progress.
type measurement struct {
	*testCluster
	timeline   *timeline
	judge      *judge
	controller *process.Process
	slots      int
	// config is the name of the config that all nodes have.
	config string
	result Measurement
	// idle, quick and roll are the phases.
	idle, quick, roll phase
}

type phase struct{ begun, ended time.Time }

// measure measures the stage in a new cluster with so many nodes. dir is a new folder for the files of processes, and hosts one for the hosts of nodes.
func (b *bench) measure(ctx context.Context, nodes int, dir, hosts string) (result Measurement, err error) {
	b.say("%d nodes: starting the control plane", nodes)
	c, err := b.newCluster(ctx, nodes, dir, hosts)
	if err != nil {
		return result, err
	}
	defer c.stop()
	m := &measurement{testCluster: c, timeline: newTimeline(), judge: newJudge(b.options.replicas, b.options.allowed)}
	background, end := context.WithCancel(ctx)
	defer end()
	group, background := errgroup.WithContext(background)
	group.Go(func() error { return c.watchPods(background, m.judge) })
	group.Go(func() error { return c.watchNodes(background, m.timeline) })
	group.Go(func() error { return c.watchPools(background, m.timeline) })
	err = m.run(background, group)
	end()
	if failed := group.Wait(); failed != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = failed
	}
	if err != nil {
		return result, errors.Join(err, c.exited())
	}
	m.result.ControllerMiB = m.controller.Usage().PeakMiB
	m.result.ControllerCPU = m.controller.Usage().CPU
	if b.options.keep != "" {
		err = copyFile(c.env.AuditLog, filepath.Join(b.logs, fmt.Sprintf("audit-%d.log", nodes)))
	}
	return m.result, err
}

// run does the phases. group runs the daemons.
func (m *measurement) run(ctx context.Context, group *errgroup.Group) error {
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"creating nodes and pods", m.populate},
		{"starting the stage", func(ctx context.Context) error {
			group.Go(func() error { return m.runDaemons(ctx) })
			return m.startStage(ctx)
		}},
		{"watching the idle stage", m.watchIdle},
		{"a config that requires neither a drain nor a reboot", func(ctx context.Context) (err error) {
			m.quick, err = m.change(ctx, "50-quick", quickFile)
			return err
		}},
		{"a config that requires a drain and a reboot", func(ctx context.Context) (err error) {
			m.roll, err = m.change(ctx, "60-roll", rollFile)
			return err
		}},
	} {
		begun := time.Now()
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		m.say("%d nodes: %s: %s", len(m.nodes), step.name, time.Since(begun).Round(100*time.Millisecond))
	}
	return m.evaluate()
}

// await waits until a condition holds. It polls rarely enough not to affect the figures.
func (m *measurement) await(ctx context.Context, what string, condition func() (bool, error)) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := condition(); done || err != nil {
			return err
		}
		if err := m.exited(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

func (m *measurement) populate(ctx context.Context) error {
	if err := m.createNodes(ctx); err != nil {
		return err
	}
	if err := m.createApps(ctx); err != nil {
		return err
	}
	err := m.await(ctx, "pods", func() (bool, error) { return m.judge.complete() == len(m.apps), nil })
	if err != nil {
		return err
	}
	return m.await(ctx, "budgets", func() (bool, error) { return m.budgetsKnown(ctx) })
}

// startStage starts the controller, and waits until all nodes have the first config, which is empty.
func (m *measurement) startStage(ctx context.Context) error {
	settings := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	settings.Spec.ManagementState = operatorv1.Managed
	none := []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.NoneSpecAction}}
	settings.Spec.NodeDisruptionPolicy.Files = []operatorv1.NodeDisruptionPolicySpecFile{{Path: quickFile, Actions: none}}
	settings.Spec.NodeDisruptionPolicy.SSHKey.Actions = none
	err := m.client.Create(ctx, settings)
	if err != nil {
		return err
	}
	m.controller, err = m.start("controller", m.cvoNode, "controller", "--kubeconfig", m.env.Kubeconfig, "--release-version", release, "--settle", "1s")
	if err != nil {
		return err
	}
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}
	err = m.await(ctx, "the pool", func() (bool, error) {
		return m.patch(ctx, p, fmt.Sprintf(`{"spec":{"maxUnavailable":%s}}`, quoted(m.options.maxUnavailable))) == nil, nil
	})
	if err != nil {
		return err
	}
	if m.slots, err = pool.MaxUnavailable(p, len(m.nodes)); err != nil {
		return err
	}
	return m.updated(ctx)
}

// quoted returns a number as it is, and anything else as a JSON string.
func quoted(text string) string {
	if json.Valid([]byte(text)) {
		return text
	}
	return fmt.Sprintf("%q", text)
}

// updated waits until all nodes have another config than before, and the stage has written all states of that.
func (m *measurement) updated(ctx context.Context) error {
	p := &mcfgv1.MachineConfigPool{}
	err := m.await(ctx, "the update of the pool", func() (bool, error) {
		if p.Status.Configuration.Name == "" || p.Status.Configuration.Name == m.config || int(p.Status.UpdatedMachineCount) < len(m.nodes) {
			return false, m.client.Get(ctx, client.ObjectKey{Name: api.WorkerPool}, p)
		}
		return m.timeline.updated(p.Status.Configuration.Name) == len(m.nodes), nil
	})
	if err != nil {
		return fmt.Errorf("%w: %d of %d nodes are updated to %q", err, p.Status.UpdatedMachineCount, len(m.nodes), p.Status.Configuration.Name)
	}
	m.config = p.Status.Configuration.Name
	return m.quiet(ctx)
}

// pause is the time without requests after which the stage has nothing left to write.
const pause = 2 * time.Second

// quiet waits until the stage sends no requests besides watches and those for the Lease.
func (m *measurement) quiet(ctx context.Context) error {
	for {
		p := phase{begun: time.Now()}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		p.ended = time.Now()
		events, err := m.env.Audit()
		if err != nil || len(p.of(events)) == 0 {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (m *measurement) watchIdle(ctx context.Context) error {
	m.idle.begun = time.Now()
	err := sleep(ctx, m.options.idle)
	m.idle.ended = time.Now()
	return err
}

// change creates a MachineConfig with a file, and waits until all nodes have it.
func (m *measurement) change(ctx context.Context, name, file string) (p phase, err error) {
	p.begun = time.Now()
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.MachineConfigRoleLabel: api.WorkerPool}}}
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":%q,"contents":{"source":"data:,hello"}}]}}`, file)
	if err := m.client.Create(ctx, mc); err != nil {
		return p, err
	}
	err = m.updated(ctx)
	p.ended = time.Now()
	return p, err
}

// evaluate makes the figures from the records of the phases.
func (m *measurement) evaluate() error {
	events, err := m.env.Audit()
	if err != nil {
		return err
	}
	during := func(p phase) (list []change) {
		for _, c := range m.timeline.since(p.begun) {
			if c.at.Before(p.ended) {
				list = append(list, c)
			}
		}
		return list
	}
	r := &m.result
	r.Nodes, r.Slots, r.Pods, r.Budgets = len(m.nodes), m.slots, len(m.apps)*m.options.replicas, len(m.apps)
	r.Idle = countIdle(events, m.idle)
	quick := during(m.quick)
	r.QuickDone = latencies(durations(quick, quick[len(quick)-1].desired))
	r.Quick = countUpdate(events, m.quick, len(m.nodes))
	var gaps []time.Duration
	gaps, r.SlotsWithheld, r.MostCordoned = slotGaps(during(m.roll), m.timeline.waits, m.config, m.slots)
	r.SlotFilled = latencies(gaps)
	r.Roll, r.RollSeconds = countUpdate(events, m.roll, len(m.nodes)), m.roll.ended.Sub(m.roll.begun).Seconds()
	r.Violations, r.LowestMargin = m.judge.violations, m.judge.lowest
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
