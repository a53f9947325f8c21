package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/test/endpoint"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/nodeimage"
	"github.com/cluster-version/cvo/test/operators/actor"
)

const (
	fromVersion = "1.0.0"
	toVersion   = "1.1.0"
)

// demo holds everything that runs.
type demo struct {
	options options
	// dir has the keys, signatures, the payload cache and the logs.
	dir string

	control  *env.Env
	registry *fixture.Registry
	// nodeStage is the pullspec of the node stage's image.
	nodeStage string
	// images are the pullspecs of the releases with digests, by version.
	images   map[string]string
	client   client.WithWatch
	operator *process
	// address is the operator's listening address. serves is a client of it.
	address string
	serves  *serve.Client
	// sent counts the operator's requests in earlier phases.
	sent requests

	teller *storyteller
	// follower follows the cluster. actor plays the platform's operators, and hosts the nodes.
	follower, actor, hosts task
}

// task works in the background until it is stopped.
type task struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func start(work func(context.Context) error) task {
	ctx, cancel := context.WithCancel(context.Background())
	t := task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		_ = work(ctx) // it only ends when canceled; the story lacks what it did not do
	}()
	return t
}

func (t task) stop() {
	if t.cancel != nil {
		t.cancel()
		<-t.done
	}
}

func newDemo(o options) (*demo, error) {
	d := &demo{options: o, images: map[string]string{}, teller: newStoryteller(o.fail)}
	if err := d.findFiles(); err != nil {
		return nil, err
	}
	if err := d.checkFail(); err != nil {
		return nil, err
	}
	var err error
	if d.dir, err = os.MkdirTemp("", "cvo-demo-"); err != nil {
		return nil, fmt.Errorf("creating a folder for the demo: %w", err)
	}
	return d, nil
}

// findFiles looks for the repository files that the demo needs in the working folder and its parents.
func (d *demo) findFiles() error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for filepath.Dir(root) != root {
		if _, err := os.Stat(filepath.Join(root, "examples", "platform")); err == nil {
			break
		}
		root = filepath.Dir(root)
	}
	for _, f := range []struct {
		path     *string
		fallback string
		remedy   string
	}{
		{&d.options.cvo, "bin/cvo", "run `make build`, or name another binary with --cvo"},
		{&d.options.cvoNode, "bin/cvo-node", "run `make demo`, or name another binary with --cvo-node"},
		{&d.options.platforms, "examples/platform", "start the demo inside the repository, or name the folder with --platform"},
	} {
		if *f.path == "" {
			*f.path = filepath.Join(root, filepath.FromSlash(f.fallback))
		}
		if _, err := os.Stat(*f.path); err != nil {
			return fmt.Errorf("looking for %s: %w: %s", f.fallback, err, f.remedy)
		}
	}
	for _, program := range []*string{&d.options.cvo, &d.options.cvoNode} {
		if *program, err = filepath.Abs(*program); err != nil {
			return err
		}
	}
	return nil
}

// checkFail rejects a component without an operator that could fail.
func (d *demo) checkFail() error {
	if d.options.fail == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(d.options.platforms, toVersion, "*", "*clusteroperator.yaml"))
	if err != nil {
		return err
	}
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	if !slices.Contains(names, d.options.fail) {
		return fmt.Errorf("--fail %q: this component has no operator; choose one of: %s", d.options.fail, strings.Join(names, ", "))
	}
	return nil
}

// scene is a part of the demo.
type scene struct {
	name string
	play func(context.Context) error
}

