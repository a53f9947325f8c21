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

// Reasons for the ReleaseAccepted condition. Each names the step that is running or has failed.
const (
	ReasonRetrievePayload      = "RetrievePayload"
	ReasonLoadPayload          = "LoadPayload"
	ReasonVerifyPayloadVersion = "VerifyPayloadVersion"
	ReasonPreconditionChecks   = "PreconditionChecks"
	ReasonPermissions          = "Permissions"
	ReasonPayloadLoaded        = "PayloadLoaded"
)

// Reasons for Failing and Progressing that dashboards and alert rules of existing clusters use.
const (
	ReasonMultipleErrors               = "MultipleErrors"
	ReasonSlowClusterOperator          = "SlowClusterOperator"
	ReasonInvalidClusterVersion        = "InvalidClusterVersion"
	ReasonClusterOperatorNotAvailable  = "ClusterOperatorNotAvailable"
	ReasonClusterOperatorsNotAvailable = "ClusterOperatorsNotAvailable"
	ReasonClusterOperatorDegraded      = "ClusterOperatorDegraded"
	ReasonClusterOperatorsDegraded     = "ClusterOperatorsDegraded"
	ReasonClusterOperatorUpdating      = "ClusterOperatorUpdating"
	ReasonClusterOperatorsUpdating     = "ClusterOperatorsUpdating"
	ReasonClusterOperatorNoVersions    = "ClusterOperatorNoVersions"
	ReasonClusterOperatorsNoVersions   = "ClusterOperatorsNoVersions"
	ReasonWorkloadNotAvailable         = "WorkloadNotAvailable"
	ReasonWorkloadNotProgressing       = "WorkloadNotProgressing"
	ReasonImageVerificationFailed      = "ImageVerificationFailed"
	ReasonPayloadRetrievalFailed       = "UpdatePayloadRetrievalFailed"
	ReasonPayloadIntegrity             = "UpdatePayloadIntegrity"
	ReasonPayloadFailed                = "UpdatePayloadFailed"
	ReasonResourceNotFound             = "UpdatePayloadResourceNotFound"
	ReasonResourceConflict             = "UpdatePayloadResourceConflict"
	ReasonResourceInvalid              = "UpdatePayloadResourceInvalid"
	ReasonResourceForbidden            = "UpdatePayloadResourceForbidden"
	ReasonResourceTypeMissing          = "UpdatePayloadResourceTypeMissing"
	ReasonClusterDown                  = "UpdatePayloadClusterDown"
	ReasonClusterError                 = "UpdatePayloadClusterError"
	ReasonClusterUnauthorized          = "UpdatePayloadClusterUnauthorized"
	ReasonClusterOverloaded            = "UpdatePayloadClusterOverloaded"
	ReasonPreconditionCheckFailed      = "UpgradePreconditionCheckFailed"
)

// Reasons for Failing and Progressing while the operator waits for another release's operator to take over.
const (
	ReasonOperatorHandover    = "OperatorHandover"
	ReasonOperatorNotStarting = "OperatorNotStarting"
)

// Reasons for Failing and Progressing that concern a single object of the release.
const (
	// ReasonNotObserved means that no watch has delivered the applied state of an object yet.
	ReasonNotObserved = "NotObserved"
	// ReasonDeleting means that an object must disappear before the operator can apply it again.
	ReasonDeleting = "Deleting"
	// ReasonFight means that repairs are paused because another client keeps changing the object.
	ReasonFight            = "ChangedByOthersAgainAndAgain"
	ReasonNotEstablished   = "NotEstablished"
	ReasonNotAvailable     = "NotAvailable"
	ReasonNamesNotAccepted = "NamesNotAccepted"
)

// Reasons for Events on ClusterVersion.
const (
	EventRetrievePayload            = "RetrievePayload"
	EventRetrievePayloadFailed      = "RetrievePayloadFailed"
	EventLoadPayload                = "LoadPayload"
	EventLoadPayloadFailed          = "LoadPayloadFailed"
	EventVerifyPayloadVersionFailed = "VerifyPayloadVersionFailed"
	EventPreconditionBlock          = "PreconditionBlock"
	EventPreconditionWarn           = "PreconditionWarn"
	EventPreconditionsPassed        = "PreconditionsPassed"
	EventPayloadLoaded              = "PayloadLoaded"
	EventNothingIncluded            = "NothingIncluded"
	EventUpdateStarted              = "UpdateStarted"
	EventUpdateCompleted            = "UpdateCompleted"
	EventNodesHandedOver            = "NodesHandedOver"
	EventFieldDropped               = "FieldDropped"
	EventDriftRepaired              = "DriftRepaired"
	EventRepairsHeldBack            = "RepairsHeldBack"
	EventSecurityLoosened           = "PodSecurityLoosened"
	EventCapabilityEnabled          = "CapabilityEnabled"
	EventOtherController            = "OtherController"
	EventScaledToZero               = "ScaledToZero"
	EventOverrideUnmatched          = "OverrideWithoutEffect"
	EventStatusRefused              = "StatusRefused"
	EventOrphanPruned               = "OrphanPruned"
	EventRunlevelReached            = "RunlevelReached"
	EventClusterOperatorWaitedFor   = "ClusterOperatorWaitedFor"
	EventRolloutFailing             = "RolloutFailing"
	EventRolloutRecovered           = "RolloutRecovered"
	EventRolloutStopped             = "RolloutStopped"
	EventInsecureRegistries         = "InsecureRegistries"
)
