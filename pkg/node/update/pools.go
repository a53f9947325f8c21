package update

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/controlplane"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/job"
	"github.com/cluster-version/cvo/pkg/node/kubelet"
	"github.com/cluster-version/cvo/pkg/node/policy"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// pools renders and assigns the configs of all pools.
type pools struct {
	client   client.Client
	clock    clock.PassiveClock
	recorder record.EventRecorder
	options  Options

	// sources are the MachineConfigs of each pool, as they were last seen, and their result.
	sources map[string]*sources
	// These are versions that the cache may not show yet.
	writtenNodes    watch.Written[*corev1.Node]
	writtenPools    watch.Written[*mcfgv1.MachineConfigPool]
	writtenMachines watch.Written[*mcfgv1.MachineConfigNode]
	writtenPolicies watch.Written[*api.NodeRolloutPolicy]

	durations durations

	planner *planner
	guard   *controlplane.Guard
	access  *access
	// nextPlan is the earliest time of the next plan.
	nextPlan time.Time
	// hasIdle reports whether the last plan left a slot empty although nodes wait, or a plan is being made.
	hasIdle atomic.Bool

	queries *queries
	jobs    *job.Watcher
	checks  checks
	// checksHealth reports whether a policy checks the health of nodes.
	checksHealth atomic.Bool
}

// sources identifies the MachineConfigs of a pool, and the result of rendering them. Every change of a Node needs the result, and rendering is
// slow.
type sources struct {
	key   string
	image string
	since time.Time
	// failure is the reason why they cannot be rendered; empty if they can or have not been rendered.
	failure string
	// config is the pool's config as it was written, and version the resource version of the rendered MachineConfig. If both are the same now,
	// there is nothing to render.
	config  mcfgv1.MachineConfigPoolStatusConfiguration
	version string
}

func newPools(c client.Client, guard *controlplane.Guard, clk clock.PassiveClock, recorder record.EventRecorder, o Options) *pools {
	return &pools{
		client: c, clock: clk, recorder: recorder, options: o, planner: newPlanner(),
		guard:   guard,
		access:  newAccess(c),
		sources: map[string]*sources{},
		queries: newQueries(o.Metrics, clk),
		jobs:    job.NewWatcher(o.Pod.Namespace, clk),
	}
}

// Reconcile implements reconcile.Reconciler. It ignores the request.
func (r *pools) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	all, err := r.pools(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var configs mcfgv1.MachineConfigList
	if err := r.client.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing MachineConfigs: %w", err)
	}
	var kubelets mcfgv1.KubeletConfigList
	if err := r.client.List(ctx, &kubelets, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing KubeletConfigs: %w", err)
	}
	if created, err := r.createBuiltIn(ctx, all, nodes); created || err != nil {
		return reconcile.Result{}, err // their creation is an event
	}
	other, err := cluster.OtherRelease(ctx, r.client, r.options.Release)
	if err != nil {
		return reconcile.Result{}, err
	}
	policies, err := r.policies(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	members := pool.Assign(all, nodes)
	rollouts := make([]*rollout, len(all))
	pending := kubelet.NewPending(kubelets.Items, configs.Items, r.options.Version)
	for i, p := range all {
		rollouts[i] = &rollout{pool: p, nodes: members.Nodes[p.Name], policy: policies[p.Name]}
		if other != "" || pending.Of(p) != "" {
			rollouts[i].renderError = pool.Message(p, mcfgv1.MachineConfigPoolRenderDegraded) // until the MachineConfigs are rendered again
			continue
		}
		o := rollouts[i]
		o.wait, o.renderError, o.err = r.render(ctx, p, configs.Items, o.policy)
		o.isRendered = o.wait == 0 && o.renderError == "" && o.err == nil
	}
	// Before nodes get a config, their daemons must be able to read it.
	usage := pool.NewUsage(configs.Items, all, nodes)
	controlPlane, others := usage.Used()
	refusals := map[string]string{}
	var failures []error
	conflicts, err := r.release(ctx, nodes)
	if err != nil {
		failures = append(failures, err) // the pools do not wait for a node whose write is refused
	}
	for _, reader := range []struct {
		role    string
		configs []string
	}{{api.ControlPlaneConfigReader, controlPlane}, {api.MachineConfigReader, others}} {
		refusal, err := r.access.grant(ctx, reader.role, reader.configs)
		if err != nil {
			failures = append(failures, err)
		}
		refusals[reader.role] = cmp.Or(other, refusal)
	}
	var result reconcile.Result
	if result.RequeueAfter, err = r.plan(ctx, rollouts, members, nodes, refusals); err != nil {
		return reconcile.Result{}, err
	}
	if conflicts {
		result.RequeueAfter = cluster.ConflictRetry
	}
	for _, o := range rollouts {
		if o.err == nil {
			o.err = errors.Join(r.stage(ctx, o), r.permit(ctx, o), r.sync(ctx, o, members))
		}
		if o.err != nil {
			failures = append(failures, fmt.Errorf("MachineConfigPool %s: %w", o.pool.Name, o.err))
		}
		if o.wait > 0 && (result.RequeueAfter == 0 || o.wait < result.RequeueAfter) {
			result.RequeueAfter = o.wait
		}
	}
	if err := r.reportPolicies(ctx, rollouts, policies); err != nil {
		failures = append(failures, err)
	}
	if len(failures) > 0 {
		return reconcile.Result{}, errors.Join(failures...)
	}
	return result, r.collect(ctx, usage.Unused(r.clock.Now()))
}