// play plays the demo to its end, or until the update is stuck as intended.
func (d *demo) play(ctx context.Context) error {
	preparation, prepared := errgroup.WithContext(ctx)
	preparation.Go(func() error {
		return d.act(prepared, scene{"control plane", d.startControlPlane})
	})
	preparation.Go(func() error {
		return d.act(prepared, scene{"registry", d.startRegistry}, scene{"signing key", d.makeKey}, scene{"node stage", d.pushNodeStage},
			scene{"release " + fromVersion, d.makeRelease(fromVersion)},
			scene{"release " + toVersion, d.makeRelease(toVersion, "--previous", fromVersion)})
	})
	if err := preparation.Wait(); err != nil {
		return err
	}
	err := d.act(ctx, scene{"cluster", d.prepareCluster}, scene{"nodes", d.startHosts}, scene{"platform operators", d.startActor},
		scene{"version operator", d.startOperator})
	if err != nil {
		return err
	}
	for _, s := range []scene{
		{"installing " + fromVersion, d.await},
		{"deploying an application", d.deploy},
		{"requesting " + toVersion, d.askForUpdate},
		{"updating to " + toVersion, d.await},
	} {
		if err := s.play(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// repair repairs the failed operator and follows the update to its end.
func (d *demo) repair(ctx context.Context) error {
	d.options.fail = ""
	d.teller.update(func(s *story, now time.Time) {
		s.notes = append(s.notes, note{at: now, text: s.failing + " is repaired"})
		s.failing, s.stuck = "", time.Time{}
	})
	d.actor.stop()
	if err := d.startActor(ctx); err != nil {
		return err
	}
	return d.await(ctx)
}

// act plays scenes sequentially and records them in the story.
func (d *demo) act(ctx context.Context, scenes ...scene) error {
	for _, s := range scenes {
		d.teller.update(func(story *story, now time.Time) {
			story.steps = append(story.steps, step{name: s.name, began: now})
		})
		if err := s.play(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		d.teller.update(func(story *story, now time.Time) {
			i := slices.IndexFunc(story.steps, func(done step) bool { return done.name == s.name })
			story.steps[i].ended = now
			story.notes = append(story.notes, note{
				at: now, kind: goodNote, detail: true,
				text: fmt.Sprintf("%s ready after %s", s.name, seconds(now.Sub(story.steps[i].began))),
			})
		})
	}
	return nil
}

func (d *demo) startControlPlane(context.Context) (err error) {
	d.control, err = env.Start(env.Options{Audit: env.AuditNone})
	if err != nil {
		return err
	}
	scheme, err := cluster.NewScheme()
	if err != nil {
		return err
	}
	d.client, err = client.NewWithWatch(d.control.Config("demo"), client.Options{Scheme: scheme})
	return err
}

func (d *demo) startRegistry(context.Context) (err error) {
	d.registry, err = fixture.NewRegistry()
	return err
}

func (d *demo) makeKey(ctx context.Context) error {
	_, err := d.cvo(ctx, "release", "keygen", "--type", "openpgp", "--name", "Example Platform Team", "--out", filepath.Join(d.dir, "keys"))
	return err
}

func (d *demo) trust() string { return filepath.Join(d.dir, "keys", "trust.yaml") }

// tag returns the tag of a pushed release.
func (d *demo) tag(version string) string { return d.registry.Host() + "/platform/release:" + version }

// makeRelease assembles, pushes and signs a release of the example platform.
func (d *demo) makeRelease(version string, more ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := d.cvo(ctx, append([]string{
			"release", "new", "--from-dir", filepath.Join(d.options.platforms, version), "--from-dir", filepath.Join(d.options.platforms, "nodes", version),
			nodeimage.Component + "=" + d.nodeStage, "--name", version, "--no-operator", "--to-image", d.tag(version),
		}, more...)...)
		if err != nil {
			return err
		}
		digest, _, _ := strings.Cut(out, " ")
		d.images[version] = d.registry.Host() + "/platform/release@" + digest
		_, err = d.cvo(ctx, "release", "sign", d.images[version], "--key", filepath.Join(d.dir, "keys", "private.asc"),
			"--store", filepath.Join(d.dir, "keys", "signatures"))
		return err
	}
}

func (d *demo) prepareCluster(ctx context.Context) error {
	_, err := d.cvo(ctx, "install", "--no-operator", "--release-image", d.images[fromVersion], "--trust", d.trust(),
		"--payload-cache", filepath.Join(d.dir, "cache"))
	return err
}

// startActor starts the actor that plays the platform's operators.
func (d *demo) startActor(context.Context) error {
	o := actor.Options{Delay: d.options.delay, Jitter: 1.0 / 3, Seed: 1, WorkloadDelay: d.options.delay / 4, Ignore: []string{api.MachineConfigOperator}}
	if d.options.fail != "" {
		o.Fail = []string{d.options.fail + "@" + toVersion}
	}
	if err := o.Validate(); err != nil {
		return err
	}
	d.actor = start(func(ctx context.Context) error { return actor.Run(ctx, d.control.Config(actor.UserAgent), o) })
	return nil
}

// startOperator starts cvo and follows it.
func (d *demo) startOperator(ctx context.Context) (err error) {
	if d.address, err = freeAddress(ctx); err != nil {
		return err
	}
	d.begin("", fromVersion)
	d.operator, err = d.startProcess(d.options.cvo, d.log(), "start", "--release-image", d.images[fromVersion], "--trust", d.trust(),
		"--payload-cache", filepath.Join(d.dir, "cache"), "--listen", d.address)
	if err != nil {
		return err
	}
	if err := d.untilServed(ctx); err != nil {
		return err
	}
	f := follower{client: d.client, operator: d.serves, teller: d.teller}
	d.follower = start(f.follow)
	return nil
}

// untilServed waits until the operator leads and reports its progress.
func (d *demo) untilServed(ctx context.Context) error {
	for {
		if err := d.operator.running(); err != nil {
			return err
		}
		served, err := endpoint.Connect(ctx, d.control.Config("demo"), api.OperatorNamespace, api.ClusterVersionName, "https://"+d.address)
		if err == nil {
			if _, err = endpoint.Metrics(ctx, served); err == nil {
				d.serves = served
				return nil
			}
		}
		if !pause(ctx, 50*time.Millisecond) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// begin begins a phase.
func (d *demo) begin(from, to string) {
	d.teller.update(func(s *story, now time.Time) { s.phases = append(s.phases, phase{from: from, to: to, began: now}) })
}

// askForUpdate edits the ClusterVersion as an administrator does.
func (d *demo) askForUpdate(ctx context.Context) error {
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: api.ClusterVersionName}}
	if err := d.client.Get(ctx, client.ObjectKeyFromObject(cv), cv); err != nil {
		return err
	}
	d.begin(fromVersion, toVersion)
	d.teller.note(note{kind: commandNote, text: fmt.Sprintf(
		`kubectl patch clusterversion %s --type merge -p '{"spec":{"desiredUpdate":{"version":"%s","image":"%s"}}}'`,
		api.ClusterVersionName, toVersion, d.images[toVersion])})
	patch := client.MergeFrom(cv.DeepCopy())
	cv.Spec.DesiredUpdate = &configv1.Update{Version: toVersion, Image: d.images[toVersion]}
	return d.client.Patch(ctx, cv, patch)
}

// patience is how long a rollout may take before the demo gives up, in addition to the delays of its operators.
const patience = 2 * time.Minute

// await waits until the ClusterVersion reports that the phase is complete and all nodes are updated, or until it is stuck as intended.
func (d *demo) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience+20*d.options.delay)
	defer cancel()
	for {
		story := d.teller.snapshot()
		if !story.current().nodesEnded.IsZero() || !story.stuck.IsZero() {
			break
		}
		if err := d.operator.running(); err != nil {
			return err
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("the rollout takes too long: %w: %w", ctx.Err(), conditionsError(story))
		}
	}
	sent, err := readRequests(ctx, d.serves)
	if err != nil {
		return err
	}
	d.teller.update(func(s *story, _ time.Time) { s.current().requests.add(sent.minus(d.sent)) })
	d.sent = sent
	return nil
}

// conditionsError lists the conditions of the ClusterVersion.
func conditionsError(s story) error {
	var texts []string
	for _, c := range s.conditions {
		texts = append(texts, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Message))
	}
	return errors.New(strings.Join(texts, "; "))
}

// stop ends everything that the demo started and removes its files.
func (d *demo) stop() error {
	var errs []error
	d.follower.stop()
	d.actor.stop()
	d.hosts.stop()
	if d.operator != nil {
		errs = append(errs, d.operator.stop())
	}
	if d.control != nil {
		errs = append(errs, d.control.Stop())
	}
	if d.registry != nil {
		errs = append(errs, d.registry.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

// pause waits. It returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
