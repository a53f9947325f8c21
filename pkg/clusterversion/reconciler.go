// Package clusterversion reconciles the ClusterVersion: it reads which release the cluster shall run, has it retrieved,
// verified and weighed, has it rolled out, and writes what comes of it into the object's status, which nobody else
// writes. A reconcile strings the stages together and returns at once; what takes time runs in the background
// (see Runner) and leaves its results in the reconciler's memory. The memory can be lost at any time: after a restart
// spec, history and the cluster itself say where to go on.
package clusterversion

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
	"github.com/cluster-version/cvo/pkg/upgradeable"
)

// Options are the settings of a Reconciler.
type Options struct {
	// Name of the ClusterVersion.
	Name string
	// Namespace of the operator, where its events are written; default api.OperatorNamespace.
	Namespace string
	// ReleaseImage is the operator's own release.
	ReleaseImage string
	// StatusInterval is the least time between two status writes; default 1 s.
	StatusInterval time.Duration
	// Control tells what administrators control beyond the ClusterVersion, and Preview what an update would do; nil for
	// nothing, both or none.
	Control Control
	Preview Preview
	// Updates tells which updates there are.
	Updates Updates
	// Events returns those about the ClusterVersion that are still there, so that after a restart none is written again;
	// nil for none.
	Events func(ctx context.Context, cv *configv1.ClusterVersion) ([]corev1.Event, error)
	// Metrics count what becomes of releases that are asked for; nil for none.
	Metrics *Metrics
}

// Reconciler reconciles the one ClusterVersion of a cluster.
type Reconciler struct {
	clock    clock.PassiveClock
	client   client.Client
	recorder record.EventRecorder
	runner   Runner
	stages   Stages
	ledger   *ledger
	engine   EngineFor
	changed  func()
	options  Options

	mu     sync.Mutex
	memory memory
}

// memory is what the background has found so far.
type memory struct {
	// acceptKey names the question that is asked, questions counts them. latest is its answer or, while it is asked again
	// about the same release with other settings, the one before.
	acceptKey string
	questions int
	asked     question
	latest    Acceptance
	// generation is that of the ClusterVersion that the preconditions were last asked about.
	generation int64
	// accepted is the release that is rolled out; serial counts those that were.
	accepted *Acceptance
	serial   int
	// resumeFailure is why the release of the history could not be taken up again.
	resumeFailure string
	// planKey names the rollout that progress and settled belong to, planned its release image.
	planKey string
	planned string
	// adds: that rollout is no update, but of what a completed release gives the cluster anew, as for a capability.
	adds     bool
	progress *rollout.Progress
	settled  rollout.Settled
	// another: that rollout is of another release than the one whose passes passer made; restored is what the inventory of
	// a predecessor knows, until a rollout begins with it.
	another  bool
	restored *inventory.Inventory
	passer   *rollout.Passer
	control  controlMemory
	updates  updateMemory
	// story is what has been told of the rollout; said are headlines of what a predecessor of this process told of it.
	story story
	said  map[string]bool
	// written is the resource version of our last status write; older objects in the cache are not looked at.
	written   string
	writtenAt time.Time
	// conflicts counts the status writes in a row that somebody else was faster than.
	conflicts int
	// refusal is what the API server refused of our status last.
	refusal refusal
	// resumed: the rollout is one that a predecessor of this process began, and has not counted as far as that yet.
	resumed bool
}

// New returns a Reconciler. engine makes what rolls out a payload, store keeps what was applied; changed has to bring
// about a reconcile soon, it is called when the background has found something.
func New(
	clk clock.PassiveClock, c client.Client, recorder record.EventRecorder, runner Runner, stages Stages,
	store Store, engine EngineFor, changed func(), options Options,
) *Reconciler {
	if options.Namespace == "" {
		options.Namespace = api.OperatorNamespace
	}
	if options.StatusInterval == 0 {
		options.StatusInterval = time.Second
	}
	r := &Reconciler{
		clock: clk, client: c, recorder: recorder, runner: runner, stages: stages,
		ledger: &ledger{clock: clk, store: store}, engine: engine, changed: changed, options: options,
	}
	r.stages.obstacles = r.findObstacles
	return r
}

// round is one reconcile: what it read, and what its steps found for the steps after.
type round struct {
	// original is the object as read; cv is the copy that steps work on.
	original, cv *configv1.ClusterVersion
	// contended: others write to the object so often that it was read past the cache.
	contended bool
	invalid   field.ErrorList
	target    Target
	settings  Settings
	latest    Acceptance
	accepted  *Acceptance
	serial    int
	progress  *rollout.Progress
	updates   knownUpdates
	obstacles []upgradeable.Obstacle
	control   control
	requeue   time.Duration
}

