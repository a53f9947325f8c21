// Package api holds the names that the version operator, its clients and its payloads exchange: objects, annotations, labels, condition
// types and reasons, and the types of our own objects. The other types are in github.com/openshift/api. Names that existing tools read are
// the same as in OpenShift. The only behavior is in three functions: one finds a condition, one shortens a text and one rewords an error.
package api

// Objects and namespaces that every cluster has.
const (
	// ClusterVersionName is the name of the only ClusterVersion object.
	ClusterVersionName = "version"
	// OperatorNamespace is the operator's default namespace.
	OperatorNamespace = "openshift-cluster-version"
	// OperatorDeployment is the name of the operator's Deployment in that namespace, also in OpenShift. Its container has the same name.
	OperatorDeployment = "cluster-version-operator"
	// OperatorService is the name of the Service in front of the operator's endpoint.
	OperatorService = "cluster-version-operator"
	// OperatorComponent is the component of the operator's own manifests, by convention.
	OperatorComponent = "cluster-version-operator"
	// ReleaseRole is the name of the ClusterRole with the permissions to apply the running release, and of its binding. UpdateRole adds
	// permissions while an update or a preflight runs.
	ReleaseRole = "cluster-version-operator-release"
	UpdateRole  = "cluster-version-operator-update"
	// OperatorServiceAccount is the operator's account in that namespace.
	OperatorServiceAccount = "cluster-version-operator"
	// ConfigNamespace holds configuration written by administrators, such as the pull secret.
	ConfigNamespace = "openshift-config"
	// ConfigManagedNamespace holds configuration written by operators, such as signature ConfigMaps.
	ConfigManagedNamespace = "openshift-config-managed"
	// MachineConfigOperator is the ClusterOperator whose gate hands the nodes over to the node stage.
	MachineConfigOperator = "machine-config"
)

// Objects in ConfigNamespace and ConfigManagedNamespace that configure trust and access to external servers.
const (
	// PullSecret holds credentials for registries.
	PullSecret = "pull-secret"
	// PullSecretCopy is a copy of PullSecret in the operator's namespace, for the operator's pods.
	PullSecretCopy            = "cluster-version-operator-pull-secret"
	PullSecretCopyDescription = "Copy of Secret " + ConfigNamespace + "/" + PullSecret + ", kept in sync by the version operator."
	// TrustedCABundle holds the certificates that the cluster trusts, under CABundleKey.
	TrustedCABundle = "trusted-ca-bundle"
	CABundleKey     = "ca-bundle.crt"
	// ServingCAName names the Secret with the operator's own CA, and the ConfigMap with its certificates for clients.
	ServingCAName = "cluster-version-operator-serving-ca"
	// TrustConfigMap holds an administrator's trust policy, in the format of --trust.
	TrustConfigMap = "cluster-version-operator-trust"
	// RegistriesConfigMap lists the registries without TLS, and the mirror sets, that were given to 'cvo install'.
	RegistriesConfigMap = "cluster-version-operator-registries"
	// AdminGatesConfigMap, in ConfigManagedNamespace, lists the gates that an administrator must acknowledge before an update to another
	// minor version. AdminAcksConfigMap, in ConfigNamespace, holds the acknowledgments.
	AdminGatesConfigMap = "admin-gates"
	AdminAcksConfigMap  = "admin-acks"
)

// FieldManager is the field manager for all server-side apply requests of the operator. OpenShift's operator uses the same name, so a
// migrated cluster keeps its field ownership.
const FieldManager = "cluster-version-operator"

// ManagedFieldsManager is the field manager for writes of metadata.managedFields alone. The API server treats such a write as one of the whole
// object: it fills in the defaults of the request's version, and calls those that the stored version drops fields of the writer, at every
// write. They must not count as fields of an earlier operator, which has the name FieldManager.
const ManagedFieldsManager = FieldManager + "-managed-fields"

// UserDocs is the address of the pages for users.
const UserDocs = "https://github.com/cluster-version/cvo/blob/main/docs/user/"

// DefaultProfile is the cluster profile when CLUSTER_PROFILE is unset.
const DefaultProfile = "self-managed-high-availability"

// Annotations of manifests that decide whether and how the operator applies them. They are the same as in OpenShift, except for the last one.
const (
	// IncludePrefix with the name of a cluster profile is "true" on every manifest for clusters with this profile. A manifest without it is
	// excluded.
	IncludePrefix = "include.release.openshift.io/"
	// ExcludePrefix with the value of the operator's variable EXCLUDE_MANIFESTS is "true" on manifests that this cluster excludes.
	ExcludePrefix = "exclude.release.openshift.io/"
	// FeatureSetAnnotation lists the feature sets of clusters that get the manifest, separated by commas.
	FeatureSetAnnotation = "release.openshift.io/feature-set"
	// FeatureGateAnnotation lists feature gates that must be on, or off if their name begins with a dash, separated by commas.
	FeatureGateAnnotation = "release.openshift.io/feature-gate"
	// MajorVersionAnnotation lists the major versions of releases that include the manifest, or exclude it after a dash, separated by commas. It
	// is allowed on FeatureGates and CustomResourceDefinitions.
	MajorVersionAnnotation = "release.openshift.io/major-version"
	// CapabilityAnnotation lists capabilities, separated by "+". Clusters get the manifest if all of them are enabled.
	// `cvo release lint --explain unknown-capability` lists the names, which are fixed.
	CapabilityAnnotation = "capability.openshift.io/name"
	// CreateOnlyAnnotation is "true" if the operator creates the object when it is missing, and never updates or prunes it.
	CreateOnlyAnnotation = "release.openshift.io/create-only"
	// DeleteAnnotation is "true" on a tombstone: the operator deletes the object.
	DeleteAnnotation = "release.openshift.io/delete"
	// OnImmutableAnnotation is "recreate" if the operator may delete and recreate the object to change an immutable field. See
	// docs/user/whose-fields.md#immutable-fields.
	OnImmutableAnnotation = "release.openshift.io/on-immutable"
	// VerificationAnnotation marks the ConfigMap with the keys that verify the next release: docs/user/trust.md.
	VerificationAnnotation = "release.openshift.io/verification-config-map"
	// WaitAnnotation is "false" on a Deployment, DaemonSet or StatefulSet if no rollout waits for its pods.
	WaitAnnotation = "cvo.cluster-version.github.io/wait"
)

