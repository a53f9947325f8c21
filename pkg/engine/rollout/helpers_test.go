package rollout_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// configMap returns a manifest in the file 0000_<place>.yaml; place "10_a_01" means runlevel 10, component a.
func configMap(t *testing.T, place, name string) *manifest.Manifest {
	t.Helper()
	return parse(t, place, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: %s}}", name))
}

func clusterOperator(t *testing.T, place, name, version string) *manifest.Manifest {
	t.Helper()
	return parse(t, place, fmt.Sprintf("{apiVersion: config.openshift.io/v1, kind: ClusterOperator, metadata: {name: %s}, "+
		"status: {versions: [{name: operator, version: %q}]}}", name, version))
}

func parse(t *testing.T, place, text string) *manifest.Manifest {
	t.Helper()
	list, err := manifest.Parse("0000_"+place+".yaml", []byte(text), manifest.Limits{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func newPlan(t *testing.T, mode release.Mode, manifests ...*manifest.Manifest) *rollout.Plan {
	t.Helper()
	plan, err := rollout.NewPlan(release.Release{Version: "1.1.0"}, manifests, mode)
	require.NoError(t, err)
	return plan
}

// cluster stands in for an API server and its watches. Keys are object names.
type cluster struct {
	// onApply may fail or delay an apply; it is called without the lock.
	onApply func(ctx context.Context, name string) error

	mu      sync.Mutex
	log     []string
	objects map[string]gate.Object
	dropped map[string][]string
	// states contains the objects as metadata watches report them. If unsynced is set, the watches report nothing. If silent is set, they
	// do not report applies. If unserved is set, the server also responds that it does not serve the resource.
	states                     map[string]observe.State
	unsynced, silent, unserved bool
	// unlabeled contains the objects that have lost our label.
	unlabeled map[string]bool
	// version is the latest resource version.
	version int
	// live contains whole objects.
	live map[string]map[string]any
	// liveError is the error from reading whole objects, and onRead is called before each read.
	liveError error
	onRead    func()
	// options contains the options of the last apply, by object.
	options map[string]apply.Options
	// answers replaces the change that Apply returns, by object.
	answers map[string]apply.Change
}

func newCluster() *cluster {
	return &cluster{
		objects: map[string]gate.Object{}, dropped: map[string][]string{}, states: map[string]observe.State{},
		answers: map[string]apply.Change{}, options: map[string]apply.Options{}, live: map[string]map[string]any{},
	}
}

func (c *cluster) Apply(ctx context.Context, m *manifest.Manifest, _ release.Mode, options apply.Options) (apply.Change, error) {
	name := m.Object.GetName()
	c.mu.Lock()
	unknown := c.dropped[name]
	c.options[name] = options
	c.mu.Unlock()
	if options.Strict && len(unknown) > 0 {
		c.note("reject " + name)
		return apply.Change{}, fmt.Errorf("%s: field not declared in schema", unknown[0])
	}
	if c.onApply != nil {
		if err := c.onApply(ctx, name); err != nil {
			c.note("fail " + name)
			return apply.Change{}, err
		}
	}
	c.note("apply " + name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if change, ok := c.answers[name]; ok {
		return change, nil
	}
	if m.Tombstone() {
		delete(c.states, name)
		return apply.Change{Action: apply.Deleted}, nil
	}
	sum := sha256.Sum256([]byte(name))
	fields := ownership.Hash(sum[:16])
	before, there := c.states[name]
	if there && before.Fields == fields && before.Writer == "" { // our fields did not change
		return apply.Change{Action: apply.Applied, UID: before.UID, ResourceVersion: before.ResourceVersion, Generation: before.Generation, Fields: fields, Time: before.Time}, nil
	}
	c.version++
	change := apply.Change{
		Action: apply.Applied, UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(c.version), Generation: before.Generation,
		Fields: fields, Time: time.Now().Unix(), Dropped: c.dropped[name],
	}
	if !there && !c.unlabeled[name] {
		change.Action = apply.Created
	}
	delete(c.unlabeled, name)
	if !c.silent {
		c.states[name] = observe.State{UID: change.UID, ResourceVersion: change.ResourceVersion, Generation: before.Generation, Fields: fields, Time: change.Time}
	}
	return change, nil
}

func (c *cluster) Content(m *manifest.Manifest) ([sha256.Size]byte, error) { return m.Content, nil }

func (c *cluster) Look(_ context.Context, m *manifest.Manifest, _ bool) observe.Look {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsynced {
		return observe.Look{Unserved: c.unserved}
	}
	look := observe.Look{Synced: true, At: fmt.Sprint(c.version)}
	if c.silent {
		look.At = ""
	}
	if state, ok := c.states[m.Object.GetName()]; ok {
		look.State = &state
	}
	return look
}

func (c *cluster) Live(_ context.Context, m *manifest.Manifest) (*unstructured.Unstructured, error) {
	c.note("read " + m.Object.GetName())
	if c.onRead != nil {
		c.onRead()
	}
	return &unstructured.Unstructured{Object: c.live[m.Object.GetName()]}, c.liveError
}

// touch lets another client write an object, which the watch reports.
func (c *cluster) touch(name string, edit func(s *observe.State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.states[name]
	c.version++
	state.ResourceVersion = fmt.Sprint(c.version)
	edit(&state)
	c.states[name] = state
}

// vanish lets another client delete an object.
func (c *cluster) vanish(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	delete(c.states, name)
	delete(c.objects, name)
}

// unlabel lets another client remove our label, so the watch reports a deletion.
func (c *cluster) unlabel(name string) {
	c.vanish(name)
	c.unlabeled = map[string]bool{name: true}
}

func (c *cluster) Precreate(_ context.Context, m *manifest.Manifest) (apply.Change, error) {
	c.note("precreate " + m.Object.GetName())
	return apply.Change{}, nil
}

func (c *cluster) Object(id manifest.ID) gate.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, ok := c.objects[id.Name]; ok {
		return o
	}
	return nil
}

func (c *cluster) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, what)
}

// takeLog returns the actions since its last call, in the order of their completion.
func (c *cluster) takeLog() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	log := c.log
	c.log = nil
	return log
}

// reads returns the number of reads of a whole object since the last call of takeLog, which it calls.
func (c *cluster) reads(name string) int {
	return len(slices.DeleteFunc(c.takeLog(), func(s string) bool { return s != "read "+name }))
}

// position returns the index of an entry in a log, or -1.
func position(log []string, what string) int { return slices.Index(log, what) }

// report sets a ClusterOperator's status: Available, Degraded, and its version.
func (c *cluster) report(name, available, degraded, version string) {
	co := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	co.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		{Type: configv1.OperatorAvailable, Status: configv1.ConditionStatus(available)},
		{Type: configv1.OperatorDegraded, Status: configv1.ConditionStatus(degraded)},
	}
	co.Status.Versions = []configv1.OperandVersion{{Name: "operator", Version: version}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects[name] = co
}

// finish completes a Job.
func (c *cluster) finish(name string) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	job.Status.Succeeded = 1
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: "True"}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects[name] = job
}

func (c *cluster) executor() *rollout.Executor {
	return &rollout.Executor{Clock: clock.RealClock{}, Applier: c, Observer: c, Rand: rand.New(rand.NewPCG(1, 2))}
}

// roll makes a complete pass.
func (c *cluster) roll(t *testing.T, plan *rollout.Plan, settled rollout.Settled) (report.Progress, rollout.Settled) {
	t.Helper()
	progress, next, err := c.executor().Run(t.Context(), plan, settled)
	require.NoError(t, err)
	return progress, next
}

// waitsFor returns the objects with problems and their reasons.
func waitsFor(p report.Progress) string {
	var list []string
	for _, problem := range p.Problems {
		list = append(list, problem.ID.Name+"="+problem.Reason)
	}
	return strings.Join(list, " ")
}
