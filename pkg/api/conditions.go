package api

import configv1 "github.com/openshift/api/config/v1"

// Condition types of ClusterVersion beyond those that config/v1 names.
const (
	// Failing is True when the release cannot be applied, Unknown when an operator takes longer than expected.
	Failing configv1.ClusterStatusConditionType = "Failing"
	// ReleaseAccepted tells whether the desired release was retrieved, verified and found fit.
	ReleaseAccepted configv1.ClusterStatusConditionType = "ReleaseAccepted"
	// Invalid is present only while the spec is invalid.
	Invalid configv1.ClusterStatusConditionType = "Invalid"
	// ImplicitlyEnabledCapabilities tells whether capabilities are on that nobody asked for.
	ImplicitlyEnabledCapabilities configv1.ClusterStatusConditionType = "ImplicitlyEnabledCapabilities"
)

// Reasons of the ReleaseAccepted condition: the step that is running or that failed.
const (
	ReasonRetrievePayload      = "RetrievePayload"
	ReasonLoadPayload          = "LoadPayload"
	ReasonVerifyPayloadVersion = "VerifyPayloadVersion"
	ReasonPreconditionChecks   = "PreconditionChecks"
	ReasonPermissions          = "Permissions"
	ReasonPayloadLoaded        = "PayloadLoaded"
)

// Reasons of Failing and Progressing, read by dashboards and alert rules of existing clusters.
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

// Reasons of Failing and Progressing while the operator of another release is to take over.
const (
	ReasonOperatorHandover    = "OperatorHandover"
	ReasonOperatorNotStarting = "OperatorNotStarting"
)

// Reasons of the Events on ClusterVersion.
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
	EventUpdateStarted              = "UpdateStarted"
	EventUpdateCompleted            = "UpdateCompleted"
	EventNodesHandedOver            = "NodesHandedOver"
	EventFieldDropped               = "FieldDropped"
	EventDriftRepaired              = "DriftRepaired"
	EventRepairsHeldBack            = "RepairsHeldBack"
	EventSecurityLoosened           = "PodSecurityLoosened"
	EventStatusRefused              = "StatusRefused"
	EventOrphanPruned               = "OrphanPruned"
	EventRunlevelReached            = "RunlevelReached"
	EventClusterOperatorWaitedFor   = "ClusterOperatorWaitedFor"
	EventRolloutFailing             = "RolloutFailing"
	EventRolloutRecovered           = "RolloutRecovered"
)