// collect deletes rendered MachineConfigs that nothing uses.
func (r *pools) collect(ctx context.Context, unused []*mcfgv1.MachineConfig) error {
	for _, mc := range unused {
		err := r.client.Delete(ctx, mc, client.Preconditions{UID: &mc.UID})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("deleting the unused MachineConfig %s: %w", mc.Name, err)
		}
		logr.FromContextOrDiscard(ctx).Info("unused MachineConfig deleted", "config", mc.Name)
	}
	return nil
}

// nodes returns all nodes in the newest version that this process knows, even if the cache does not show it yet. Otherwise a reconcile would
// find slots free that are in use.
func (r *pools) nodes(ctx context.Context) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return r.writtenNodes.All(pointers.To(list.Items)), nil
}

// pools returns copies of all pools in the newest version that this process knows. With an older one, a reconcile would return nodes to the
// config before.
func (r *pools) pools(ctx context.Context) ([]*mcfgv1.MachineConfigPool, error) {
	var list mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineConfigPools: %w", err)
	}
	all := r.writtenPools.All(pointers.To(list.Items))
	for i, p := range all {
		all[i] = p.DeepCopy()
	}
	return all, nil
}

// createBuiltIn creates the pools that every cluster has, unless they exist. After that they belong to the administrator.
func (r *pools) createBuiltIn(ctx context.Context, existing []*mcfgv1.MachineConfigPool, nodes []*corev1.Node) (created bool, err error) {
	controlPlane, worker := pool.BuiltIn(nodes)
	for _, p := range []*mcfgv1.MachineConfigPool{controlPlane, worker} {
		if slices.ContainsFunc(existing, func(e *mcfgv1.MachineConfigPool) bool { return e.Name == p.Name }) {
			continue
		}
		if err := r.client.Create(ctx, p); err != nil && !apierrors.IsAlreadyExists(err) {
			return created, fmt.Errorf("creating MachineConfigPool %s: %w", p.Name, err)
		}
		logr.FromContextOrDiscard(ctx).Info("MachineConfigPool created", "pool", p.Name)
		created = true
	}
	return created, nil
}

// sync assigns a pool's config to nodes and writes the pool's status.
func (r *pools) sync(ctx context.Context, o *rollout, members pool.Membership) error {
	p := o.pool
	nodes, unassigned := r.assign(ctx, o, members)
	options := pool.StatusOptions{
		WaitForReady: r.options.WaitForReady, RenderError: o.renderError, SpecError: o.specError,
		NodesUnknown: members.Invalid[p.Name] != "", Waiting: o.waiting,
	}
	before := p.DeepCopy()
	p.Status = pool.Status(p, nodes, options, r.clock.Now().UTC().Truncate(time.Second))
	if equality.Semantic.DeepEqual(before.Status, p.Status) {
		return unassigned
	}
	if err := r.client.Status().Patch(ctx, p, client.MergeFrom(before)); err != nil {
		return errors.Join(unassigned, fmt.Errorf("writing the status: %w", err))
	}
	r.writtenPools.Add(p.DeepCopy())
	for _, c := range p.Status.Conditions {
		if pool.IsTrue(before, c.Type) != pool.IsTrue(p, c.Type) {
			logr.FromContextOrDiscard(ctx).Info("condition changed", "pool", p.Name, "condition", c.Type, "status", c.Status, "message", c.Message)
		}
	}
	return unassigned
}

