package cluster

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/engine/gate"
)

// slim removes the fields of watched objects that no gate reads, and bounds the rest, because other clients may write objects of a release.
func slim(in any) (any, error) {
	obj, ok := in.(client.Object)
	if !ok {
		return in, nil
	}
	obj.SetManagedFields(nil)
	obj.SetAnnotations(nil)
	obj.SetOwnerReferences(nil)
	obj.SetFinalizers(first(obj.GetFinalizers(), maxFinalizers))
	if _, isOperator := obj.(*configv1.ClusterOperator); !isOperator {
		obj.SetLabels(nil)
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		o.Spec = appsv1.DeploymentSpec{Replicas: o.Spec.Replicas, Paused: o.Spec.Paused}
		o.Status.Conditions = slimConditions(o.Status.Conditions, func(c *appsv1.DeploymentCondition) *string { return &c.Message })
	case *appsv1.DaemonSet:
		o.Spec = appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: o.Spec.UpdateStrategy.Type}}
		o.Status.Conditions = nil
	case *appsv1.StatefulSet:
		o.Spec = appsv1.StatefulSetSpec{Replicas: o.Spec.Replicas, UpdateStrategy: o.Spec.UpdateStrategy}
		o.Status.Conditions = nil
	case *batchv1.Job:
		o.Spec = batchv1.JobSpec{}
		o.Status = batchv1.JobStatus{
			Conditions: slimConditions(o.Status.Conditions, func(c *batchv1.JobCondition) *string { return &c.Message }),
		}
	case *gate.CRD:
		o.Status.Conditions = slimConditions(o.Status.Conditions, func(c *metav1.Condition) *string { return &c.Message })
	case *gate.APIService:
		o.Status.Conditions = slimConditions(o.Status.Conditions, func(c *metav1.Condition) *string { return &c.Message })
	}
	return obj, nil
}

// Bounds of an object in the cache. No Kubernetes controller comes close to them.
const (
	maxFinalizers = 8
	maxConditions = 16
	// maxMessage is in bytes.
	maxMessage = 4096
)

// slimConditions bounds the number of conditions and the length of their messages.
func slimConditions[C any](conditions []C, message func(*C) *string) []C {
	conditions = first(conditions, maxConditions)
	for i := range conditions {
		if text := message(&conditions[i]); len(*text) > maxMessage {
			*text = printable.Excerpt(*text, maxMessage)
		}
	}
	return conditions
}

// first returns at most limit entries from the start of list, without the memory of the rest.
func first[E any](list []E, limit int) []E {
	if len(list) <= limit {
		return list
	}
	return slices.Clone(list[:limit])
}