// Annotations and a label of manifests that request values of the cluster. The operator inserts the first two itself. It leaves the others to
// the named controllers, and their values in place.
const (
	// InjectProxyAnnotation lists the containers, separated by commas, that get the cluster's proxy.
	InjectProxyAnnotation = "config.openshift.io/inject-proxy"
	// InjectTLSAnnotation requests the cluster's TLS profile in the configuration files of a ConfigMap.
	InjectTLSAnnotation = "config.openshift.io/inject-tls"
	// InjectCABundleAnnotation requests the CA of OpenShift's service CA operator.
	InjectCABundleAnnotation = "service.beta.openshift.io/inject-cabundle"
	// InjectTrustedCABundleLabel requests the cluster's CAs from OpenShift's network operator.
	InjectTrustedCABundleLabel = "config.openshift.io/inject-trusted-cabundle"
	// CertManagerInjectAnnotation requests the CA of a certificate of cert-manager.
	CertManagerInjectAnnotation = "cert-manager.io/inject-ca-from"
	// CertManagerInjectSecretAnnotation requests the CA in a Secret from cert-manager.
	CertManagerInjectSecretAnnotation = "cert-manager.io/inject-ca-from-secret"
	// CertManagerInjectAPIServerAnnotation requests the CA of the API server from cert-manager.
	CertManagerInjectAPIServerAnnotation = "cert-manager.io/inject-apiserver-ca"
)

// Annotations of the ClusterVersion and of our CRDs, and keys of a release's metadata.
const (
	// PruneAnnotation enables deletion of orphans if it is "true" on the ClusterVersion or in a release's metadata. Orphans are objects of
	// earlier releases without a manifest in the current one. The operator deletes them after the release is complete. See
	// docs/user/whose-fields.md#orphans.
	PruneAnnotation = "cvo.cluster-version.github.io/prune-orphans"
	// KubernetesVersionsKey is the key in a release's metadata for the supported range of API server versions, such as ">=1.30.0 <1.38.0". See
	// docs/user/preconditions.md#kubernetesversion.
	KubernetesVersionsKey = "cvo.cluster-version.github.io/kubernetes-versions"
	// AllowDeletionAnnotation is "true" on a ClusterVersion, or on its CRD or that of ReleaseStatus, to permit its deletion. The deletion guard
	// rejects it otherwise.
	AllowDeletionAnnotation = "cvo.cluster-version.github.io/allow-deletion"
	// AnnotatedManifestsAnnotation lists, in image-references, the manifests that 'cvo release new' annotated with a profile because they named
	// none. The value is a JSON object with the profile and the list.
	AnnotatedManifestsAnnotation = "cvo.cluster-version.github.io/annotated-manifests"
)

// Labels of objects in a cluster.
const (
	// OwnedByLabel marks every object that was applied from a release; its value is the name of the ClusterVersion. Watches select by this
	// label.
	OwnedByLabel = "cvo.cluster-version.github.io/owned-by"
	// InventoryLabel marks the ConfigMaps that list the applied objects; its value is the name of the ClusterVersion. They do not have
	// the label above, because they are not part of a release.
	InventoryLabel = "cvo.cluster-version.github.io/inventory"
	// ApplySetLabel marks the members of an ApplySet; its value is the ID of the set (KEP-3659, "kubectl apply --prune").
	ApplySetLabel = "applyset.kubernetes.io/part-of"
	// VerificationSignatureLabel marks the ConfigMaps in namespace openshift-config-managed with signatures of releases.
	VerificationSignatureLabel = "release.openshift.io/verification-signatures"
)

// Labels of release and component images, and annotations of tags in image-references.
const (
	// ReleaseLabel carries a release image's version.
	ReleaseLabel = "io.openshift.release"
	// ReleaseBaseLabel carries the digest of the image that a release image was built on.
	ReleaseBaseLabel = "io.openshift.release.base-image-digest"
	// OperatorLabel marks a component image that contributes manifests.
	OperatorLabel = "io.openshift.release.operator"
	// ComponentVersionsLabel lists the versions of software inside a component image, as "k=v,k2=v2".
	ComponentVersionsLabel = "io.openshift.build.versions"
	// ComponentDisplayNamesLabel lists the display names of that software, as "k=text,k2=text".
	ComponentDisplayNamesLabel = "io.openshift.build.version-display-names"
	// CommitAnnotation names the commit that a component image was built from.
	CommitAnnotation = "io.openshift.build.commit.id"
	// SourceAnnotation is the URL of the repository with that commit.
	SourceAnnotation = "io.openshift.build.source-location"
)
