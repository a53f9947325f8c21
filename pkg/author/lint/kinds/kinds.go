// Package kinds contains the rules about kinds and their fields. From the types of Kubernetes and OpenShift, it derives which kinds API
// servers serve without a CRD, and in which versions of Kubernetes. It takes the objects of a release, and adds findings about their kind,
// API version, namespace and fields.
package kinds

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	openshiftapps "github.com/openshift/api/apps/v1"
	openshiftauthorization "github.com/openshift/api/authorization/v1"
	openshiftbuild "github.com/openshift/api/build/v1"
	openshiftimage "github.com/openshift/api/image/v1"
	openshiftoauth "github.com/openshift/api/oauth/v1"
	openshiftproject "github.com/openshift/api/project/v1"
	openshiftroute "github.com/openshift/api/route/v1"
	openshifttemplate "github.com/openshift/api/template/v1"
	openshiftuser "github.com/openshift/api/user/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	eventsv1 "k8s.io/api/events/v1"
	eventsv1beta1 "k8s.io/api/events/v1beta1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1alpha1 "k8s.io/api/storage/v1alpha1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Version is a minor release of Kubernetes.
type Version struct{ major, minor int }

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v Version) zero() bool { return v == Version{} }

func (v Version) atLeast(other Version) bool {
	return cmp.Or(cmp.Compare(v.major, other.major), cmp.Compare(v.minor, other.minor)) >= 0
}

// newestKubernetes is the version of the imported API types: minor version 37 for modules v0.37.
var newestKubernetes = Version{1, 37}

var versionPattern = regexp.MustCompile(`^v?(\d{1,4})\.(\d{1,4})(?:[.+-].*)?$`)

// ParseVersion parses a version such as 1.36, 1.36.3 or v1.36.0-rc.1. It ignores everything after the minor version.
func ParseVersion(s string) (Version, error) {
	match := versionPattern.FindStringSubmatch(s)
	if match == nil {
		return Version{}, fmt.Errorf("%q is not a Kubernetes version: use a format such as 1.36", s)
	}
	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])
	return Version{major, minor}, nil
}

// Target returns the first valid version, or the newest known version if there is none.
func Target(candidates ...string) Version {
	for _, s := range candidates {
		if v, err := ParseVersion(s); err == nil {
			return v
		}
	}
	return newestKubernetes
}

// kind describes a kind in an API version.
type kind struct {
	goType reflect.Type
	// clusterScoped is set if objects have no namespace.
	clusterScoped bool
	// aggregated is set if an API server of OpenShift serves the kind. The release contains that server.
	aggregated bool

	introduced, deprecated, removed Version
	// replacement is the successor, such as `policy/v1 PodDisruptionBudget`.
	replacement string
}

// kinds contains the kinds that an API server serves without a CRD.
type kinds struct {
	byGVK map[schema.GroupVersionKind]kind
	// versions lists all versions of a kind, including versions that are no longer served.
	versions map[schema.GroupKind][]string
	groups   map[string]bool
}

// servedKinds is computed only once, because it depends only on the API types in this binary.
var servedKinds = sync.OnceValue(func() kinds {
	out := kinds{byGVK: map[schema.GroupVersionKind]kind{}, versions: map[schema.GroupKind][]string{}, groups: map[string]bool{}}
	out.add(builtIn(), false)
	out.add(aggregated(), true)
	// The Go types of these kinds are not worth importing: kube-aggregator's are in a separate module, and the old CRD's
	// cost half a megabyte of the binary.
	services := schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}
	out.put(services, kind{clusterScoped: true})
	out.put(services.GroupKind().WithVersion("v1beta1"), kind{
		clusterScoped: true, deprecated: Version{1, 19}, removed: Version{1, 22}, replacement: "apiregistration.k8s.io/v1 APIService",
	})
	out.put(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition").GroupKind().WithVersion("v1beta1"), kind{
		clusterScoped: true, introduced: Version{1, 7}, deprecated: Version{1, 16}, removed: Version{1, 22},
		replacement: "apiextensions.k8s.io/v1 CustomResourceDefinition",
	})
	for _, versions := range out.versions {
		slices.Sort(versions)
	}
	return out
})

