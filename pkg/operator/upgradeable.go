package operator

import (
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/upgradeable"
)

// patience is how long a watch may take to begin before whether there are obstacles counts as not known.
const patience = time.Minute

// voices watches who may object to another minor version: ClusterOperators, and the ConfigMaps of gates and
// acknowledgements. It is a source of the controller, which does not wait for it: as long as something has not been read,
// it says so.
type voices struct {
	clock clock.WithTicker
	began time.Time
	// name is that of the ClusterVersion to reconcile.
	name      string
	cache     cache.Cache
	operators cache.Informer
	gates     *single[*corev1.ConfigMap]
	acks      *single[*corev1.ConfigMap]
	// changed has the ClusterVersion reconciled.
	changed func()
}

func newVoices(ctx context.Context, clk clock.WithTicker, c cache.Cache, core corev1client.CoreV1Interface, name string) (*voices, error) {
	operators, err := c.GetInformer(ctx, &configv1.ClusterOperator{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching ClusterOperators: %w", err)
	}
	v := &voices{clock: clk, began: clk.Now(), name: name, cache: c, operators: operators}
	seen := each(func(*corev1.ConfigMap) { v.changed() })
	v.gates = newSingle(core.ConfigMaps(api.ConfigManagedNamespace), &corev1.ConfigMap{}, api.AdminGatesConfigMap, seen)
	v.acks = newSingle(core.ConfigMaps(api.ConfigNamespace), &corev1.ConfigMap{}, api.AdminAcksConfigMap, seen)
	return v, nil
}

// Start implements source.Source: it starts the watches, and has the ClusterVersion reconciled when they tell anything.
func (v *voices) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	v.changed = func() { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: v.name}}) }
	operators := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { v.changed() },
		UpdateFunc: func(before, after any) { // they tell of other things all the time
			if objection(before) != objection(after) {
				v.changed()
			}
		},
		DeleteFunc: func(any) { v.changed() },
	}
	if _, err := v.operators.AddEventHandler(operators); err != nil {
		return fmt.Errorf("watching ClusterOperators: %w", err)
	}
	go v.gates.RunWithContext(ctx)
	go v.acks.RunWithContext(ctx)
	go func() {
		// What is not there makes no event; and neither does a watch that does not begin.
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		timer := v.clock.NewTimer(patience)
		defer timer.Stop()
		go func() {
			select {
			case <-timer.C():
				v.changed()
			case <-waiting.Done():
			}
		}()
		if toolscache.WaitForCacheSync(ctx.Done(), v.operators.HasSynced, v.gates.HasSynced, v.acks.HasSynced) {
			v.changed()
		}
	}()
	return nil
}

// objection is what a ClusterOperator says of being upgradeable.
func objection(object any) (said configv1.ClusterOperatorStatusCondition) {
	if co, ok := object.(*configv1.ClusterOperator); ok {
		for _, c := range co.Status.Conditions {
			if c.Type == configv1.OperatorUpgradeable {
				said = c
			}
		}
	}
	said.LastTransitionTime = metav1.Time{}
	return said
}

// cluster is what the watches have told so far. It makes no request and does not wait.
func (v *voices) cluster() upgradeable.Cluster {
	out := upgradeable.Cluster{Gates: v.configMap(v.gates), Acks: v.configMap(v.acks)}
	if !v.operators.HasSynced() {
		out.OperatorsErr = v.unread("ClusterOperators")
		return out
	}
	list := &configv1.ClusterOperatorList{}
	// The cache answers from memory: there is nothing to cancel.
	if err := v.cache.List(context.Background(), list); err != nil {
		out.OperatorsErr = fmt.Errorf("reading ClusterOperators: %w", err)
	}
	out.Operators = list.Items
	return out
}

func (v *voices) configMap(watch *single[*corev1.ConfigMap]) upgradeable.ConfigMap {
	if !watch.HasSynced() {
		return upgradeable.ConfigMap{Err: v.unread("the ConfigMap")}
	}
	if cm, found := watch.object(); found {
		return upgradeable.ConfigMap{Found: true, Data: cm.Data}
	}
	return upgradeable.ConfigMap{}
}

// unread says why something is not known.
func (v *voices) unread(what string) error {
	if v.clock.Since(v.began) < patience {
		return upgradeable.ErrPending
	}
	return fmt.Errorf("the API server does not let %s be watched: see the operator's log", what)
}
