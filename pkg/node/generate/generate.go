// Package generate writes the MachineConfigs and the status of KubeletConfigs. Package kubelet decides; this package reads the objects and
// writes the results. It compares all KubeletConfigs with all MachineConfigs, so it also deletes MachineConfigs whose KubeletConfig was
// deleted while no controller ran. No finalizer or garbage collector is necessary.
package generate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/kubelet"
)

type generator struct {
	client  client.Client
	clock   clock.PassiveClock
	release string
	options kubelet.Options
}

// Add adds the controller of a release to a manager whose scheme cluster.NewScheme returned. It begins when the cache has caught up.
func Add(mgr manager.Manager, caughtUp *watch.CatchUp, clk clock.PassiveClock, release string, o kubelet.Options) error {
	all := cluster.OneRequest() // the numbers of KubeletConfigs depend on each other
	return watch.Controller(mgr, "node-generate", 1).
		Watches(&mcfgv1.KubeletConfig{}, all).
		Watches(&mcfgv1.MachineConfigPool{}, all, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&mcfgv1.MachineConfig{}, all).
		Watches(&mcfgv1.ControllerConfig{}, all).
		Complete(caughtUp.Delay(&generator{client: mgr.GetClient(), clock: clk, release: release, options: o}))
}

// Reconcile implements reconcile.Reconciler. It ignores the request.
func (r *generator) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if other, err := cluster.OtherRelease(ctx, r.client, r.release); other != "" || err != nil {
		return reconcile.Result{}, err // a change of the ControllerConfig is an event
	}
	var configs mcfgv1.KubeletConfigList
	if err := r.client.List(ctx, &configs); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing KubeletConfigs: %w", err)
	}
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing MachineConfigPools: %w", err)
	}
	var existing mcfgv1.MachineConfigList
	if err := r.client.List(ctx, &existing, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing MachineConfigs: %w", err)
	}
	plans := kubelet.Plans(configs.Items, pools.Items, existing.Items, r.options)
	var failures []error
	for _, p := range plans {
		if err := r.write(ctx, p, existing.Items); err != nil && !isLate(err) {
			failures = append(failures, err)
		}
	}
	for _, mc := range kubelet.Unused(existing.Items, plans) {
		if err := r.client.Delete(ctx, mc, client.Preconditions{UID: &mc.UID, ResourceVersion: &mc.ResourceVersion}); err != nil {
			if !isLate(err) {
				failures = append(failures, fmt.Errorf("deleting MachineConfig %s: %w", mc.Name, err))
			}
			continue
		}
		logr.FromContextOrDiscard(ctx).Info("generated MachineConfig deleted", "config", mc.Name)
	}
	return reconcile.Result{}, errors.Join(failures...)
}

// isLate reports whether a write failed because the cache was late. The event of the other change follows, and the next reconcile sees it.
func isLate(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// write writes what a plan contains. The status comes last: it reports that the MachineConfigs are written.
func (r *generator) write(ctx context.Context, p kubelet.Plan, existing []mcfgv1.MachineConfig) error {
	if err := r.remember(ctx, p); err != nil {
		return err
	}
	for _, mc := range p.MachineConfigs {
		if err := r.store(ctx, mc, existing); err != nil {
			return err
		}
	}
	before := p.Config.DeepCopy()
	p.Config.Status = p.Status(r.clock.Now().UTC().Truncate(time.Second))
	if equality.Semantic.DeepEqual(before.Status, p.Config.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, p.Config, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("writing the status of KubeletConfig %s: %w", p.Config.Name, err)
	}
	if p.Err != nil {
		logr.FromContextOrDiscard(ctx).Info("KubeletConfig rejected", "kubeletConfig", p.Config.Name, "reason", p.Err.Error())
	}
	return nil
}

// remember records the suffix of the names of a KubeletConfig's MachineConfigs. The lock rejects a suffix that is computed from a late cache.
func (r *generator) remember(ctx context.Context, p kubelet.Plan) error {
	if suffix, ok := p.Config.Annotations[api.SuffixAnnotation]; !p.HasSuffix || ok && suffix == p.Suffix {
		return nil
	}
	before := p.Config.DeepCopy()
	if p.Config.Annotations == nil {
		p.Config.Annotations = map[string]string{}
	}
	p.Config.Annotations[api.SuffixAnnotation] = p.Suffix
	if err := r.client.Patch(ctx, p.Config, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the suffix of KubeletConfig %s: %w", p.Config.Name, err)
	}
	return nil
}

// store creates a MachineConfig, or corrects the existing one. It keeps labels and annotations of other clients.
func (r *generator) store(ctx context.Context, mc *mcfgv1.MachineConfig, all []mcfgv1.MachineConfig) error {
	i := slices.IndexFunc(all, func(e mcfgv1.MachineConfig) bool { return e.Name == mc.Name })
	if i < 0 {
		if err := r.client.Create(ctx, mc); err != nil {
			return fmt.Errorf("creating MachineConfig %s: %w", mc.Name, err)
		}
		logr.FromContextOrDiscard(ctx).Info("MachineConfig generated", "config", mc.Name, "kubeletConfig", mc.OwnerReferences[0].Name)
		return nil
	}
	before := &all[i]
	next := before.DeepCopy()
	next.OwnerReferences = mc.OwnerReferences
	for _, m := range []struct {
		to   *map[string]string
		from map[string]string
	}{{&next.Labels, mc.Labels}, {&next.Annotations, mc.Annotations}} {
		if *m.to == nil {
			*m.to = map[string]string{}
		}
		maps.Copy(*m.to, m.from)
	}
	next.Spec = mc.Spec
	if isSame(before.Spec.Config.Raw, mc.Spec.Config.Raw) {
		next.Spec.Config = before.Spec.Config
	}
	if equality.Semantic.DeepEqual(before, next) {
		return nil
	}
	if err := r.client.Patch(ctx, next, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing MachineConfig %s: %w", mc.Name, err)
	}
	logr.FromContextOrDiscard(ctx).Info("MachineConfig changed", "config", mc.Name, "kubeletConfig", mc.OwnerReferences[0].Name)
	return nil
}

// isSame reports whether two texts are the same JSON. The API server may order keys in another way.
func isSame(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && equality.Semantic.DeepEqual(x, y)
}
