package api

// Names of the node stage.
const (
	// MachineConfigGroup is the API group of the node stage.
	MachineConfigGroup = "machineconfiguration.openshift.io"
	// MachineConfigNamespace is the namespace of the node stage.
	MachineConfigNamespace = "openshift-machine-config-operator"
	// MachineConfigController is the name of the controller's Deployment and Lease, and of the ControllerConfig.
	MachineConfigController = "machine-config-controller"
	// MachineConfigReader is the name of the ClusterRole that lists the rendered MachineConfigs in use outside the control plane.
	// ControlPlaneConfigReader is the one for the control plane.
	MachineConfigReader      = "machine-config-daemon-configs"
	ControlPlaneConfigReader = "machine-config-daemon-control-plane-configs"
)

const machineConfig = MachineConfigGroup + "/"

// Annotations of Nodes by which the node stage's controller and daemon communicate. Each has one writer, and clients read them.
const (
	// CurrentConfigAnnotation names the rendered MachineConfig that the daemon has verified on disk. The daemon writes it.
	CurrentConfigAnnotation = machineConfig + "currentConfig"
	// DesiredConfigAnnotation names the requested rendered MachineConfig. The controller writes it.
	DesiredConfigAnnotation = machineConfig + "desiredConfig"
	// CurrentImageAnnotation is the image that the node runs instead of its config's. Only nodes with their own image have it.
	CurrentImageAnnotation = machineConfig + "currentImage"
	// DesiredImageAnnotation is the requested image of such a node. The node stage only removes it.
	DesiredImageAnnotation = machineConfig + "desiredImage"
	// NodeStateAnnotation is the daemon's state: Working, Rebooting, Done, Degraded, Unreconcilable or Released. The daemon writes it.
	NodeStateAnnotation = machineConfig + "state"
	// NodeReasonAnnotation explains the state, in at most 2000 bytes; empty if the state is Done. While the daemon tries a config again that
	// failed, it has the reason of the failure. The daemon writes it.
	NodeReasonAnnotation = machineConfig + "reason"
	// DesiredDrainAnnotation requests "drain-" or "uncordon-" followed by the name of a config. The daemon writes it.
	DesiredDrainAnnotation = machineConfig + "desiredDrain"
	// AppliedDrainAnnotation is the last completed request for a drain or its end. The controller writes it.
	AppliedDrainAnnotation = machineConfig + "lastAppliedDrain"
	// DaemonReleaseAnnotation names the release of the node's daemon. The daemon writes it. A controller assigns configs only to nodes with a daemon
	// of its own release.
	DaemonReleaseAnnotation = "cvo.cluster-version.github.io/daemon-release"
	// CordonAnnotation marks a node that the node stage has cordoned, with the number of the attempt. A cordon without it is an
	// administrator's. The controller writes it.
	CordonAnnotation = "cvo.cluster-version.github.io/cordoned"
	// SlotReleasedAnnotation marks a node that has released its slot because its drain was blocked, until it starts again. Its value is the time and, after
	// a space, the PodDisruptionBudget that blocked the drain as namespace/name, if one did. The controller writes it.
	SlotReleasedAnnotation = "cvo.cluster-version.github.io/slot-released"
	// NodeJobAnnotation is the config after whose update a Job must succeed. The controller writes it together with the desired config, and removes it once
	// the Job has succeeded.
	NodeJobAnnotation = "cvo.cluster-version.github.io/node-job"
)

// Annotations of Nodes that an administrator writes.
const (
	// NodeHoldAnnotation keeps the node at its config. Its value is the reason.
	NodeHoldAnnotation = "cvo.cluster-version.github.io/hold"
	// NodeRetryAnnotation requests that the node's daemon tries a config again that failed, even if the guard has undone it. Its value is the name of the
	// config, a space and a text that differs from that of the last request. The daemon follows each value once.
	NodeRetryAnnotation = "cvo.cluster-version.github.io/retry"
	// NodeReleasedAnnotation takes the node out of the hands of the node stage: the daemon ends or undoes the pending change, removes the stage's folder
	// from the host and reports the state Released. Its value is not read. Delete it to return the node to the stage.
	NodeReleasedAnnotation = "cvo.cluster-version.github.io/released"
)

// Annotations of MachineConfigNodes. The node stage's controller writes them for the daemon.
const (
	// StageAnnotation names the rendered MachineConfig that the node's daemon puts on disk before the node's update. Condition Staged has the result.
	StageAnnotation = "cvo.cluster-version.github.io/stage"
	// RestoreAnnotation is "true" if the policy of the node's pool has restoreContent.
	RestoreAnnotation = "cvo.cluster-version.github.io/restore-content"
)