// within has the next reconcile come not later than that.
func (r *round) within(d time.Duration) {
	if r.requeue == 0 || d < r.requeue {
		r.requeue = d
	}
}

// step is one part of a reconcile.
type step struct {
	name string
	run  func(ctx context.Context, r *round) error
}

// steps is the order of a reconcile. Status comes before the rollout: a rollout starts only once the history, as read
// back from the API server, says what is being rolled out, so that a crash at any moment finds it there.
func (c *Reconciler) steps() []step {
	return []step{
		{"reading what administrators control", c.readControl},
		{"validating the spec", c.validate},
		{"looking for updates", c.lookForUpdates},
		{"choosing the release", c.choose},
		{"reading the settings", c.readSettings},
		{"accepting the release", c.accept},
		{"looking at a release ahead", c.lookAhead},
		{"looking for obstacles", c.lookForObstacles},
		{"writing status", c.writeStatus},
		{"rolling out", c.rollOut},
	}
}

// Reconcile implements reconcile.Reconciler.
func (c *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Name != c.options.Name {
		return reconcile.Result{}, nil
	}
	cv, contended, err := c.read(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if cv.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	if wait := c.stale(cv); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r := &round{original: cv, cv: cv.DeepCopy(), contended: contended}
	for _, step := range c.steps() {
		if err := step.run(ctx, r); err != nil {
			if apierrors.IsConflict(err) {
				c.conflicted()
				return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
			}
			return reconcile.Result{}, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return reconcile.Result{RequeueAfter: r.requeue}, nil
}

// stalePatience is how long the event of our own write may take. A cache that stays behind for longer tells that the cluster
// was set back, as from a backup of etcd.
const stalePatience = 30 * time.Second

// stale is how long to wait for a cache that is behind our own last write, whose event is on the way; 0 if it is not.
func (c *Reconciler) stale(cv *configv1.ClusterVersion) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory.written == "" {
		return 0
	}
	if order, err := resourceversion.CompareResourceVersion(cv.ResourceVersion, c.memory.written); err != nil || order >= 0 {
		return 0
	}
	if wait := stalePatience - c.clock.Since(c.memory.writtenAt); wait > 0 {
		return wait
	}
	c.memory.written = ""
	return 0
}

func (c *Reconciler) validate(_ context.Context, r *round) error {
	r.invalid = validate(r.cv)
	return nil
}

func (c *Reconciler) choose(_ context.Context, r *round) error {
	invalid := r.original.Spec.DesiredUpdate != nil && r.cv.Spec.DesiredUpdate == nil
	if !invalid {
		c.mu.Lock()
		r.cv.Spec.DesiredUpdate = c.memory.control.keepMode(r.cv.Spec.DesiredUpdate, r.cv.Generation, r.control.schema)
		c.mu.Unlock()
	}
	cv, preflight := withoutPreflight(r.cv, c.options.ReleaseImage)
	r.control.preflight = preflight
	r.target = chooseTarget(cv, c.options.ReleaseImage, invalid || cv != r.cv)
	return nil
}

// accept has the target examined in the background, unless that is under way or done, and takes over the result.
func (c *Reconciler) accept(ctx context.Context, r *round) error {
	c.mu.Lock()
	weigh := c.memory.ask(r)
	r.latest = c.memory.latest
	key := c.memory.acceptKey
	if r.latest.Done && (c.memory.accepted == nil || c.memory.accepted.Payload != r.latest.Payload) {
		c.memory.adopt(r.latest)
	}
	r.accepted, r.serial = c.memory.accepted, c.memory.serial
	c.mu.Unlock()
	log := logr.FromContextOrDiscard(ctx)
	c.runner.Start(SlotAccept, key, c.acceptStep(log, key, r.target, r.settings))
	if weigh {
		c.weighAgain()
	}
	if r.accepted != nil && c.stages.Record != nil {
		c.runner.Start(SlotRecord, strconv.Itoa(r.serial), c.record(log, r.original, *r.accepted))
	}
	return nil
}

// ask makes sure that the question of a round is the one that is asked. It reports whether preconditions that have
// refused the release are to be asked again: whatever changed in the spec may be what they were about. What changes while
// they are asked is told them after their answer.
func (m *memory) ask(r *round) (weigh bool) {
	q := newQuestion(r.cv, m.canonical(r.target), r.settings)
	if m.acceptKey != "" && q.sameTarget(m.asked) && q.answeredBy(r.cv, m.asked, m.latest) {
		if !m.latest.answered() {
			return false
		}
		weigh = m.latest.Err != nil && m.latest.loaded() && m.generation != r.cv.Generation
		m.generation = r.cv.Generation
		return weigh
	}
	if m.acceptKey == "" || !q.sameTarget(m.asked) {
		m.latest = Acceptance{}
		q.target = r.target
	}
	m.questions++
	m.acceptKey, m.asked, m.generation = strconv.Itoa(m.questions), q, r.cv.Generation
	return false
}

// weighAgain has a release that preconditions have refused weighed again at once. It is not retrieved, verified or read
// again.
func (c *Reconciler) weighAgain() {
	c.mu.Lock()
	refused := c.memory.latest.Err != nil && c.memory.latest.loaded()
	c.mu.Unlock()
	if refused {
		c.runner.Wake(SlotAccept)
	}
}

// RetrieveAgain has a release that could not be retrieved tried again at once, because what decides about that has changed,
// such as the pull secret. It may be called at any time.
func (c *Reconciler) RetrieveAgain() {
	c.mu.Lock()
	waits := c.memory.latest.Err != nil && c.memory.latest.Step == api.ReasonRetrievePayload || c.memory.resumeFailure != "" && c.memory.accepted == nil
	c.mu.Unlock()
	if waits {
		c.runner.Wake(SlotAccept)
	}
}

// adopt makes an accepted release the one that is rolled out. What was applied of another release stays as long as the
// manifests of this one say the same.
func (m *memory) adopt(a Acceptance) {
	m.accepted, m.planKey, m.progress = &a, "", nil
	m.serial++
}

// canonical names a target as it was named when it was accepted: a tag that was resolved then stays resolved, though
// status names it by digest, and what was forced then needs no force to stay.
func (m *memory) canonical(target Target) Target {
	if !m.latest.Done || (target.Image != m.latest.Image() && target.Image != m.asked.target.Image) {
		return target
	}
	if target.Version == "" || target.Version == m.latest.Payload.Release.Version {
		return m.asked.target
	}
	return target
}

// Retries of an acceptance that failed for reasons that may pass: a registry that is back is noticed within half a minute.
// What preconditions object to is mostly told by an event.
const (
	acceptRetryMin = 2 * time.Second
	acceptRetryMax = 30 * time.Second
	weighRetryMax  = 2 * time.Minute
)

func (c *Reconciler) acceptStep(log logr.Logger, key string, target Target, settings Settings) func(context.Context) Next {
	attempt := 0
	known := c.known(target)
	var refused *Acceptance // by preconditions alone
	return func(ctx context.Context) Next {
		cv := &configv1.ClusterVersion{}
		if err := c.client.Get(ctx, types.NamespacedName{Name: c.options.Name}, cv); err != nil {
			return Next{After: acceptRetryMin}
		}
		in := acceptInput{Stages: c.stages, cv: cv, settings: settings, own: c.options.ReleaseImage, known: known}
		running, missing := c.running(), false
		if running == nil {
			running, missing = c.resume(ctx, log, in, key, target)
		}
		in.running = running
		report := func(a Acceptance) { c.acceptanceChanged(cv, key, a) }
		var a Acceptance
		if refused != nil {
			a = weighAgain(ctx, in, *refused, report)
		} else {
			a = accept(ctx, in, target, report)
		}
		if ctx.Err() != nil {
			return Next{Done: true}
		}
		report(a)
		if a.Err != nil {
			log.Info("release not accepted", "image", target.Image, "step", a.Step, "error", a.Err.Error())
		}
		if a.Done || !missing && !transient(a) {
			return Next{Done: true}
		}
		if a.loaded() && !missing && !a.byTag() { // a tag may lead elsewhere by the next attempt
			refused = &a
		}
		attempt++
		longest := acceptRetryMax
		if refused != nil {
			longest = weighRetryMax
		}
		return Next{After: min(acceptRetryMin<<min(attempt-1, 10), longest)}
	}
}

// known is what is known already of the release that is asked for, nil if nothing.
func (c *Reconciler) known(target Target) *Acceptance {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.memory.latest; a.loaded() && c.memory.asked.target.Image != "" && c.memory.canonical(target).Image == a.Target.Image {
		return &a
	}
	return nil
}

// running is the release that is rolled out, nil before the first of this process.
func (c *Reconciler) running() *Acceptance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory.accepted
}

// resume takes up again what the history says, see resumeTarget, and returns it, nil if there is none. If it
// is missing, because it cannot be had now, it has to be tried again.
func (c *Reconciler) resume(
	ctx context.Context, log logr.Logger, in acceptInput, key string, asked Target,
) (running *Acceptance, missing bool) {
	cv := in.cv
	target, ok := resumeTarget(cv, c.options.ReleaseImage, asked)
	if !ok {
		return nil, false
	}
	in.known = nil
	a := accept(ctx, in, target, func(Acceptance) {})
	if ctx.Err() != nil {
		return nil, true
	}
	c.mu.Lock()
	told := c.memory.resumeFailure == a.Message
	if c.memory.acceptKey == key && a.Done && c.memory.accepted == nil {
		c.memory.adopt(a)
	} else if a.Err != nil {
		c.memory.resumeFailure = a.Message
	}
	c.mu.Unlock()
	if a.Err != nil {
		log.Info("release of the history not taken up again", "image", target.Image, "step", a.Step, "error", a.Err.Error())
		if !told {
			c.emit(cv, []event{warning(failureEvent(a.Step), "%s", a.Message)})
		}
		return nil, true
	}
	c.changed()
	return &a, false
}

// acceptanceChanged stores a result, tells what is new in it, and has it reconciled.
func (c *Reconciler) acceptanceChanged(cv *configv1.ClusterVersion, key string, a Acceptance) {
	c.mu.Lock()
	if c.memory.acceptKey != key {
		c.mu.Unlock()
		return
	}
	before := c.memory.latest
	if before.answered() && a.Err == nil && !a.Done {
		// It is tried or asked again; until there is an answer, the last one stands.
		c.mu.Unlock()
		return
	}
	c.memory.latest = a
	c.mu.Unlock()
	c.options.Metrics.answered(a)
	if !restated(cv, a) {
		c.emit(cv, acceptanceEvents(before, a))
	}
	c.changed()
}

func (c *Reconciler) emit(cv *configv1.ClusterVersion, list []event) {
	// The operator's namespace is where OpenShift's operator writes them.
	regarding := &corev1.ObjectReference{
		APIVersion: configv1.GroupVersion.String(), Kind: "ClusterVersion", Namespace: c.options.Namespace, Name: cv.Name, UID: cv.UID,
	}
	for _, e := range list {
		c.recorder.Event(regarding, e.kind, e.reason, e.message)
	}
}

// rollOut has the accepted release rolled out in the background, in the mode that the history asks for.
func (c *Reconciler) rollOut(ctx context.Context, r *round) error {
	if r.accepted == nil {
		return nil
	}
	if !recorded(r.original.Status, *r.accepted, r.control.schema) {
		return nil // the write of status brings the next reconcile
	}
	mode := modeOf(r.original, r.accepted.Image())
	key, err := planKey(r, mode)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.memory.planKey != key {
		another := c.memory.planned != r.accepted.Image()
		c.memory.resumed = c.memory.planned == "" || c.memory.resumed && !another
		c.memory.another = c.memory.another || another
		c.memory.planKey, c.memory.planned, c.memory.progress = key, r.accepted.Image(), nil
		c.memory.adds = mode == release.Updating && completes(r.original, r.accepted.Image())
		c.memory.settled = c.memory.settled.Restart(another)
	}
	c.mu.Unlock()
	c.runner.Start(SlotRollout, key, c.rolloutStep(logr.FromContextOrDiscard(ctx), key, mode, r))
	return nil
}

// planKey is everything that a rollout depends on.
func planKey(r *round, mode release.Mode) (string, error) {
	overrides, err := json.Marshal(r.cv.Spec.Overrides)
	if err != nil {
		return "", fmt.Errorf("encoding the overrides: %w", err)
	}
	return fmt.Sprintf("%d %s %s %s %t", r.serial, r.accepted.Image(), mode, overrides, asksToPrune(r)), nil
}

// managed returns the manifests that the spec's overrides leave to us.
func managed(a Acceptance, overrides []configv1.ComponentOverride) []*manifest.Manifest {
	if len(overrides) == 0 {
		return a.Payload.Manifests
	}
	filter := a.filter
	filter.Overrides = overrides
	return slices.DeleteFunc(slices.Clone(a.Payload.Manifests), func(m *manifest.Manifest) bool {
		_, excluded := filter.Exclude(m)
		return excluded
	})
}
