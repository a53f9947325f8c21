package api

import configv1 "github.com/openshift/api/config/v1"

// Condition types of ClusterVersion that config/v1 does not define.
const (
	// Failing is True if the operator cannot apply the release. It is Unknown if a cluster operator takes longer than expected.
	Failing configv1.ClusterStatusConditionType = "Failing"
	// ReleaseAccepted reports whether the desired release was retrieved, verified and accepted.
	ReleaseAccepted configv1.ClusterStatusConditionType = "ReleaseAccepted"
	// Invalid is present only while the spec is invalid.
	Invalid configv1.ClusterStatusConditionType = "Invalid"
	// ImplicitlyEnabledCapabilities reports whether capabilities are enabled that the spec does not request.
	ImplicitlyEnabledCapabilities configv1.ClusterStatusConditionType = "ImplicitlyEnabledCapabilities"
)

// Condition types of conditional updates and of their risks in the status of a ClusterVersion.
const (
	// UpdateRecommended reports whether a conditional update is recommended for this cluster.
	UpdateRecommended = "Recommended"
	// RiskApplies reports whether a risk applies to this cluster.
	RiskApplies = "Applies"
)

// MaxRiskName is the maximum length of a risk's name in the CustomResourceDefinition of ClusterVersion.
const MaxRiskName = 256

// Reasons for the ReleaseAccepted condition. Each names the step that is running or that rejected the release.
const (
	// The image cannot be pulled, or no trusted signer has signed it. See docs/user/registries.md and docs/user/trust.md. The operator
	// retries after 2 seconds at first, and every 30 seconds at most.
	ReasonRetrievePayload = "RetrievePayload"
	// The image contains no release, or a broken one. The message has all errors; `cvo release lint` finds the same.
	ReasonLoadPayload = "LoadPayload"
	// The version of the image differs from spec.desiredUpdate.version. Correct the version or the image; with an empty version only the
	// image counts.
	ReasonVerifyPayloadVersion = "VerifyPayloadVersion"
	// A precondition blocks the release: docs/user/preconditions.md. The operator checks it again when the spec or an obstacle changes, and
	// every two minutes at most, without another download.
	ReasonPreconditionChecks = "PreconditionChecks"
	// The operator lacks permissions for the release, and may not grant them to itself. The message has the rules, and the command that
	// grants them: docs/user/permissions.md. The operator retries every two minutes at most.
	ReasonPermissions = "Permissions"
	// The release is accepted. A warning in the message that none of its manifests is for this cluster means that the cluster gets no component:
	// docs/user/troubleshoot.md#the-cluster-gets-no-component.
	ReasonPayloadLoaded = "PayloadLoaded"
)

// CannotRecord starts the reason in the message of ReleaseAccepted if the operator rejects a request by tag because it cannot record it.
const CannotRecord = "cannot record the digest of the tag"

// AcceptedWarning separates the message of ReleaseAccepted from a warning that the cluster gets nothing of the release.
const AcceptedWarning = "; warning: "

// Reasons for the ImplicitlyEnabledCapabilities condition. Its message lists the capabilities.
const (
	// Capabilities are enabled that the spec does not list: docs/user/status.md#implicitlyenabledcapabilities.
	ReasonCapabilitiesImplicit = "CapabilitiesImplicitlyEnabled"
	// The enabled capabilities are those in the spec.
	ReasonAsExpected = "AsExpected"
)