// Annotations of Jobs for nodes. The node stage's controller writes them.
const (
	// NodeJobNodeAnnotation names the node for which the Job runs.
	NodeJobNodeAnnotation = "cvo.cluster-version.github.io/node-job"
	// NodeJobConfigAnnotation names the config that the node gets.
	NodeJobConfigAnnotation = "cvo.cluster-version.github.io/node-job-config"
)

// Labels of Jobs for nodes.
const (
	// NodeJobLabel is the name of the CronJob.
	NodeJobLabel = "cvo.cluster-version.github.io/node-job"
)

// NodeReasonText is the maximum length of NodeReasonAnnotation in bytes.
const NodeReasonText = 2000

// States of a node, as the daemon reports them.
const (
	NodeWorking        = "Working"
	NodeRebooting      = "Rebooting"
	NodeDone           = "Done"
	NodeDegraded       = "Degraded"
	NodeUnreconcilable = "Unreconcilable"
	// NodeReleased means that the host has nothing of the node stage anymore, except for the content of its last config.
	NodeReleased = "Released"
)

// IsNodeDegraded reports whether a state of a node means that its daemon cannot apply the desired config, or that its host differs from it.
func IsNodeDegraded(state string) bool { return state == NodeDegraded || state == NodeUnreconcilable }

// Annotations of MachineConfigs, of KubeletConfigs and of the ControllerConfig.
const (
	// GeneratedByAnnotation marks a MachineConfig that a controller made. Its value is the controller's version.
	GeneratedByAnnotation = machineConfig + "generated-by-controller-version"
	// OSImageOverriddenAnnotation is "true" on a rendered MachineConfig whose osImageURL comes from a MachineConfig of a user.
	OSImageOverriddenAnnotation = machineConfig + "os-image-url-overridden"
	// ReleaseAnnotation on a rendered MachineConfig names the release that rendered it. On the ControllerConfig it names the release that
	// the node stage has or gets.
	ReleaseAnnotation = machineConfig + "release-image-version"
	// SuffixAnnotation on a KubeletConfig remembers the end of the names of its MachineConfigs, without the dash; empty for the first of a pool.
	SuffixAnnotation = machineConfig + "mc-name-suffix"
)

// UpdateInProgressTaint keeps new pods away from nodes whose update is pending, so that pods move once.
const UpdateInProgressTaint = "UpdateInProgress"

// Names of pools. Every cluster has ControlPlanePool and WorkerPool.
const (
	ControlPlanePool = "master"
	WorkerPool       = "worker"
	ArbiterPool      = "arbiter"
)

// Labels of MachineConfigs and MachineConfigPools.
const (
	// MachineConfigRoleLabel on a MachineConfig names the role for which it is made.
	MachineConfigRoleLabel = machineConfig + "role"
	// RequiredPoolLabel marks pools that must be updated before the release is complete.
	RequiredPoolLabel = "operator.machineconfiguration.openshift.io/required-for-upgrade"
	// BuiltInPoolLabel marks the pools that the node stage creates.
	BuiltInPoolLabel = machineConfig + "mco-built-in"
	// PoolLabelPrefix begins a label of every pool, and the name of the pool ends it. Selectors can use it to select the pool.
	PoolLabelPrefix = "pools.operator.machineconfiguration.openshift.io/"
)

// Events of the node stage. Its controller writes them.
const (
	// The controller made a config for a pool. About the MachineConfigPool.
	EventRenderedConfigGenerated = "RenderedConfigGenerated"
	// The controller requested a config for nodes of a pool. About the MachineConfigPool.
	EventSetDesiredConfig = "SetDesiredConfig"
	// A pod delays the drain of a node. About the Node.
	EventDrainBlocked = "DrainBlocked"
	// Files or units of a node differ from its config. About the Node.
	EventConfigDriftDetected = "ConfigDriftDetected"
	// A node whose drain was blocked released its slot by its NodeRolloutPolicy. About the Node.
	EventSlotReleased = "SlotReleased"
	// A drain deleted a pod whose eviction was refused, by the NodeRolloutPolicy of the node. About the Node.
	EventPodDeleted = "PodDeleted"
	// The node stage has completed another release. About ClusterOperator machine-config.
	EventOperatorVersionChanged = "OperatorVersionChanged"
	// The node stage became Degraded. The reason continues with a colon and the reason of that condition. About ClusterOperator machine-config.
	EventOperatorDegraded = "OperatorDegraded"
)
