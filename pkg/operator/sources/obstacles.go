package sources

import (
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// patience is how long a watch may take to start. After that, its obstacles count as unknown.
const patience = time.Minute

// Obstacles watches the objects that may block updates to another minor version: ClusterOperators, and the ConfigMaps with gates and
// acknowledgements. It is a controller source, but the controller does not wait for it. Unread objects are reported as such.
type Obstacles struct {
	clock clock.WithTicker
	began time.Time
	// name is the name of the ClusterVersion to reconcile.
	name      string
	cache     cache.Cache
	operators cache.Informer
	gates     *watch.Single[*corev1.ConfigMap]
	acks      *watch.Single[*corev1.ConfigMap]
	// changed requests a reconcile of the ClusterVersion.
	changed func()
}

func newObstacles(ctx context.Context, clk clock.WithTicker, c cache.Cache, core corev1client.CoreV1Interface, name string) (*Obstacles, error) {
	operators, err := c.GetInformer(ctx, &configv1.ClusterOperator{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching ClusterOperators: %w", err)
	}
	o := &Obstacles{clock: clk, began: clk.Now(), name: name, cache: c, operators: operators}
	seen := watch.OnState(func(*corev1.ConfigMap) { o.changed() })
	o.gates = watch.NewSingle(core.ConfigMaps(api.ConfigManagedNamespace), &corev1.ConfigMap{}, api.AdminGatesConfigMap, seen)
	o.acks = watch.NewSingle(core.ConfigMaps(api.ConfigNamespace), &corev1.ConfigMap{}, api.AdminAcksConfigMap, seen)
	return o, nil
}

// Start implements source.Source. It starts the watches and requests a reconcile of the ClusterVersion on each change.
func (o *Obstacles) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	o.changed = func() { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: o.name}}) }
	operators := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { o.changed() },
		UpdateFunc: func(before, after any) { // other conditions change all the time
			if reported(before) != reported(after) {
				o.changed()
			}
		},
		DeleteFunc: func(any) { o.changed() },
	}
	if _, err := o.operators.AddEventHandler(operators); err != nil {
		return fmt.Errorf("watching ClusterOperators: %w", err)
	}
	go o.gates.RunWithContext(ctx)
	go o.acks.RunWithContext(ctx)
	go func() {
		// Neither a missing object nor a watch that does not start causes an event.
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		timer := o.clock.NewTimer(patience)
		defer timer.Stop()
		go func() {
			select {
			case <-timer.C():
				o.changed()
			case <-waiting.Done():
			}
		}()
		if toolscache.WaitFor(ctx, "", o.operators.HasSyncedChecker(), o.gates.HasSyncedChecker(), o.acks.HasSyncedChecker()) {
			o.changed()
		}
	}()
	return nil
}

func reported(object any) configv1.ClusterOperatorStatusCondition {
	if co, ok := object.(*configv1.ClusterOperator); ok {
		return upgradeable.Reported(co)
	}
	return configv1.ClusterOperatorStatusCondition{}
}

// Cluster returns the current state of the watches. It makes no request and does not wait.
func (o *Obstacles) Cluster() upgradeable.Cluster {
	out := upgradeable.Cluster{Gates: o.configMap(o.gates), Acks: o.configMap(o.acks)}
	if !o.operators.HasSynced() {
		out.OperatorsErr = o.unread("ClusterOperators")
		return out
	}
	list := &configv1.ClusterOperatorList{}
	// The cache answers from memory, so nothing can be canceled.
	if err := o.cache.List(context.Background(), list); err != nil {
		out.OperatorsErr = fmt.Errorf("reading ClusterOperators: %w", err)
	}
	out.Operators = list.Items
	return out
}

func (o *Obstacles) configMap(single *watch.Single[*corev1.ConfigMap]) upgradeable.ConfigMap {
	if !single.HasSynced() {
		return upgradeable.ConfigMap{Err: o.unread("the ConfigMap")}
	}
	if cm, found := single.Object(); found {
		return upgradeable.ConfigMap{Found: true, Data: cm.Data}
	}
	return upgradeable.ConfigMap{}
}

// unread returns the reason why an object is unknown.
func (o *Obstacles) unread(what string) error {
	if o.clock.Since(o.began) < patience {
		return upgradeable.ErrPending
	}
	return fmt.Errorf("the operator cannot watch %s: see its log", what)
}
