// Package component implements the operator of one component of the example platform. It watches its operands and reports its ClusterOperator. It
// takes a manager and the pod's settings, creates nothing, and writes only the status of its ClusterOperator, which comes from a release.
package component

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/examples/operator/pod"
	"github.com/cluster-version/cvo/examples/operator/report"
)

// Options configure the operator.
type Options struct {
	pod.Options
	// Component is the name of the ClusterOperator.
	Component string
	// Operands are the objects to watch, as KIND/NAME. KIND is deployment, daemonset or statefulset.
	Operands []string
	// Others are additional versions to report, by name.
	Others map[string]string
}

// kinds are the possible kinds of an operand.
var kinds = map[string]struct {
	kind string
	make func() client.Object
}{
	"deployments":  {"Deployment", func() client.Object { return &appsv1.Deployment{} }},
	"daemonsets":   {"DaemonSet", func() client.Object { return &appsv1.DaemonSet{} }},
	"statefulsets": {"StatefulSet", func() client.Object { return &appsv1.StatefulSet{} }},
}

type operand struct{ resource, name string }

// Run runs the operator until ctx ends or a switch makes it crash.
func Run(ctx context.Context, config *rest.Config, opts Options) error {
	r := &reconciler{opts: opts, clock: opts.Clock}
	var err error
	if r.operands, err = parse(opts.Operands); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := configv1.Install(scheme); err != nil {
		return err
	}
	named := fields.OneTermEqualSelector("metadata.name", opts.Component)
	var m manager.Manager
	r.pod, m, err = pod.New(ctx, config, opts.Options, manager.Options{
		Scheme: scheme,
		Cache:  cache.Options{ByObject: map[client.Object]cache.ByObject{&configv1.ClusterOperator{}: {Field: named}}},
	})
	if err != nil {
		return err
	}
	r.client = m.GetClient()
	// Every change has the same effect: a new report.
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: opts.Component}}}
	})
	b := builder.ControllerManagedBy(m).Named("report").For(&configv1.ClusterOperator{}).Watches(&corev1.ConfigMap{}, one).
		WithOptions(controller.Options{SkipNameValidation: new(true)})
	for _, k := range []string{"deployments", "daemonsets", "statefulsets"} {
		if slices.ContainsFunc(r.operands, func(o operand) bool { return o.resource == k }) {
			b = b.Watches(kinds[k].make(), one)
		}
	}
	if err := b.Complete(r); err != nil {
		return err
	}
	return m.Start(ctx)
}

// parse reads operands; kinds may be singular or plural.
func parse(texts []string) ([]operand, error) {
	var operands []operand
	for _, text := range texts {
		kind, name, _ := strings.Cut(text, "/")
		resource := strings.TrimSuffix(strings.ToLower(kind), "s") + "s"
		if _, known := kinds[resource]; !known || name == "" {
			return nil, fmt.Errorf("operand %q: use deployment/NAME, daemonset/NAME or statefulset/NAME", text)
		}
		operands = append(operands, operand{resource, name})
	}
	return operands, nil
}

type reconciler struct {
	opts     Options
	operands []operand
	pod      *pod.Pod
	client   client.Client
	clock    clock.PassiveClock
	// settledSince persists between passes, which do not overlap.
	settledSince time.Time
}

// Reconcile reports the status once.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	co := &configv1.ClusterOperator{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: r.opts.Component}, co); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // the release creates it after the operator
	}
	seen, err := r.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	status, again := report.Status(co.Status, seen, r.clock.Now())
	if equality.Semantic.DeepEqual(status, co.Status) {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	updated := co.DeepCopy()
	updated.Status = status
	err = r.client.Status().Patch(ctx, updated, client.MergeFromWithOptions(co, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: time.Second}, nil // it has changed, and the watch will report the change
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reporting ClusterOperator %s: %w", co.Name, err)
	}
	logr.FromContextOrDiscard(ctx).Info("reported", "versions", status.Versions, "conditions", status.Conditions)
	return reconcile.Result{RequeueAfter: again}, nil
}

// observe reads operands and switches.
func (r *reconciler) observe(ctx context.Context) (report.Observed, error) {
	seen := report.Observed{
		Version: r.opts.Version,
		Related: []configv1.ObjectReference{{Resource: "namespaces", Name: r.opts.Namespace}},
	}
	for _, name := range slices.Sorted(maps.Keys(r.opts.Others)) {
		seen.Others = append(seen.Others, configv1.OperandVersion{Name: name, Version: r.opts.Others[name]})
	}
	for _, o := range r.operands {
		obj := kinds[o.resource].make()
		err := r.client.Get(ctx, client.ObjectKey{Namespace: r.opts.Namespace, Name: o.name}, obj)
		if client.IgnoreNotFound(err) != nil {
			return seen, fmt.Errorf("reading %s %s: %w", kinds[o.resource].kind, o.name, err)
		}
		if err != nil {
			obj = nil
		}
		seen.Operands = append(seen.Operands, report.Operand{Kind: kinds[o.resource].kind, Name: o.name, Object: obj})
		seen.Related = append(seen.Related, configv1.ObjectReference{Group: "apps", Resource: o.resource, Namespace: r.opts.Namespace, Name: o.name})
	}
	switch settled := len(report.Waiting(seen.Operands, seen.Version)) == 0; {
	case !settled:
		r.settledSince = time.Time{}
	case r.settledSince.IsZero():
		r.settledSince = r.clock.Now()
	}
	seen.SettledSince = r.settledSince
	if err := r.pod.Refresh(ctx); err != nil {
		return seen, err
	}
	seen.Switches, seen.SwitchError = r.pod.Switches()
	return seen, nil
}
