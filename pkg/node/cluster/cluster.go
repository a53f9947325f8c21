// Package cluster has what the processes of the node stage need to read and write a cluster: the kinds of objects, and for the controllers the
// contents of the cache, the changes of nodes and budgets that matter, and the delay after a conflict.
package cluster

import (
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/cluster-version/cvo/pkg/node/plan"
)

// ConflictRetry is the delay after a write that met a change of the Node which the cache did not show. The event of that change may be one that
// the controllers ignore.
const ConflictRetry = 50 * time.Millisecond

// NewScheme returns a scheme with the types that the processes read and write.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcfgv1.Install, configv1.Install, operatorv1.Install} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("preparing scheme: %w", err)
		}
	}
	return scheme, nil
}

// OnNodeChanges limits a watch of nodes to the updates that matter. Most others are heartbeats.
func OnNodeChanges(matters func(before, after *corev1.Node) bool) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, wasNode := e.ObjectOld.(*corev1.Node)
		after, isNode := e.ObjectNew.(*corev1.Node)
		return !wasNode || !isNode || matters(before, after)
	}})
}

// OnFreeingChanges limits a watch of PodDisruptionBudgets to the updates that may end a wait. Most others follow an eviction.
func OnFreeingChanges() builder.Predicates { return builder.WithPredicates(freeingChanges) }

var freeingChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, wasBudget := e.ObjectOld.(*policyv1.PodDisruptionBudget)
	after, isBudget := e.ObjectNew.(*policyv1.PodDisruptionBudget)
	return !wasBudget || !isBudget || plan.Frees(before, after)
}}
