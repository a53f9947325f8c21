package evict

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// rules returns the drain rules for a node, of the policy with the name of its pool. invalid says why they cannot be followed; empty if they can.
func (r *drains) rules(ctx context.Context, n *corev1.Node) (rules drain.Rules, invalid string, err error) {
	pools, err := r.pools(ctx)
	if err != nil {
		return rules, "", err
	}
	name, _ := pool.NewSelectors(pools).Pool(n)
	p, err := r.policy(ctx, name)
	if err != nil {
		return rules, "", err
	}
	rules, wrong := drain.NewRules(p)
	if wrong != nil {
		invalid = fmt.Sprintf("The drain waits, because NodeRolloutPolicy %s is invalid: %s", name, wrong)
	}
	return rules, invalid, nil
}

// pools returns all pools. They are those of the cache.
func (r *drains) pools(ctx context.Context) ([]*mcfgv1.MachineConfigPool, error) {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineConfigPools: %w", err)
	}
	return pointers.To(pools.Items), nil
}

// policy returns the policy of the pool with a name; nil if it has none, or if the name is that of no pool and empty.
func (r *drains) policy(ctx context.Context, name string) (*api.NodeRolloutPolicy, error) {
	if name == "" {
		return nil, nil
	}
	p := &api.NodeRolloutPolicy{}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, p)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading NodeRolloutPolicy %s: %w", name, err)
	}
	return p, nil
}

// policyChanged requests the nodes whose drain is pending.
func (r *drains) policyChanged(ctx context.Context, _ client.Object) []reconcile.Request {
	var list corev1.NodeList
	if r.client.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
		return nil // the cache has no error
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if n := &list.Items[i]; r.serves(n) && drain.IsPending(n) {
			requests = append(requests, requestFor(n.Name)...)
		}
	}
	return requests
}
