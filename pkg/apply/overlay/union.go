package overlay

import (
	"reflect"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/apply/builtin"
)

// unions lists the union members in built-in kinds by Go type. An object may have only one member of a union, or a member only with one
// value of another field, such as `type`. nil stands for all fields. The API's schema does not list unions (KEP-1027 marks only a few, and
// the server drops the marks).
func unions() map[reflect.Type][]string {
	return map[reflect.Type][]string{
		reflect.TypeFor[corev1.VolumeSource]():           nil,
		reflect.TypeFor[corev1.PersistentVolumeSource](): nil,
		reflect.TypeFor[corev1.ProbeHandler]():           nil,
		reflect.TypeFor[corev1.LifecycleHandler]():       nil,
		reflect.TypeFor[corev1.EnvVarSource]():           nil,
		reflect.TypeFor[corev1.EnvVar]():                 {"value", "valueFrom"},
		reflect.TypeFor[corev1.SeccompProfile]():         {"localhostProfile"},
		reflect.TypeFor[corev1.AppArmorProfile]():        {"localhostProfile"},
		reflect.TypeFor[corev1.ServicePort]():            {"nodePort"},
		reflect.TypeFor[corev1.ServiceSpec](): {
			"allocateLoadBalancerNodePorts", "clusterIP", "clusterIPs", "externalName", "externalTrafficPolicy", "healthCheckNodePort",
			"internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "loadBalancerClass", "loadBalancerIP", "loadBalancerSourceRanges",
			"sessionAffinityConfig",
		},
		reflect.TypeFor[appsv1.DeploymentStrategy]():                   {"rollingUpdate"},
		reflect.TypeFor[appsv1.DaemonSetUpdateStrategy]():              {"rollingUpdate"},
		reflect.TypeFor[appsv1.StatefulSetUpdateStrategy]():            {"rollingUpdate"},
		reflect.TypeFor[autoscalingv2.MetricSpec]():                    {"containerResource", "external", "object", "pods", "resource"},
		reflect.TypeFor[autoscalingv2.MetricTarget]():                  {"averageUtilization", "averageValue", "value"},
		reflect.TypeFor[networkingv1.IngressBackend]():                 {"resource", "service"},
		reflect.TypeFor[networkingv1.ServiceBackendPort]():             {"name", "number"},
		reflect.TypeFor[networkingv1.NetworkPolicyPeer]():              {"ipBlock", "namespaceSelector", "podSelector"},
		reflect.TypeFor[policyv1.PodDisruptionBudgetSpec]():            {"maxUnavailable", "minAvailable"},
		reflect.TypeFor[flowcontrolv1.Subject]():                       {"group", "serviceAccount", "user"},
		reflect.TypeFor[admissionregistrationv1.WebhookClientConfig](): {"service", "url"},
		reflect.TypeFor[apiextensionsv1.WebhookClientConfig]():         {"service", "url"},
		reflect.TypeFor[apiextensionsv1.CustomResourceConversion]():    {"webhook"},
	}
}

// isMember reports whether a path leads to a member of a union.
func (o *Overlay) isMember(path fieldpath.Path) bool {
	t := builtin.Type(o.kind)
	for i, step := range path {
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case t == nil:
			return false
		case step.FieldName == nil:
			if t.Kind() != reflect.Slice {
				return false
			}
			t = t.Elem()
		case t.Kind() == reflect.Map:
			t = t.Elem()
		case t.Kind() != reflect.Struct:
			return false
		case i == len(path)-1:
			return hasMember(t, *step.FieldName)
		default:
			t = builtin.Fields(t)[*step.FieldName]
		}
	}
	return false
}

// hasMember reports whether a struct, or one embedded in it, is a union with the given member.
func hasMember(t reflect.Type, name string) bool {
	if members, ok := unions()[t]; ok {
		if members == nil {
			return builtin.Fields(t)[name] != nil
		}
		return slices.Contains(members, name)
	}
	for f := range t.Fields() {
		if f.Anonymous && f.Type.Kind() == reflect.Struct && hasMember(f.Type, name) {
			return true
		}
	}
	return false
}
