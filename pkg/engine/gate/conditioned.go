package gate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
)

// The versions of the kinds whose objects are decoded as Conditioned.
var (
	crdVersion        = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
	apiServiceVersion = schema.GroupVersion{Group: "apiregistration.k8s.io", Version: "v1"}
)

// Conditioned is an object reduced to its metadata and conditions. Decoding skips everything else: a CRD's schema can be 700 kB of JSON,
// and no gate needs it. Both JSON and protobuf can be decoded.
type Conditioned struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            ConditionedStatus `json:"status,omitempty"`
}

// ConditionedStatus contains only the conditions.
type ConditionedStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

func (c *Conditioned) deepCopy() Conditioned {
	out := Conditioned{TypeMeta: c.TypeMeta}
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	for i := range c.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *c.Status.Conditions[i].DeepCopy())
	}
	return out
}

// CRD is the part of a CustomResourceDefinition that its gate needs.
type CRD struct{ Conditioned }

// DeepCopyObject implements runtime.Object.
func (c *CRD) DeepCopyObject() runtime.Object { return &CRD{c.deepCopy()} }

// APIService is the part of an aggregated API that its gate needs.
type APIService struct{ Conditioned }

// DeepCopyObject implements runtime.Object.
func (a *APIService) DeepCopyObject() runtime.Object { return &APIService{a.deepCopy()} }

// CRDList is a list of CRDs.
type CRDList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CRD `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *CRDList) DeepCopyObject() runtime.Object {
	out := &CRDList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, CRD{l.Items[i].deepCopy()})
	}
	return out
}

// APIServiceList is a list of APIServices.
type APIServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []APIService `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *APIServiceList) DeepCopyObject() runtime.Object {
	out := &APIServiceList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, APIService{l.Items[i].deepCopy()})
	}
	return out
}

// AddToScheme registers the reduced types under the names of the real ones.
func AddToScheme(s *runtime.Scheme) {
	s.AddKnownTypeWithName(crdVersion.WithKind("CustomResourceDefinition"), &CRD{})
	s.AddKnownTypeWithName(crdVersion.WithKind("CustomResourceDefinitionList"), &CRDList{})
	metav1.AddToGroupVersion(s, crdVersion)
	s.AddKnownTypeWithName(apiServiceVersion.WithKind("APIService"), &APIService{})
	s.AddKnownTypeWithName(apiServiceVersion.WithKind("APIServiceList"), &APIServiceList{})
	metav1.AddToGroupVersion(s, apiServiceVersion)
}

// established is the gate of CRDs. Once it settles, clients can create objects of the new kind.
func established(c Conditioned, want Want) Verdict {
	for _, cond := range c.Status.Conditions {
		if cond.Type == "NamesAccepted" && cond.Status == metav1.ConditionFalse {
			v := failed(api.ReasonNamesNotAccepted, "the API server rejects the names of %s: %s", want.Manifest.ID(), cond.Message)
			v.Since = cond.LastTransitionTime.Time
			return v
		}
	}
	return conditionTrue(c, "Established", api.ReasonNotEstablished, want)
}

// available is the gate of aggregated APIs.
func available(a Conditioned, want Want) Verdict {
	return conditionTrue(a, "Available", api.ReasonNotAvailable, want)
}

func conditionTrue(c Conditioned, kind, reason string, want Want) Verdict {
	for _, cond := range c.Status.Conditions {
		if cond.Type != kind {
			continue
		}
		if cond.Status == metav1.ConditionTrue {
			return Verdict{State: Settled}
		}
		v := waiting(reason, "%s is not %s: %s", want.Manifest.ID(), kind, cond.Message)
		v.Since = cond.LastTransitionTime.Time
		return v
	}
	return waiting(reason, "%s is not %s yet", want.Manifest.ID(), kind)
}
