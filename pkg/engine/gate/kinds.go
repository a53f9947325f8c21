package gate

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object of the cluster, as its Go type.
type Object interface {
	metav1.Object
	runtime.Object
}

// Kind is a kind of object with a gate.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the name of the kind's resource.
	Resource string
	// New returns an empty object of the type that the gate reads.
	New func() Object

	// check returns the gate's verdict; false if the object has another type.
	check func(obj Object, want Want) (Verdict, bool)
}

// kinds is the only list of kinds with a gate.
var kinds = []Kind{
	newKind(configv1.GroupVersion.WithKind("ClusterOperator"), "clusteroperators", ClusterOperator),
	newKind(crdVersion.WithKind("CustomResourceDefinition"), "customresourcedefinitions", func(crd *CRD, want Want) Verdict {
		return established(crd.Conditioned, want)
	}),
	newKind(apiServiceVersion.WithKind("APIService"), "apiservices", func(service *APIService, want Want) Verdict {
		return available(service.Conditioned, want)
	}),
	newKind(appsv1.SchemeGroupVersion.WithKind("Deployment"), "deployments", Deployment),
	newKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), "daemonsets", DaemonSet),
	newKind(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "statefulsets", StatefulSet),
	newKind(batchv1.SchemeGroupVersion.WithKind("Job"), "jobs", func(job *batchv1.Job, _ Want) Verdict { return Job(job) }),
}

// Kinds returns all kinds with a gate. The caller has to watch their objects.
func Kinds() []Kind { return slices.Clone(kinds) }

// newKind returns a kind whose gate reads objects of type *T.
func newKind[T any, P interface {
	*T
	Object
}](gvk schema.GroupVersionKind, resource string, check func(P, Want) Verdict) Kind {
	return Kind{
		GroupVersionKind: gvk, Resource: resource,
		New: func() Object { return P(new(T)) },
		check: func(obj Object, want Want) (Verdict, bool) {
			o, ok := obj.(P)
			if !ok {
				return Verdict{}, false
			}
			return check(o, want), true
		},
	}
}