// render stores the rendered MachineConfig of a pool and makes it the pool's config. rules are the pool's policy, or nil. failure is the reason why the MachineConfigs cannot be
// rendered; empty if they can.
func (r *pools) render(
	ctx context.Context, p *mcfgv1.MachineConfigPool, configs []mcfgv1.MachineConfig, rules *api.NodeRolloutPolicy,
) (wait time.Duration, failure string, err error) {
	selected, err := pool.Sources(p, pointers.To(configs))
	if err != nil {
		return 0, err.Error(), nil //nolint:nilerr // the pool's status reports it
	}
	current := find(configs, p.Spec.Configuration.Name)
	image := policy.OSImage(rules, current, r.options.OSImage)
	if current == nil && p.Spec.Configuration.Name != "" && rules != nil && rules.Spec.HoldOSImage {
		former := r.sources[p.Name] // the cache may show the config late, or it was deleted
		if former == nil {
			return 0, fmt.Sprintf("MachineConfig %s does not exist, so the image of the operating system that NodeRolloutPolicy %s holds is not known: set its spec.holdOSImage to false",
				p.Spec.Configuration.Name, rules.Name), nil
		}
		image = former.image
	}
	seen := r.seen(p, selected, image)
	if wait := seen.since.Add(r.options.Settle).Sub(r.clock.Now()); wait > 0 {
		return wait, pool.Message(p, mcfgv1.MachineConfigPoolRenderDegraded), nil // it stays until the MachineConfigs are rendered again
	}
	if seen.failure != "" {
		return 0, seen.failure, nil
	}
	if current != nil && current.ResourceVersion == seen.version &&
		equality.Semantic.DeepEqual(p.Spec.Configuration, seen.config) {
		return 0, "", nil
	}
	rendered, err := config.Render(p.Name, selected, image)
	if invalid, ok := errors.AsType[*config.Error](err); ok {
		seen.failure = invalid.Error()
		return 0, seen.failure, nil
	}
	if errors.Is(err, config.ErrNoConfigs) {
		return 0, err.Error(), nil
	}
	if err != nil {
		return 0, "", err
	}
	if seen.version, err = r.store(ctx, p, rendered, find(configs, rendered.Name)); err != nil {
		return 0, "", err
	}
	err = r.target(ctx, p, rendered, selected)
	seen.config = p.Spec.Configuration
	return 0, "", err
}

// seen returns what is known about a pool's MachineConfigs and the release's image for them. It forgets the result if one has changed, even if only in
// its metadata: labels and annotations have a part in rendering, too.
func (r *pools) seen(p *mcfgv1.MachineConfigPool, selected []*mcfgv1.MachineConfig, image string) *sources {
	var key strings.Builder
	fmt.Fprintln(&key, image)
	for _, mc := range selected {
		fmt.Fprintf(&key, "%s %s\n", mc.Name, mc.ResourceVersion)
	}
	seen := r.sources[p.Name]
	if seen == nil || seen.key != key.String() {
		seen = &sources{key: key.String(), image: image, since: r.clock.Now()}
		r.sources[p.Name] = seen
	}
	return seen
}

// find returns the MachineConfig with a name, or nil.
func find(configs []mcfgv1.MachineConfig, name string) *mcfgv1.MachineConfig {
	i := slices.IndexFunc(configs, func(mc mcfgv1.MachineConfig) bool { return mc.Name == name })
	if i < 0 {
		return nil
	}
	return &configs[i]
}

// store creates the rendered MachineConfig, unless it exists. Of an existing one, only the release's version may change: daemons refuse one
// whose content does not belong to its name. store returns the resource version, empty if it is not known.
func (r *pools) store(ctx context.Context, p *mcfgv1.MachineConfigPool, rendered, existing *mcfgv1.MachineConfig) (version string, err error) {
	owner := metav1.NewControllerRef(p, mcfgv1.GroupVersion.WithKind("MachineConfigPool"))
	rendered.OwnerReferences = []metav1.OwnerReference{*owner}
	if rendered.Annotations == nil {
		rendered.Annotations = map[string]string{}
	}
	rendered.Annotations[api.GeneratedByAnnotation] = r.options.Version
	rendered.Annotations[api.ReleaseAnnotation] = r.options.Release
	if existing == nil {
		err := r.client.Create(ctx, rendered)
		if apierrors.IsAlreadyExists(err) {
			return "", nil // the cache is late: its event follows
		}
		if err != nil {
			return "", fmt.Errorf("creating MachineConfig %s: %w", rendered.Name, err)
		}
		logr.FromContextOrDiscard(ctx).Info("MachineConfig rendered", "pool", p.Name, "config", rendered.Name)
		r.recorder.Eventf(p, corev1.EventTypeNormal, api.EventRenderedConfigGenerated, "Generated %s for release %s", rendered.Name, r.options.Release)
		return rendered.ResourceVersion, nil
	}
	if equality.Semantic.DeepEqual(existing.Annotations, rendered.Annotations) {
		return existing.ResourceVersion, nil
	}
	next := existing.DeepCopy()
	next.Annotations = rendered.Annotations
	if err := r.client.Patch(ctx, next, client.MergeFrom(existing)); err != nil {
		return "", fmt.Errorf("writing the release of MachineConfig %s: %w", rendered.Name, err)
	}
	return next.ResourceVersion, nil
}

