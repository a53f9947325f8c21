package report

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	operatorv1 "github.com/openshift/api/operator/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/disruption"
)

// settingsName is the name of the only MachineConfiguration that has an effect.
const settingsName = "cluster"

// PoliciesDegraded is the condition of MachineConfiguration "cluster" that names the node disruption policies without effect.
const PoliciesDegraded = "NodeDisruptionPolicyDegraded"

// policies reports the effective node disruption policies in the status of MachineConfiguration "cluster". Without that object, the default
// policies apply.
type policies struct {
	client client.Client
	clock  clock.PassiveClock
}

func (r *policies) add(mgr manager.Manager) error {
	return watch.Controller(mgr, "node-policies", 1).For(&operatorv1.MachineConfiguration{}).Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *policies) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	settings := &operatorv1.MachineConfiguration{}
	if request.Name != settingsName {
		return reconcile.Result{}, nil
	}
	if err := r.client.Get(ctx, request.NamespacedName, settings); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := settings.DeepCopy()
	own := settings.Spec.NodeDisruptionPolicy
	settings.Status.ObservedGeneration = settings.Generation
	settings.Status.NodeDisruptionPolicyStatus.ClusterPolicies = disruption.Policies(own)
	degraded := metav1.Condition{
		Type: PoliciesDegraded, Status: metav1.ConditionFalse, Reason: "AsExpected", LastTransitionTime: metav1.NewTime(r.clock.Now().UTC().Truncate(time.Second)),
	}
	if invalid := disruption.Invalid(own); len(invalid) > 0 {
		degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, "Invalid", strings.Join(invalid, "; ")
	}
	meta.SetStatusCondition(&settings.Status.Conditions, degraded)
	if equality.Semantic.DeepEqual(before.Status, settings.Status) {
		return reconcile.Result{}, nil
	}
	if err := r.client.Status().Patch(ctx, settings, client.MergeFrom(before)); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("writing the status of MachineConfiguration %s: %w", settingsName, err))
	}
	logr.FromContextOrDiscard(ctx).Info("node disruption policies written", "generation", settings.Generation, "invalid", degraded.Message)
	return reconcile.Result{}, nil
}