func builtIn() *runtime.Scheme {
	return schemeOf(
		admissionregistrationv1.AddToScheme, admissionregistrationv1alpha1.AddToScheme, admissionregistrationv1beta1.AddToScheme,
		apiserverinternalv1alpha1.AddToScheme, appsv1.AddToScheme, appsv1beta1.AddToScheme, appsv1beta2.AddToScheme,
		autoscalingv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, batchv1beta1.AddToScheme,
		certificatesv1.AddToScheme, certificatesv1alpha1.AddToScheme, certificatesv1beta1.AddToScheme,
		coordinationv1.AddToScheme, coordinationv1alpha2.AddToScheme, coordinationv1beta1.AddToScheme, corev1.AddToScheme,
		discoveryv1.AddToScheme, discoveryv1beta1.AddToScheme, eventsv1.AddToScheme, eventsv1beta1.AddToScheme,
		extensionsv1beta1.AddToScheme, flowcontrolv1.AddToScheme, flowcontrolv1beta1.AddToScheme, flowcontrolv1beta2.AddToScheme,
		flowcontrolv1beta3.AddToScheme, networkingv1.AddToScheme, networkingv1beta1.AddToScheme, nodev1.AddToScheme,
		nodev1alpha1.AddToScheme, nodev1beta1.AddToScheme, policyv1.AddToScheme, policyv1beta1.AddToScheme, rbacv1.AddToScheme,
		rbacv1alpha1.AddToScheme, rbacv1beta1.AddToScheme, resourcev1.AddToScheme, resourcev1alpha3.AddToScheme,
		resourcev1beta1.AddToScheme, resourcev1beta2.AddToScheme, schedulingv1.AddToScheme, schedulingv1alpha3.AddToScheme,
		schedulingv1beta1.AddToScheme, storagev1.AddToScheme, storagev1alpha1.AddToScheme, storagev1beta1.AddToScheme,
		storagemigrationv1.AddToScheme, storagemigrationv1beta1.AddToScheme,
		apiextensionsv1.AddToScheme,
	)
}

// aggregated returns the APIs of OpenShift's own API servers. OpenShift's other APIs are CRDs in a release.
func aggregated() *runtime.Scheme {
	return schemeOf(
		openshiftapps.Install, openshiftauthorization.Install, openshiftbuild.Install, openshiftimage.Install,
		openshiftoauth.Install, openshiftproject.Install, openshiftroute.Install, openshifttemplate.Install, openshiftuser.Install,
	)
}

func schemeOf(adds ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range adds {
		utilruntime.Must(add(scheme)) // fails only for two types with the same name, which tests would detect
	}
	return scheme
}

func (k kinds) put(gvk schema.GroupVersionKind, value kind) {
	if _, known := k.byGVK[gvk]; known {
		return
	}
	k.byGVK[gvk] = value
	k.versions[gvk.GroupKind()] = append(k.versions[gvk.GroupKind()], gvk.Version)
	k.groups[gvk.Group] = true
}

var objectMeta = reflect.TypeFor[metav1.ObjectMeta]()

func (k kinds) add(scheme *runtime.Scheme, aggregated bool) {
	for gvk, t := range scheme.AllKnownTypes() {
		meta, ok := t.FieldByName("ObjectMeta")
		if !ok || meta.Type != objectMeta || gvk.Version == runtime.APIVersionInternal {
			continue // options, lists and similar types
		}
		if aggregated && !strings.HasSuffix(gvk.Group, ".openshift.io") {
			continue // OpenShift's schemes include types that their own types refer to
		}
		value := kind{
			goType: t, aggregated: aggregated,
			clusterScoped: manifest.ClusterScoped(gvk.GroupKind()),
		}
		value.lifecycle(reflect.New(t).Interface())
		k.put(gvk, value)
	}
}

func (k *kind) lifecycle(object any) {
	if o, ok := object.(interface{ APILifecycleIntroduced() (int, int) }); ok {
		k.introduced.major, k.introduced.minor = o.APILifecycleIntroduced()
	}
	if o, ok := object.(interface{ APILifecycleDeprecated() (int, int) }); ok {
		k.deprecated.major, k.deprecated.minor = o.APILifecycleDeprecated()
	}
	if o, ok := object.(interface{ APILifecycleRemoved() (int, int) }); ok {
		k.removed.major, k.removed.minor = o.APILifecycleRemoved()
	}
	if o, ok := object.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		gvk := o.APILifecycleReplacement()
		k.replacement = gvk.GroupVersion().String() + " " + gvk.Kind
	}
}

// served reports whether an API server of the given version serves the kind.
func (k kind) served(at Version) bool {
	return at.atLeast(k.introduced) && (k.removed.zero() || !at.atLeast(k.removed))
}

// offByDefault reports whether an API server serves the kind only if it is enabled. This applies to alpha versions, and to beta versions
// introduced since Kubernetes 1.24 (KEP-3136).
func (k kind) offByDefault(apiVersion string) bool {
	return !k.aggregated && (strings.Contains(apiVersion, "alpha") ||
		strings.Contains(apiVersion, "beta") && k.introduced.atLeast(Version{1, 24}))
}
