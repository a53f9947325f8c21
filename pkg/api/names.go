// Package api holds the names that travel over the wire between the version operator, its clients and the payloads:
// objects, annotations, labels, condition types, reasons. The types behind them come from github.com/openshift/api.
// It contains no behaviour; where a name is read by existing tools, compatibility with OpenShift decides it.
package api

// Objects and namespaces that every cluster has.
const (
	// ClusterVersionName is the name of the one ClusterVersion object.
	ClusterVersionName = "version"
	// OperatorNamespace is where the operator runs unless it is told otherwise.
	OperatorNamespace = "openshift-cluster-version"
	// OperatorDeployment is the Deployment in that namespace whose pods the operator is.
	OperatorDeployment = "cluster-version-operator"
	// ReleaseRole is the ClusterRole, and its binding, with what applying the running release takes; UpdateRole has what an
	// update or a preflight takes beyond, for as long as that lasts.
	ReleaseRole = "cluster-version-operator-release"
	UpdateRole  = "cluster-version-operator-update"
	// OperatorServiceAccount is the account in that namespace that the operator runs as.
	OperatorServiceAccount = "cluster-version-operator"
	// ConfigNamespace holds configuration written by administrators, such as the pull secret.
	ConfigNamespace = "openshift-config"
	// ConfigManagedNamespace holds configuration written by operators, such as signature ConfigMaps.
	ConfigManagedNamespace = "openshift-config-managed"
	// MachineConfigOperator is the ClusterOperator whose gate hands the nodes over to the node stage.
	MachineConfigOperator = "machine-config"
)

// Objects in ConfigNamespace and ConfigManagedNamespace that say how the outside is reached and who is trusted there.
const (
	// PullSecret holds credentials for registries.
	PullSecret = "pull-secret"
	// PullSecretCopy is a copy of it in the operator's namespace, which the operator's pods are started with.
	PullSecretCopy            = "cluster-version-operator-pull-secret"
	PullSecretCopyDescription = "Copy of Secret " + ConfigNamespace + "/" + PullSecret + ", which the version operator keeps equal."
	// TrustedCABundle holds the certificates that the cluster trusts, under CABundleKey.
	TrustedCABundle = "trusted-ca-bundle"
	CABundleKey     = "ca-bundle.crt"
	// ServingCAName is that of the Secret with the operator's own CA, and of the ConfigMap with its certificates for clients.
	ServingCAName = "cluster-version-operator-serving-ca"
	// TrustConfigMap holds an administrator's trust policy, in the form of --trust.
	TrustConfigMap = "cluster-version-operator-trust"
	// AdminGatesConfigMap, in ConfigManagedNamespace, holds what an administrator has to acknowledge before an update to
	// another minor version, AdminAcksConfigMap, in ConfigNamespace, what has been acknowledged.
	AdminGatesConfigMap = "admin-gates"
	AdminAcksConfigMap  = "admin-acks"
)

// FieldManager is the server-side apply field manager of everything the operator writes. It is the name that
// OpenShift's operator writes under, so ownership carries over when a cluster moves.
const FieldManager = "cluster-version-operator"

// OwnedByLabel marks every object that a release brought; its value is the name of the ClusterVersion. Watches
// select on it.
const OwnedByLabel = "cvo.cluster-version.github.io/owned-by"

// InventoryLabel marks the ConfigMaps that hold what releases have applied; its value is the name of the ClusterVersion.
// They do not carry OwnedByLabel: no release brings them.
const InventoryLabel = "cvo.cluster-version.github.io/inventory"

// ApplySetLabel marks the members of an ApplySet; its value is the ID of the set (KEP-3659, "kubectl apply --prune").
const ApplySetLabel = "applyset.kubernetes.io/part-of"

// Annotations on manifests that change what is sent for them, and annotations and labels that tell who fills in a part
// of an object.
const (
	// InjectProxyAnnotation names the containers, by commas, that get the cluster's proxy.
	InjectProxyAnnotation = "config.openshift.io/inject-proxy"
	// InjectTLSAnnotation asks for the cluster's TLS profile in the configuration files of a ConfigMap.
	InjectTLSAnnotation = "config.openshift.io/inject-tls"
	// InjectCABundleAnnotation asks OpenShift's service CA operator for its CA.
	InjectCABundleAnnotation = "service.beta.openshift.io/inject-cabundle"
	// InjectTrustedCABundleLabel asks OpenShift's network operator for the cluster's CAs.
	InjectTrustedCABundleLabel = "config.openshift.io/inject-trusted-cabundle"
)

// Annotations that ask cert-manager's CA injector for a CA.
const (
	CertManagerInjectAnnotation          = "cert-manager.io/inject-ca-from"
	CertManagerInjectSecretAnnotation    = "cert-manager.io/inject-ca-from-secret"
	CertManagerInjectAPIServerAnnotation = "cert-manager.io/inject-apiserver-ca"
)

// PruneAnnotation, "true" on the ClusterVersion or in the metadata of a release, has the objects of earlier releases that
// no manifest names any more deleted, once the release is complete.
const PruneAnnotation = "cvo.cluster-version.github.io/prune-orphans"

// KubernetesVersionsKey in the metadata of a release gives the range of API server versions that the release is made for,
// such as ">=1.30.0 <1.38.0".
const KubernetesVersionsKey = "cvo.cluster-version.github.io/kubernetes-versions"

// UserDocs is where the pages for users are read.
const UserDocs = "https://github.com/cluster-version/cvo/blob/main/docs/user/"

// Annotations on manifests that decide whether and how a manifest is applied (reference: OpenShift library-go
// manifest inclusion rules, and the operator's own apply rules).
const (
	IncludePrefix              = "include.release.openshift.io/"
	ExcludePrefix              = "exclude.release.openshift.io/"
	FeatureSetAnnotation       = "release.openshift.io/feature-set"
	FeatureGateAnnotation      = "release.openshift.io/feature-gate"
	MajorVersionAnnotation     = "release.openshift.io/major-version"
	CapabilityAnnotation       = "capability.openshift.io/name"
	CreateOnlyAnnotation       = "release.openshift.io/create-only"
	DeleteAnnotation           = "release.openshift.io/delete"
	OnImmutableAnnotation      = "release.openshift.io/on-immutable"
	VerificationAnnotation     = "release.openshift.io/verification-config-map"
	VerificationSignatureLabel = "release.openshift.io/verification-signatures"
)

// DefaultProfile is the cluster profile when CLUSTER_PROFILE is unset.
const DefaultProfile = "self-managed-high-availability"

// Labels of release and component images.
const (
	// ReleaseLabel carries a release image's version.
	ReleaseLabel = "io.openshift.release"
	// ReleaseBaseLabel carries the digest of the image that a release image was built on.
	ReleaseBaseLabel = "io.openshift.release.base-image-digest"
	// OperatorLabel marks a component image that contributes manifests.
	OperatorLabel = "io.openshift.release.operator"
	// ComponentVersionsLabel lists the versions of things inside a component image, as "k=v,k2=v2".
	ComponentVersionsLabel = "io.openshift.build.versions"
	// ComponentDisplayNamesLabel says what people call them, as "k=text,k2=text".
	ComponentDisplayNamesLabel = "io.openshift.build.version-display-names"
)