// Reasons for Failing and Progressing that dashboards and alert rules of existing clusters use. Progressing has shorter messages than
// Failing.
const (
	// Several reasons apply, and the message of Failing lists the errors. Slow operators are not listed. If only one error remains, its own
	// reason is used.
	ReasonMultipleErrors = "MultipleErrors"
	// An operator has not reached the version in time, and Failing is Unknown. Nothing has failed; the operator's own conditions and logs show
	// its work.
	ReasonSlowClusterOperator = "SlowClusterOperator"
	// The spec is invalid; also the reason for Invalid. The message names the field and its valid form. Meanwhile the field counts as not set,
	// and everything else continues, including a running update.
	ReasonInvalidClusterVersion = "InvalidClusterVersion"
	// An operator reports Available=False for more than 10 seconds, or nothing at all. Run `kubectl describe clusteroperator NAME`, then look
	// at its pods.
	ReasonClusterOperatorNotAvailable = "ClusterOperatorNotAvailable"
	// The same, for several operators.
	ReasonClusterOperatorsNotAvailable = "ClusterOperatorsNotAvailable"
	// An operator reports Degraded=True, during a rollout for more than 40 minutes. Run `kubectl describe clusteroperator NAME`, then look at
	// its pods. An install completes anyway.
	ReasonClusterOperatorDegraded = "ClusterOperatorDegraded"
	// The same, for several operators.
	ReasonClusterOperatorsDegraded = "ClusterOperatorsDegraded"
	// After completion an operator reports another version. Another client replaced or restarted it with another image: look at its
	// Deployment.
	ReasonClusterOperatorUpdating = "ClusterOperatorUpdating"
	// The same, for several operators.
	ReasonClusterOperatorsUpdating = "ClusterOperatorsUpdating"
	// The manifest of an operator lists no versions to wait for. Report this mistake to the publisher of the release.
	ReasonClusterOperatorNoVersions = "ClusterOperatorNoVersions"
	// The same, for several operators.
	ReasonClusterOperatorsNoVersions = "ClusterOperatorsNoVersions"
	// A Job has failed, a Deployment without progress is not available, or, once a release is complete, any workload does not run. The message
	// names the pod and the reason; run `kubectl describe` on it. Delete a failed Job to run it again.
	ReasonWorkloadNotAvailable = "WorkloadNotAvailable"
	// A Deployment reports for more than 10 seconds that it cannot create pods, or has exceeded its progressDeadlineSeconds. The message names
	// the pod and the reason; run `kubectl describe` on it.
	ReasonWorkloadNotProgressing = "WorkloadNotProgressing"
	// No trusted signer has signed the release: docs/user/trust.md.
	ReasonImageVerificationFailed = "ImageVerificationFailed"
	// The image cannot be pulled: docs/user/registries.md.
	ReasonPayloadRetrievalFailed = "UpdatePayloadRetrievalFailed"
	// The image contains no release, or a broken one.
	ReasonPayloadIntegrity = "UpdatePayloadIntegrity"
	// Any other error while preparing the rollout or applying an object; see the message.
	ReasonPayloadFailed = "UpdatePayloadFailed"
	// Another client keeps deleting or creating the same object, and `cvo status` names the field manager. Or the API server no longer serves
	// the version of a custom resource: check its CRD.
	ReasonResourceNotFound = "UpdatePayloadResourceNotFound"
	// Another client keeps changing the same object. `cvo status` names the field manager.
	ReasonResourceConflict = "UpdatePayloadResourceConflict"
	// The API server rejects an object of the release, and the message has its error. The cause is often a webhook, a quota or an
	// immutable field. An entry in spec.overrides leaves the object alone.
	ReasonResourceInvalid = "UpdatePayloadResourceInvalid"
	// The operator lacks a permission. Restore its ClusterRoleBinding.
	ReasonResourceForbidden = "UpdatePayloadResourceForbidden"
	// No API server serves a kind. Check whether its CRD is established, or its APIService available.
	ReasonResourceTypeMissing = "UpdatePayloadResourceTypeMissing"
	// The API server does not answer. The operator retries; check the control plane.
	ReasonClusterDown = "UpdatePayloadClusterDown"
	// The API server answers with an internal error. The operator retries; check the control plane.
	ReasonClusterError = "UpdatePayloadClusterError"
	// The API server does not know the operator's token. If the service account was recreated, restart the pod.
	ReasonClusterUnauthorized = "UpdatePayloadClusterUnauthorized"
	// The API server has too many requests. The operator retries; check the control plane.
	ReasonClusterOverloaded = "UpdatePayloadClusterOverloaded"
	// A precondition blocks the release: docs/user/preconditions.md.
	ReasonPreconditionCheckFailed = "UpgradePreconditionCheckFailed"
)

// Reasons for Failing and Progressing while the operator waits for another release's operator to take over.
const (
	// The new operator's Deployment is being rolled out, and nothing is wrong.
	ReasonOperatorHandover = "OperatorHandover"
	// The operator of the new release does not start, so the update cannot continue. The message has its pod's error, such as an image that
	// cannot be pulled. Fix that, or request the previous release: its operator still runs.
	ReasonOperatorNotStarting = "OperatorNotStarting"
)

// Reasons for Failing and Progressing while the operator has no release to apply.
const (
	// The operator applies and repairs nothing, because it cannot accept the release that the cluster runs or installs. Its record is gone
	// and it cannot be verified again, or it cannot be retrieved. The message names the cause and the remedy.
	ReasonNoAcceptedRelease = "NoAcceptedRelease"
)

// RequestByDigest is the command in the remedy of ReasonNoAcceptedRelease. It requests a release that no update service needs to list, also
// during an update.
const RequestByDigest = "cvo upgrade --to-image NAME@sha256:… --allow-explicit-upgrade --allow-upgrade-with-warnings"

