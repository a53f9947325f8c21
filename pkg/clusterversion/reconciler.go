// Package clusterversion reconciles the ClusterVersion. It reads the requested release from the spec; has it retrieved, verified, checked
// and rolled out; and writes the result to the status. No other component writes that status.
//
// A reconcile runs its steps in order and returns at once. Slow work runs in the background (see background.Runner) and stores its results
// with their owners: the acceptance, the rollout under way, the search for updates and the control. All of this state can be lost at any
// time. After a restart, the spec, the history and the cluster itself show where to continue.
package clusterversion

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/control"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/clusterversion/ledger"
	"github.com/cluster-version/cvo/pkg/clusterversion/preflight"
	"github.com/cluster-version/cvo/pkg/clusterversion/publish"
	"github.com/cluster-version/cvo/pkg/clusterversion/releasestatus"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/clusterversion/status"
	"github.com/cluster-version/cvo/pkg/clusterversion/updates"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// Options are the settings of a Reconciler.
type Options struct {
	// Name is the name of the ClusterVersion.
	Name string
	// Namespace is the operator's namespace, to which it writes events; default api.OperatorNamespace.
	Namespace string
	// ReleaseImage is the image of the operator's own release.
	ReleaseImage string
	// StatusInterval is the least time between two status writes without an edge, see status.IsEdge; default 1 s.
	StatusInterval time.Duration
	// Control holds requests of administrators that are not in the ClusterVersion. Preview reports what an update would change. Either both
	// are set or both are nil.
	Control control.Object
	Preview preflight.Preview
	// Lookup looks up the images of an update; nil if the operator does not contact registries.
	Lookup preflight.Lookup
	// Updates configures the search for available updates. Metrics counts its requests.
	Updates updates.Options
	// Record stores the ReleaseStatus with the requests and the evidence of each release. If it is nil, nothing is stored.
	Record releasestatus.Object
	// Metrics counts the results of requested releases; nil counts nothing.
	Metrics *Metrics
}

// Reconciler reconciles the one ClusterVersion of a cluster.
type Reconciler struct {
	clock   clock.PassiveClock
	client  client.Client
	emitter event.Emitter
	runner  background.Runner
	stages  accept.Stages
	ledger  *ledger.Ledger
	engine  EngineFor
	changed func()
	options Options

	// subject is the ClusterVersion to which all state belongs. Only Reconcile uses it, and calls of Reconcile do not overlap.
	subject subject

	// The owners of the state. None calls another.
	acceptance *acceptance
	underway   *underway
	updates    *updates.Search
	control    *control.Control
	// record is the ReleaseStatus. publisher writes the status of the ClusterVersion.
	record    *releasestatus.Record
	publisher *publish.Publisher
	// unretrievedAhead: the last preflight could not retrieve its release.
	unretrievedAhead atomic.Bool
}

// New returns a Reconciler. engine makes the engine that rolls out a payload, and store stores the inventory. The Reconciler calls changed
// when the background has a result; changed must trigger a reconcile soon.
func New(
	clk clock.PassiveClock, c client.Client, recorder record.EventRecorder, runner background.Runner, stages accept.Stages,
	store ledger.Store, engine EngineFor, changed func(), options Options,
) *Reconciler {
	if options.Namespace == "" {
		options.Namespace = api.OperatorNamespace
	}
	if options.StatusInterval == 0 {
		options.StatusInterval = time.Second
	}
	options.Updates.Asked = options.Metrics.fetched
	emitter := event.Emitter{Recorder: recorder, Namespace: options.Namespace}
	r := &Reconciler{
		clock: clk, client: c, emitter: emitter, runner: runner, stages: stages,
		ledger: ledger.New(clk, store), engine: engine, changed: changed, options: options,
		acceptance: &acceptance{},
		underway:   &underway{clock: clk},
		updates:    updates.New(clk, runner, changed, options.Updates),
		control:    control.New(clk, options.Control),
		record:     releasestatus.New(clk, options.Record, options.Name, options.Namespace),
		publisher:  publish.New(clk, c, emitter, options.Name, options.StatusInterval),
	}
	r.stages.Obstacles, r.stages.NamesService = r.findObstacles, options.Updates.NamesService()
	if r.record.Stores() {
		r.ledger.Report = r.inventorySaved
	}
	return r
}

