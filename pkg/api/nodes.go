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

// Names of annotations on Nodes. The controller and the daemon of the node stage communicate through them. Each has one writer, and clients read
// them.
const (
	machineConfig = MachineConfigGroup + "/"

	// CurrentConfigAnnotation names the rendered MachineConfig that the daemon has verified on disk. The daemon writes it.
	CurrentConfigAnnotation = machineConfig + "currentConfig"
	// DesiredConfigAnnotation names the requested rendered MachineConfig. The controller writes it.
	DesiredConfigAnnotation = machineConfig + "desiredConfig"
	// CurrentImageAnnotation and DesiredImageAnnotation exist only on nodes with their own image.
	CurrentImageAnnotation = machineConfig + "currentImage"
	DesiredImageAnnotation = machineConfig + "desiredImage"
	// NodeStateAnnotation is the daemon's state, one of the NodeState constants. The daemon writes it.
	NodeStateAnnotation = machineConfig + "state"
	// NodeReasonAnnotation explains the state, in at most NodeReasonText bytes; empty if the state is Done. While the daemon tries a config again that
	// failed, it has the reason of the failure. The daemon writes it.
	NodeReasonAnnotation = machineConfig + "reason"
	// DesiredDrainAnnotation requests "drain-" or "uncordon-" followed by the name of a config. The daemon writes it.
	DesiredDrainAnnotation = machineConfig + "desiredDrain"
	// AppliedDrainAnnotation is the last completed request of DesiredDrainAnnotation. The controller writes it.
	AppliedDrainAnnotation = machineConfig + "lastAppliedDrain"
)

// DaemonReleaseAnnotation on a Node names the release of its daemon. The daemon writes it. A controller assigns configs only to nodes with a daemon
// of its own release.
const DaemonReleaseAnnotation = "cvo.cluster-version.github.io/daemon-release"

// StageAnnotation on a MachineConfigNode names the rendered MachineConfig that the node's daemon puts on disk before the node's update. The
// controller writes it. Condition Staged has the result.
const StageAnnotation = "cvo.cluster-version.github.io/stage"

// CordonAnnotation marks a node that the node stage has cordoned, with the number of the attempt. A cordon without it is an
// administrator's.
const CordonAnnotation = "cvo.cluster-version.github.io/cordoned"

// SlotReleasedAnnotation marks a node that has released its slot because its drain was blocked, until it starts again. Its value is the time and, after a
// space, the PodDisruptionBudget that blocked the drain as namespace/name, if one did. The controller writes it.
const SlotReleasedAnnotation = "cvo.cluster-version.github.io/slot-released"

// NodeReleasedAnnotation on a Node takes it out of the hands of the node stage: the daemon ends or undoes the pending change, removes the stage's folder
// from the host and reports NodeReleased. Its value is not read. An administrator writes it, and deletes it to return the node to the stage.
const NodeReleasedAnnotation = "cvo.cluster-version.github.io/released"

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

// Names of annotations on MachineConfigs and on the ControllerConfig.
const (
	// GeneratedByAnnotation marks a MachineConfig that a controller made. Its value is the controller's version.
	GeneratedByAnnotation = machineConfig + "generated-by-controller-version"
	// OSImageOverriddenAnnotation is "true" on a rendered MachineConfig whose osImageURL comes from a MachineConfig of a user.
	OSImageOverriddenAnnotation = machineConfig + "os-image-url-overridden"
	// ReleaseAnnotation on a rendered MachineConfig names the release that rendered it. On the ControllerConfig it names the release that
	// the node stage has or gets.
	ReleaseAnnotation = machineConfig + "release-image-version"
)

// SuffixAnnotation on a KubeletConfig remembers the end of the names of its MachineConfigs, without the dash; empty for the first of a pool.
const SuffixAnnotation = machineConfig + "mc-name-suffix"

// MachineConfigRoleLabel on a MachineConfig names the role for which it is made.
const MachineConfigRoleLabel = machineConfig + "role"

// UpdateInProgressTaint keeps new pods away from nodes whose update is pending, so that pods move once.
const UpdateInProgressTaint = "UpdateInProgress"

// Names of pools. Every cluster has ControlPlanePool and WorkerPool.
const (
	ControlPlanePool = "master"
	WorkerPool       = "worker"
	ArbiterPool      = "arbiter"
)

// Names of labels of pools.
const (
	// RequiredPoolLabel marks pools that must be updated before the release is complete.
	RequiredPoolLabel = "operator.machineconfiguration.openshift.io/required-for-upgrade"
	// BuiltInPoolLabel marks the pools that the node stage creates.
	BuiltInPoolLabel = machineConfig + "mco-built-in"
	// PoolLabelPrefix, followed by the name of a pool, is a label of that pool. Selectors can use it to select the pool.
	PoolLabelPrefix = "pools.operator.machineconfiguration.openshift.io/"
)