// Reasons for Failing and Progressing that concern a single object of the release.
const (
	// ReasonNotObserved means that no watch has delivered the applied state of an object yet. This is normal for a moment after each apply. If
	// it stays, see whether the API server serves watches.
	ReasonNotObserved = "NotObserved"
	// ReasonDeleting means that an object must disappear before the operator can apply it again. The message names its finalizers.
	ReasonDeleting = "Deleting"
	// ReasonFight means that repairs are paused because another client keeps changing the object. Conditions report it for roles, bindings,
	// webhooks and policies of admission, CustomResourceDefinitions and objects of the operator; for others, only `cvo status` shows it. See
	// docs/user/troubleshoot.md#another-client-keeps-changing-an-object.
	ReasonFight = "ChangedByOthersAgainAndAgain"
	// A CustomResourceDefinition is not established, so it does not serve its kind. The message has the API server's error.
	ReasonNotEstablished = "NotEstablished"
	// An APIService is not available, so it does not serve its kinds. The message has the API server's error.
	ReasonNotAvailable = "NotAvailable"
	// A name in a CustomResourceDefinition conflicts with another one. The message has the API server's error.
	ReasonNamesNotAccepted = "NamesNotAccepted"
)

// Events about the ClusterVersion. The operator writes them into its namespace.
const (
	// The operator retrieves a release. The warning has the failed verification that force overrides.
	EventRetrievePayload = "RetrievePayload"
	// A release is rejected: the image cannot be pulled, or no trusted signer has signed it.
	EventRetrievePayloadFailed = "RetrievePayloadFailed"
	// The operator reads the manifests of a verified release.
	EventLoadPayload = "LoadPayload"
	// A release is rejected: the image contains no release, or a broken one.
	EventLoadPayloadFailed = "LoadPayloadFailed"
	// A release is rejected: its version differs from the requested one.
	EventVerifyPayloadVersionFailed = "VerifyPayloadVersionFailed"
	// A release is rejected: a precondition blocks it.
	EventPreconditionBlock = "PreconditionBlock"
	// A release is accepted, and a precondition has a warning.
	EventPreconditionWarn = "PreconditionWarn"
	// All preconditions of a release passed.
	EventPreconditionsPassed = "PreconditionsPassed"
	// A release is accepted. The message names the signer.
	EventPayloadLoaded = "PayloadLoaded"
	// The cluster gets no component of an accepted release: docs/user/troubleshoot.md#the-cluster-gets-no-component.
	EventNothingIncluded = "NothingIncluded"
	// The operator cannot read some of its own files in an accepted release, so it neither applies nor deletes their objects.
	EventFilesSkipped = "FilesSkipped"
	// The history has a new entry.
	EventUpdateStarted = "UpdateStarted"
	// The newest entry of the history is complete. The message has its duration.
	EventUpdateCompleted = "UpdateCompleted"
	// The control plane is complete, and the nodes are next.
	EventNodesHandedOver = "NodesHandedOver"
	// The API server's schema lacks a field of a manifest, so the object does not have it. Each operator process reports it once.
	EventFieldDropped = "FieldDropped"
	// The operator repaired an object that another client changed or deleted: docs/user/whose-fields.md.
	EventDriftRepaired = "DriftRepaired"
	// Another client made the API server discard the owners of an object's fields, and an update made the release's fields the operator's again:
	// docs/user/whose-fields.md.
	EventFieldsTakenBack = "FieldsTakenBack"
	// Another client changes an object as often as the operator repairs it, so the operator pauses the repairs of this object.
	EventRepairsHeldBack = "RepairsHeldBack"
	// Another client set fields that loosen the security of the pods of an object. Each operator process reports it once.
	EventSecurityLoosened = "PodSecurityLoosened"
	// The update enables capabilities that the spec does not request, because they now contain objects of the running release.
	EventCapabilityEnabled = "CapabilityEnabled"
	// An object of the release has a controller, which may write the object too. Each operator process reports it once.
	EventOtherController = "OtherController"
	// A workload whose manifest does not set spec.replicas has 0 replicas: another client or an earlier release set that. Each operator process
	// reports it once.
	EventScaledToZero = "ScaledToZero"
	// An entry of spec.overrides matches no object: docs/user/update.md#exclude-an-object.
	EventOverrideUnmatched = "OverrideWithoutEffect"
	// The API server rejects a part of the status: docs/user/troubleshoot.md#other-problems.
	EventStatusRefused = "StatusRefused"
	// The operator deleted an object that the release no longer contains.
	EventOrphanPruned = "OrphanPruned"
	// In an update, a runlevel and all below it have settled. The message has the duration.
	EventRunlevelReached = "RunlevelReached"
	// The rollout has waited for a ClusterOperator for five minutes.
	EventClusterOperatorWaitedFor = "ClusterOperatorWaitedFor"
	// Condition Failing became True.
	EventRolloutFailing = "RolloutFailing"
	// Condition Failing is no longer True.
	EventRolloutRecovered = "RolloutRecovered"
	// The ClusterVersion was deleted, is being deleted or was replaced. The operator stops applying and repairing objects.
	EventRolloutStopped = "RolloutStopped"
	// The operator contacts registries without TLS, or without checking their certificates. Emitted at its start; see
	// docs/user/registries.md#a-registry-without-tls.
	EventInsecureRegistries = "InsecureRegistries"
)