// Finish saves what the process would lose at its end. The work of the runner should have ended; otherwise its last results may be missing.
func (c *Reconciler) Finish(ctx context.Context) {
	c.ledger.Finish(ctx, logr.FromContextOrDiscard(ctx))
}

// round is one reconcile: the objects that it read and the results of its steps. A rollout keeps the round in which it was planned.
type round struct {
	// original is the object as read. cv is the copy that the steps change.
	original, cv *configv1.ClusterVersion
	// contended means that cv was read past the cache, because other clients write it too often.
	contended bool
	invalid   field.ErrorList
	target    request.Target
	// installing reports that no release has completed yet.
	installing bool
	// pending says when the request that waits for the first install starts; empty if none waits.
	pending string
	// request is the serial number of the target's request. forced are the digests that were ever forced.
	request  int
	forced   sets.Set[string]
	settings accept.Settings
	latest   accept.Acceptance
	asked    time.Time
	accepted *accept.Acceptance
	// unapplied is the reason why the operator applies nothing, nil if it has an accepted release.
	unapplied *report.Problem
	serial    int
	updates   updates.Known
	// shown is the state of the rollout for all later steps, so that they agree: the rollout continues during a reconcile.
	shown     excerpt
	obstacles []upgradeable.Obstacle
	// schema lists the optional fields of ClusterVersion that the cluster has. preflight is the release to examine without a rollout, nil
	// for none.
	schema    control.Schema
	preflight *request.Target
	requeue   time.Duration
}

// within requeues after at most d; 0 has no effect.
func (r *round) within(d time.Duration) {
	if d > 0 && (r.requeue == 0 || d < r.requeue) {
		r.requeue = d
	}
}

// step is a part of a reconcile.
type step struct {
	name string
	run  func(ctx context.Context, r *round) error
}

// steps returns the steps of a reconcile in order. The status comes before the rollout, because a rollout starts only after the API server
// has confirmed a history with the release. After a crash at any moment, the history names the release.
func (c *Reconciler) steps() []step {
	return []step{
		{"reading the administrator's controls", c.readControl},
		{"reading the record of the last request", c.readRecord},
		{"validating the spec", c.validate},
		{"looking for updates", c.lookForUpdates},
		{"choosing the release", c.choose},
		{"reading the settings", c.readSettings},
		{"accepting the release", c.accept},
		{"starting a preflight", c.startPreflight},
		{"reading the progress of the rollout", c.readProgress},
		{"finding obstacles", c.lookForObstacles},
		{"writing status", c.writeStatus},
		{"rolling out", c.rollOut},
	}
}