// target makes the rendered MachineConfig the pool's config.
func (r *pools) target(ctx context.Context, p *mcfgv1.MachineConfigPool, rendered *mcfgv1.MachineConfig, selected []*mcfgv1.MachineConfig) error {
	reference := func(name string) corev1.ObjectReference {
		return corev1.ObjectReference{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig", Name: name}
	}
	next := mcfgv1.MachineConfigPoolStatusConfiguration{ObjectReference: reference(rendered.Name)}
	for _, mc := range selected {
		next.Source = append(next.Source, reference(mc.Name))
	}
	if equality.Semantic.DeepEqual(p.Spec.Configuration, next) {
		return nil
	}
	before := p.DeepCopy()
	p.Spec.Configuration = next
	if err := r.client.Patch(ctx, p, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("setting the config to %s: %w", rendered.Name, err)
	}
	r.writtenPools.Add(p.DeepCopy())
	return nil
}

// release removes what the stage has written from released nodes. conflicts reports whether a node has changed meanwhile.
func (r *pools) release(ctx context.Context, nodes []*corev1.Node) (conflicts bool, err error) {
	var failures []error
	for _, n := range nodes {
		// A node that has returned still has the former config, until its daemon follows the return.
		hasLeft := pool.IsReleased(n) || n.Annotations[api.NodeStateAnnotation] == api.NodeReleased
		if !hasLeft {
			continue
		}
		next := n.DeepCopy()
		if !pool.Release(next) {
			continue
		}
		err := r.client.Patch(ctx, next, client.MergeFromWithOptions(n, client.MergeFromWithOptimisticLock{}))
		switch {
		case apierrors.IsConflict(err):
			conflicts = true
		case apierrors.IsNotFound(err):
		case err != nil:
			failures = append(failures, fmt.Errorf("writing the released node %s: %w", n.Name, err))
		default:
			r.writtenNodes.Add(next)
		}
	}
	return conflicts, errors.Join(failures...)
}

// assign writes the changes of a pool's nodes and returns the nodes with these changes. A node that cannot be written does not stop the
// others. It is in waiting if the API server refuses its config.
func (r *pools) assign(ctx context.Context, o *rollout, members pool.Membership) ([]*corev1.Node, error) {
	p := o.pool
	if o.specError != "" || members.Doubt(p.Name) != "" || p.DeletionTimestamp != nil {
		return o.nodes, nil
	}
	nodes := slices.Clone(o.nodes)
	target := p.Spec.Configuration.Name
	var targeted, refused []string
	var failures []error
	for _, change := range append(pool.Changes(p, nodes, o.targeted, o.awaitedJob), o.released...) {
		next := change.Node.DeepCopy()
		change.Apply(next, target)
		// Without the lock, the patch would overwrite taints that another client has just added.
		err := r.client.Patch(ctx, next, client.MergeFromWithOptions(change.Node, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			o.wait = cluster.ConflictRetry
			continue
		}
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("writing node %s: %w", next.Name, err))
			if change.Target && isRefusal(err) {
				refused = append(refused, fmt.Sprintf("Node %s cannot be written: %s", next.Name, printable.Excerpt(err.Error(), api.NodeReasonText)))
			}
			continue
		}
		r.writtenNodes.Add(next)
		nodes[slices.Index(nodes, change.Node)] = next
		if change.Target {
			logr.FromContextOrDiscard(ctx).Info("config assigned", "pool", p.Name, "node", next.Name, "config", target)
			targeted = append(targeted, next.Name)
			r.durations.begin(next, target, r.clock.Now())
		}
		if slices.Contains(o.released, change) {
			logr.FromContextOrDiscard(ctx).Info("slot released", "pool", p.Name, "node", next.Name)
			r.recorder.Eventf(next, corev1.EventTypeWarning, api.EventSlotReleased,
				"Released the slot of the node by spec.blockedDrain.releaseSlotAfter (%s) of NodeRolloutPolicy %s: %s",
				duration.HumanDuration(o.policy.Spec.BlockedDrain.ReleaseSlotAfter.Duration), o.policy.Name, drain.Blocker(next))
		}
	}
	if len(refused) > 0 {
		o.explainRefusal(printable.AndOthers(refused[0], len(refused), "node"))
	}
	switch len(targeted) {
	case 0:
	case 1:
		r.recorder.Eventf(p, corev1.EventTypeNormal, api.EventSetDesiredConfig, "Targeted node %s to MachineConfig %s", targeted[0], target)
	default:
		r.recorder.Eventf(p, corev1.EventTypeNormal, api.EventSetDesiredConfig, "Set target for %d nodes to MachineConfig %s", len(targeted), target)
	}
	return nodes, errors.Join(failures...)
}

// isRefusal reports whether the API server has refused a request, perhaps by a webhook. The texts of other errors differ from one attempt to the next.
func isRefusal(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.Status().Code < http.StatusInternalServerError && !apierrors.IsTooManyRequests(err)
}
