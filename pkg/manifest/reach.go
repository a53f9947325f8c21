package manifest

import (
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
)

// KnownProfiles are the cluster profiles that releases of OpenShift are made for, sorted.
func KnownProfiles() []string {
	return []string{"hypershift", "ibm-cloud-managed", api.DefaultProfile, "single-node-developer"}
}

// Reach says which clusters get a manifest, as far as its annotations decide that, without asking a cluster. Capabilities
// are left aside: all of them can be enabled at once.
type Reach struct {
	// Profiles that include it, sorted; none if nobody gets it.
	Profiles []string
	// FeatureSets that it is for; nil for all.
	FeatureSets []string
	// Gates must be on, or, with a "-" before them, off.
	Gates []string
}

// Reach reads the annotations. What they get wrong is for others to say: see Filter.
func (m *Manifest) Reach() Reach {
	var r Reach
	annotations := m.Object.GetAnnotations()
	for key, value := range annotations {
		if profile, ok := strings.CutPrefix(key, api.IncludePrefix); ok && value == "true" {
			r.Profiles = append(r.Profiles, profile)
		}
	}
	slices.Sort(r.Profiles)
	if value, ok := annotations[api.FeatureSetAnnotation]; ok {
		r.FeatureSets = strings.Split(value, ",")
	}
	if value, ok := annotations[api.FeatureGateAnnotation]; ok {
		for gate := range strings.SplitSeq(value, ",") {
			r.Gates = append(r.Gates, strings.TrimSpace(gate))
		}
	}
	return r
}

// Never reports whether no profile gets it.
func (r Reach) Never() bool { return len(r.Profiles) == 0 }

// Has reports whether a cluster gets it, gates left aside.
func (r Reach) Has(c Cluster) bool {
	return slices.Contains(r.Profiles, c.Profile) && (r.FeatureSets == nil || slices.Contains(r.FeatureSets, c.FeatureSet))
}

// ForMajor reports whether the annotation release.openshift.io/major-version admits a major version; 0 stands for any.
func (m *Manifest) ForMajor(major uint64) bool {
	value := m.annotation(api.MajorVersionAnnotation)
	if value == "" || major == 0 {
		return true
	}
	included, excluded, err := parseMajors(value)
	return err == nil && !excluded.Has(major) && (included.Len() == 0 || included.Has(major))
}

// Cluster is a cluster profile with a feature set, the empty one as Default.
type Cluster struct {
	Profile    string `json:"profile"`
	FeatureSet string `json:"featureSet"`
}

// String reads like `self-managed-high-availability/Default`.
func (c Cluster) String() string { return fmt.Sprintf("%s/%s", c.Profile, c.FeatureSet) }

// FeatureGates returns the gates that a FeatureGate of the release says are on and off; other manifests have none.
func (m *Manifest) FeatureGates() (enabled, disabled []string) {
	if !m.Is("config.openshift.io", "FeatureGate") {
		return nil, nil
	}
	status, _ := m.Object.Object["status"].(map[string]any)
	list, _ := status["featureGates"].([]any)
	names := func(value any) []string {
		var out []string
		gates, _ := value.([]any)
		for _, gate := range gates {
			attributes, _ := gate.(map[string]any)
			if name, ok := attributes["name"].(string); ok {
				out = append(out, name)
			}
		}
		return out
	}
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		enabled, disabled = append(enabled, names(fields["enabled"])...), append(disabled, names(fields["disabled"])...)
	}
	return enabled, disabled
}