// Reconcile implements reconcile.Reconciler.
func (c *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Name != c.options.Name {
		return reconcile.Result{}, nil
	}
	cv, contended, err := c.publisher.Read(ctx)
	switch {
	case apierrors.IsNotFound(err):
		c.stop(ctx, deletedText(req.Name))
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	case !c.workFor(ctx, cv):
		return reconcile.Result{}, nil
	}
	if wait := c.publisher.Behind(cv); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r := &round{original: cv, cv: cv.DeepCopy(), contended: contended}
	steps := c.steps()
	if _, removed := c.publisher.Removed(cv); removed {
		steps = []step{{"restoring the history", c.restoreHistory}}
	}
	for _, step := range steps {
		if err := step.run(ctx, r); err != nil {
			if apierrors.IsConflict(err) {
				c.publisher.Conflicted()
				return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
			}
			return reconcile.Result{}, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return reconcile.Result{RequeueAfter: r.requeue}, nil
}

// restoreHistory writes our last status again. Nothing is decided from a history without the completed releases. The running work continues.
func (c *Reconciler) restoreHistory(ctx context.Context, r *round) error {
	last, _ := c.publisher.Removed(r.original)
	result, err := c.publisher.Write(ctx, publish.Draft{Original: r.original, Contended: r.contended, Status: last})
	if err != nil {
		return err
	}
	r.within(result.Again)
	if result.Object != nil {
		logr.FromContextOrDiscard(ctx).Info("history restored", "releases", len(last.History))
	}
	return nil
}

func (c *Reconciler) validate(_ context.Context, r *round) error {
	r.invalid = request.Validate(r.cv)
	return nil
}

// lookForUpdates starts the requests to the update service in the background and reads the known updates.
func (c *Reconciler) lookForUpdates(ctx context.Context, r *round) error {
	r.updates = c.updates.Look(ctx, r.original, r.schema.AcceptRisks)
	return nil
}

func (c *Reconciler) choose(ctx context.Context, r *round) error {
	invalid := r.original.Spec.DesiredUpdate != nil && r.cv.Spec.DesiredUpdate == nil
	if !invalid {
		r.cv.Spec.DesiredUpdate = c.control.KeepMode(r.cv.Spec.DesiredUpdate, r.cv.Generation, r.schema)
	}
	c.runner.Wake(background.SlotControl) // also for the requests that readControl has applied
	own := c.acceptance.snapshot().Identity.OwnImage(c.options.ReleaseImage)
	cv, target := preflight.Without(r.cv, own)
	r.preflight = target
	r.target = request.Choose(cv, own, invalid || cv != r.cv)
	r.installing = history.Mode(cv, own) == release.Initializing
	c.identify(ctx, r, cv, invalid)
	known := c.acceptance.snapshot()
	if r.installing {
		recorded := !c.record.Stores() || c.record.HasInstall(known.Identity)
		r.target, r.pending = known.Identity.InstallTarget(cv, own, known.Inherited, recorded)
	}
	r.target, r.request = known.Identity.Pin(r.target), known.Identity.Serial()
	return nil
}

// readSettings reads from memory the settings that select the manifests of the cluster.
func (c *Reconciler) readSettings(_ context.Context, r *round) error {
	r.settings = c.stages.Settings()
	return nil
}

// accept starts the examination of the target in the background, unless it is running or done. It adopts the result after the result is
// recorded.
func (c *Reconciler) accept(ctx context.Context, r *round) error {
	question := accept.NewQuestion(r.cv, r.target, r.request, r.settings)
	before, known := c.acceptance.change(func(a accept.Decision) accept.Decision { return a.Ask(question, r.cv, c.clock.Now()) })
	r.latest, r.asked = known.Latest, known.AskedAt
	if news := known.News(); news != nil {
		switch err := c.keepAccepted(ctx, r, *news); {
		case errors.Is(err, releasestatus.ErrChanged):
			r.latest = news.Delayed(err)
		case err != nil:
			r.latest = news.Rejected(err)
			r.within(pendingRetry)
		default:
			c.control.Plan("", "", false)
			c.underway.supersede()
			c.acceptance.change(func(a accept.Decision) accept.Decision { return a.Adopt(*news) })
		}
	}
	_, adopted := c.acceptance.change(func(a accept.Decision) accept.Decision { return a.ExplainIdle(r.latest, c.clock.Now()) })
	r.accepted, r.serial, r.forced, r.unapplied = adopted.Accepted, adopted.Serial, adopted.Identity.ForcedDigests(), unapplied(adopted.Idle, r.original)
	log := logr.FromContextOrDiscard(ctx)
	c.runner.Start(background.SlotAccept, known.Key, c.acceptStep(log, known.Key, r.target, r.settings))
	if known.NeedsRecheck(before) {
		c.recheckPreconditions()
	}
	if r.accepted != nil && c.record.Stores() {
		c.runner.Start(background.SlotRecord, strconv.Itoa(r.serial), c.record.Preserve(log, r.original, r.accepted.Verified))
	}
	return nil
}

// recheckPreconditions immediately repeats the preconditions for a release that they have rejected. It does not retrieve, verify or read
// the release again.
func (c *Reconciler) recheckPreconditions() {
	if c.acceptance.snapshot().Refused() {
		c.runner.Wake(background.SlotAccept)
	}
}

// RetrieveAgain retries at once a release that could not be retrieved, also by a preflight. It is for changes of the inputs
// of a retrieval, such as the pull secret, and may be called at any time.
func (c *Reconciler) RetrieveAgain() {
	if c.acceptance.snapshot().AwaitsRetrievalInputs() {
		c.runner.Wake(background.SlotAccept)
	}
	if c.unretrievedAhead.Load() {
		c.runner.Wake(background.SlotPreflight)
	}
}

// readProgress reads the rollout's progress for the next status.
func (c *Reconciler) readProgress(_ context.Context, r *round) error {
	key := ""
	if r.accepted != nil {
		var err error
		if key, err = planKey(r, status.RolloutMode(r.original.Status, *r.accepted)); err != nil {
			return err
		}
	}
	r.shown = c.underway.report(key, r.original.Status)
	return nil
}

// lookForObstacles finds the obstacles to updates to another minor version. If they have changed since the preconditions rejected a
// release, it has the preconditions checked again at once.
func (c *Reconciler) lookForObstacles(_ context.Context, r *round) error {
	r.obstacles = status.Obstacles(r.cv, c.obstructions(), r.accepted, r.shown.latest, cmp.Or(r.unapplied, r.shown.obstacle))
	if r.latest.Err != nil && !slices.Equal(r.obstacles, r.latest.Obstacles) {
		c.recheckPreconditions()
	}
	return nil
}

// findObstacles returns the obstacles as of the last watch events and the known state of the rollout. It makes no request.
func (c *Reconciler) findObstacles(cv *configv1.ClusterVersion) []upgradeable.Obstacle {
	decision, known := c.acceptance.snapshot(), c.underway.snapshot()
	return status.Obstacles(cv, c.obstructions(), decision.Running(), known.progress, cmp.Or(unapplied(decision.Idle, cv), known.obstacle))
}

// obstructions returns the cluster state that blocks updates to another minor version, as of the last watch events.
func (c *Reconciler) obstructions() upgradeable.Cluster {
	if c.stages.Cluster == nil {
		return upgradeable.Cluster{}
	}
	return c.stages.Cluster()
}

// writeStatus computes the status, writes it if it differs, and emits the events of rollouts that started or ended with it. After a write,
// the round continues with the API server's answer and does not wait for the watch.
func (c *Reconciler) writeStatus(ctx context.Context, r *round) error {
	before, shown := r.original.Status, r.shown
	next, recheck := status.Next(r.cv, status.Observed{
		Invalid: r.invalid, Target: r.target, Latest: r.latest, Asked: r.asked, Pending: r.pending, Accepted: r.accepted, Unapplied: cmp.Or(r.unapplied, shown.obstacle),
		Progress: shown.progress, Forced: r.forced, Unrecorded: c.record.LacksRequest(c.acceptance.snapshot().Identity, r.target),
		Updates: r.updates, Obstacles: r.obstacles, Schema: r.schema, Now: c.clock.Now(),
	})
	r.within(recheck)
	result, err := c.publisher.Write(ctx, publish.Draft{Original: r.original, Contended: r.contended, Status: next, NewRunlevel: shown.newRunlevel})
	if err != nil {
		return err
	}
	r.within(result.Again)
	if result.Object == nil {
		return nil
	}
	c.underway.wrote(shown.reached)
	r.original = result.Object
	news := status.HistoryEvents(before, result.Status)
	for _, e := range news {
		logr.FromContextOrDiscard(ctx).Info("history changed", "event", e.Reason, "message", e.Message)
	}
	c.emitter.Emit(r.original, slices.Concat(news, status.FailingEvents(before, result.Status))...)
	return nil
}

// rollOut starts the rollout of the accepted release in the background, in the mode that follows from the history.
func (c *Reconciler) rollOut(ctx context.Context, r *round) error {
	if r.accepted == nil {
		return nil
	}
	if !status.Recorded(r.original.Status, *r.accepted, r.schema) {
		return nil // the status is not written yet
	}
	mode := status.RolloutMode(r.original.Status, *r.accepted)
	key, err := planKey(r, mode)
	if err != nil {
		return err
	}
	image := r.accepted.Image()
	adds := mode == release.Updating && history.Completes(r.original, image)
	c.control.Plan(key, image, adds)
	c.underway.plan(key, image, adds)
	c.runner.Start(background.SlotRollout, key, c.rolloutStep(logr.FromContextOrDiscard(ctx), key, mode, r))
	return nil
}

// planKey returns a key made from everything that a rollout depends on.
func planKey(r *round, mode release.Mode) (string, error) {
	overrides, err := json.Marshal(r.cv.Spec.Overrides)
	if err != nil {
		return "", fmt.Errorf("encoding the overrides: %w", err)
	}
	return fmt.Sprintf("%d %s %s %s %t", r.serial, r.accepted.Image(), mode, overrides, requestsPruning(r)), nil
}
