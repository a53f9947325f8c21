package evict

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// rules returns the drain rules for a node, of the policy with the name of its pool. invalid says why they cannot be followed; empty if they can.
func (r *drains) rules(ctx context.Context, n *corev1.Node) (rules drain.Rules, invalid string, err error) {
	var policies api.NodeRolloutPolicyList
	if err := r.client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return rules, "", fmt.Errorf("listing NodeRolloutPolicies: %w", err)
	}
	byPool := map[string]*api.NodeRolloutPolicy{}
	for i := range policies.Items {
		if p := &policies.Items[i]; len(p.Spec.DrainRules) > 0 {
			byPool[p.Name] = p
		}
	}
	if len(byPool) == 0 {
		return rules, "", nil
	}
	pools, err := r.pools(ctx)
	if err != nil {
		return rules, "", err
	}
	name, _ := pool.NewSelectors(pools).Pool(n)
	rules, wrong := drain.NewRules(byPool[name])
	if wrong != nil {
		invalid = fmt.Sprintf("The drain waits, because NodeRolloutPolicy %s is invalid: %s", name, wrong)
	}
	return rules, invalid, nil
}

// pools returns all pools. They are those of the cache.
func (r *drains) pools(ctx context.Context) ([]*mcfgv1.MachineConfigPool, error) {
	var list mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineConfigPools: %w", err)
	}
	return pointers.To(list.Items), nil
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