// FeatureGateClusters returns the clusters that a FeatureGate of the release is about. Its include annotations name their
// profiles, though with a value for which nobody applies it; without a feature set it is about Default.
func (m *Manifest) FeatureGateClusters() []Cluster {
	annotations := m.Object.GetAnnotations()
	featureSets := []string{defaultFeatureSet}
	if value, ok := annotations[api.FeatureSetAnnotation]; ok {
		featureSets = strings.Split(value, ",")
	}
	var out []Cluster
	for key := range annotations {
		profile, ok := strings.CutPrefix(key, api.IncludePrefix)
		if !ok {
			continue
		}
		for _, set := range featureSets {
			out = append(out, Cluster{profile, set})
		}
	}
	slices.SortFunc(out, func(a, b Cluster) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// Gates are the feature gates that a release enables, by cluster.
type Gates map[Cluster]sets.Set[string]

// ReadGates takes the gates from a release's FeatureGates for its major version; 0 stands for any.
func ReadGates(manifests []*Manifest, major uint64) Gates {
	out := Gates{}
	for _, m := range manifests {
		enabled, disabled := m.FeatureGates()
		if len(enabled)+len(disabled) == 0 || !m.ForMajor(major) {
			continue
		}
		for _, c := range m.FeatureGateClusters() {
			out[c] = sets.New(enabled...)
		}
	}
	return out
}

// Clusters lists the clusters that get all manifests of such reaches at once, sorted; of clusters whose gates are not
// known, and of those whose gates anybody may set, any gate may be on.
func (g Gates) Clusters(all ...Reach) []Cluster {
	var out []Cluster
	for _, profile := range all[0].Profiles {
		for _, set := range KnownFeatureSets() {
			if c := (Cluster{profile, set}); g.admits(c, all) {
				out = append(out, c)
			}
		}
	}
	return out
}

// Includes reports whether a cluster gets a manifest of such a reach.
func (g Gates) Includes(c Cluster, r Reach) bool { return g.admits(c, []Reach{r}) }

func (g Gates) admits(c Cluster, all []Reach) bool {
	on, off := sets.New[string](), sets.New[string]()
	for _, r := range all {
		if !r.Has(c) {
			return false
		}
		for _, gate := range r.Gates {
			if name, negated := strings.CutPrefix(gate, "-"); negated {
				off.Insert(name)
			} else {
				on.Insert(gate)
			}
		}
	}
	if on.HasAny(off.UnsortedList()...) {
		return false
	}
	enabled, known := g[c]
	if !known || c.FeatureSet == string(configv1.CustomNoUpgrade) {
		return true
	}
	return enabled.IsSuperset(on) && !enabled.HasAny(off.UnsortedList()...)
}

// ClusterScoped reports whether a kind that is served without a CRD has no namespace.
func ClusterScoped(kind schema.GroupKind) bool {
	return slices.Contains(clusterScoped(), kind.String())
}

// clusterScoped lists them as Kind.group. A test compares the list with the marks in the sources of the API types, which
// nothing tells at run time.
func clusterScoped() []string {
	return []string{
		"ComponentStatus", "Namespace", "Node", "PersistentVolume",
		"APIService.apiregistration.k8s.io",
		"CustomResourceDefinition.apiextensions.k8s.io",
		"MutatingAdmissionPolicy.admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding.admissionregistration.k8s.io",
		"MutatingWebhookConfiguration.admissionregistration.k8s.io",
		"ValidatingAdmissionPolicy.admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io",
		"ValidatingWebhookConfiguration.admissionregistration.k8s.io",
		"CertificateSigningRequest.certificates.k8s.io", "ClusterTrustBundle.certificates.k8s.io",
		"ClusterRole.rbac.authorization.k8s.io", "ClusterRoleBinding.rbac.authorization.k8s.io",
		"FlowSchema.flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io",
		"IngressClass.networking.k8s.io", "IPAddress.networking.k8s.io", "ServiceCIDR.networking.k8s.io",
		"PriorityClass.scheduling.k8s.io", "RuntimeClass.node.k8s.io",
		"StorageVersion.internal.apiserver.k8s.io", "StorageVersionMigration.storagemigration.k8s.io",
		"CSIDriver.storage.k8s.io", "CSINode.storage.k8s.io", "StorageClass.storage.k8s.io",
		"VolumeAttachment.storage.k8s.io", "VolumeAttributesClass.storage.k8s.io",
		"DeviceClass.resource.k8s.io", "DeviceTaintRule.resource.k8s.io", "ResourcePoolStatusRequest.resource.k8s.io",
		"ResourceSlice.resource.k8s.io",
		"ClusterRole.authorization.openshift.io", "ClusterRoleBinding.authorization.openshift.io",
		"Image.image.openshift.io", "ImageSignature.image.openshift.io",
		"OAuthAccessToken.oauth.openshift.io", "OAuthAuthorizeToken.oauth.openshift.io", "OAuthClient.oauth.openshift.io",
		"OAuthClientAuthorization.oauth.openshift.io", "UserOAuthAccessToken.oauth.openshift.io",
		"Project.project.openshift.io", "ProjectRequest.project.openshift.io",
		"BrokerTemplateInstance.template.openshift.io",
		"Group.user.openshift.io", "Identity.user.openshift.io", "User.user.openshift.io", "UserIdentityMapping.user.openshift.io",
	}
}
