package report

import (
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// versionAge is the age at which the version of the API server is read again, and versionRetry the delay after a failed read. Its update is no
// event of the kinds that the stage watches.
const (
	versionAge   = time.Hour
	versionRetry = time.Minute
)

// reporter writes the ClusterOperator.
type reporter struct {
	client   client.Client
	server   discovery.ServerVersionInterface
	clock    clock.PassiveClock
	recorder record.EventRecorder
	options  Options

	apiServer *version.Version
	// readAgain is the time of the next read of the version.
	readAgain time.Time
}

// Add adds the controllers to a manager whose scheme cluster.NewScheme returned.
func Add(mgr manager.Manager, clk clock.PassiveClock, recorder record.EventRecorder, o Options) error {
	server, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	if err := (&machines{client: mgr.GetClient()}).add(mgr); err != nil {
		return err
	}
	if err := (&policies{client: mgr.GetClient(), clock: clk}).add(mgr); err != nil {
		return err
	}
	r := &reporter{client: mgr.GetClient(), server: server, clock: clk, recorder: recorder, options: o}
	one := cluster.OneRequest()
	return watch.Controller(mgr, "node-report", 1).
		Watches(&configv1.ClusterOperator{}, one).
		Watches(&mcfgv1.MachineConfigPool{}, one).
		Watches(&mcfgv1.MachineConfig{}, one).
		Watches(&mcfgv1.ControllerConfig{}, one).
		Watches(&api.NodeRolloutPolicy{}, one, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, one, builder.WithPredicates(cluster.OnChanges(func(before, after *corev1.Node) bool {
			return before.Status.NodeInfo.KubeletVersion != after.Status.NodeInfo.KubeletVersion ||
				before.Annotations[api.DaemonReleaseAnnotation] != after.Annotations[api.DaemonReleaseAnnotation] ||
				!equality.Semantic.DeepEqual(before.Labels, after.Labels)
		}))).
		Watches(&corev1.Node{}, handler.Funcs{UpdateFunc: r.reportDrift}).
		Complete(r)
}

// reportDrift sends an event about a node that differs from its config. It requests nothing.
func (r *reporter) reportDrift(_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	before, wasNode := e.ObjectOld.(*corev1.Node)
	after, isNode := e.ObjectNew.(*corev1.Node)
	if wasNode && isNode && !pool.Differs(before) && pool.Differs(after) {
		r.recorder.Event(after, corev1.EventTypeWarning, api.EventConfigDriftDetected, after.Annotations[api.NodeReasonAnnotation])
	}
}

// Reconcile implements reconcile.Reconciler. It ignores the request.
func (r *reporter) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	operator := &configv1.ClusterOperator{}
	err := r.client.Get(ctx, client.ObjectKey{Name: api.MachineConfigOperator}, operator)
	if apierrors.IsNotFound(err) {
		operator = &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: api.MachineConfigOperator}}
		if err := r.client.Create(ctx, operator); err != nil && !apierrors.IsAlreadyExists(err) {
			return reconcile.Result{}, fmt.Errorf("creating ClusterOperator %s: %w", operator.Name, err)
		}
		return reconcile.Result{}, nil // its creation is an event
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading ClusterOperator %s: %w", api.MachineConfigOperator, err)
	}
	state, err := r.state(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := operator.DeepCopy()
	var wait time.Duration
	operator.Status, wait = Status(before.Status, state, r.options, r.clock.Now().UTC().Truncate(time.Second))
	result := reconcile.Result{RequeueAfter: r.readAgain.Sub(r.clock.Now())}
	if wait > 0 && wait < result.RequeueAfter {
		result.RequeueAfter = wait
	}
	if equality.Semantic.DeepEqual(before.Status, operator.Status) {
		return result, nil
	}
	// The lock rejects a status that is computed from a late cache: its transition times would be wrong.
	err = r.client.Status().Patch(ctx, operator, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return result, nil // the ClusterOperator's change is an event
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("writing the status of ClusterOperator %s: %w", operator.Name, err)
	}
	r.report(operator, before.Status)
	return result, nil
}

// state reads what the status is computed from.
func (r *reporter) state(ctx context.Context) (State, error) {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return State{}, fmt.Errorf("listing MachineConfigPools: %w", err)
	}
	var configs mcfgv1.MachineConfigList
	if err := r.client.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return State{}, fmt.Errorf("listing MachineConfigs: %w", err)
	}
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return State{}, fmt.Errorf("listing nodes: %w", err)
	}
	var policies api.NodeRolloutPolicyList
	if err := r.client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return State{}, fmt.Errorf("listing NodeRolloutPolicies: %w", err)
	}
	other, err := cluster.OtherRelease(ctx, r.client, r.options.Release)
	if err != nil {
		return State{}, err
	}
	if err := r.readVersion(); err != nil {
		return State{}, err
	}
	s := State{
		Pools: pointers.To(pools.Items), Nodes: pointers.To(nodes.Items), Configs: map[string]*mcfgv1.MachineConfig{}, OtherRelease: other,
		APIServer: r.apiServer, Policies: map[string]*api.NodeRolloutPolicy{},
	}
	for i := range configs.Items {
		s.Configs[configs.Items[i].Name] = &configs.Items[i]
	}
	for i := range policies.Items {
		s.Policies[policies.Items[i].Name] = &policies.Items[i]
	}
	return s, nil
}

// readVersion reads the version of the API server when its next read is due. A failed read matters only if none succeeded before.
func (r *reporter) readVersion() error {
	now := r.clock.Now()
	if now.Before(r.readAgain) {
		return nil
	}
	info, err := r.server.ServerVersion()
	if err != nil {
		if r.apiServer != nil {
			r.readAgain = now.Add(versionRetry)
			return nil
		}
		return fmt.Errorf("reading the version of the API server: %w", err)
	}
	parsed, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return fmt.Errorf("parsing the version of the API server: %w", err)
	}
	r.apiServer, r.readAgain = parsed, now.Add(versionAge)
	return nil
}

// report emits an event if the ClusterOperator has another version, or became Degraded.
func (r *reporter) report(operator *configv1.ClusterOperator, before configv1.ClusterOperatorStatus) {
	if was, is := versionOf(before), versionOf(operator.Status); was != is && was != "" {
		r.recorder.Eventf(operator, corev1.EventTypeNormal, api.EventOperatorVersionChanged,
			"The version of ClusterOperator %s changed from %s to %s", operator.Name, was, is)
	}
	degraded := func(s configv1.ClusterOperatorStatus) *configv1.ClusterOperatorStatusCondition {
		c := api.FindCondition(s.Conditions, configv1.OperatorDegraded)
		if c == nil || c.Status != configv1.ConditionTrue {
			return nil
		}
		return c
	}
	if c := degraded(operator.Status); c != nil && degraded(before) == nil {
		r.recorder.Event(operator, corev1.EventTypeWarning, api.EventOperatorDegraded+": "+c.Reason, c.Message)
	}
}

func versionOf(s configv1.ClusterOperatorStatus) string {
	for _, v := range s.Versions {
		if v.Name == operatorVersion {
			return v.Version
		}
	}
	return ""
}
