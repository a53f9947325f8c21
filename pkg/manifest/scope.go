package manifest

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ClusterScoped reports whether a built-in kind, served without a CRD, is cluster-scoped.
func ClusterScoped(kind schema.GroupKind) bool {
	return slices.Contains(clusterScoped(), kind.String())
}

// clusterScoped lists the cluster-scoped built-in kinds as Kind.group. The sources of the API types mark them, but the marks are not
// available at run time. A test compares the list with the sources.
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
