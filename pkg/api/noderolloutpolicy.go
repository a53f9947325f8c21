package api

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodeRolloutPolicyVersion and NodeRolloutPolicyKind identify the cluster-scoped object that limits when the nodes of a MachineConfigPool start
// their update. It has the name of the pool. A pool without one starts nodes as soon as maxUnavailable and the budgets allow.
var NodeRolloutPolicyVersion = schema.GroupVersion{Group: "cvo.cluster-version.github.io", Version: "v1alpha1"}

// NodeRolloutPolicyKind is the kind of a NodeRolloutPolicy.
const NodeRolloutPolicyKind = "NodeRolloutPolicy"

// NodeJobRole is the ClusterRole with the permissions for Jobs. An administrator binds it in the namespaces of CronJobs.
const NodeJobRole = "machine-config-controller-jobs"

// Conditions of a NodeRolloutPolicy, and their reasons.
const (
	// PolicyAccepted reports whether the policy can be applied. If it is False, no node of the pool starts.
	PolicyAccepted = "Accepted"
	// ReasonPolicyAccepted means that the policy can be applied.
	ReasonPolicyAccepted = "Accepted"
	// ReasonPolicyInvalid means that a field is invalid. The message names it.
	ReasonPolicyInvalid = "Invalid"
	// ReasonPoolNotFound means that no MachineConfigPool has the policy's name.
	ReasonPoolNotFound = "PoolNotFound"
	// PolicyHalted is True while so many nodes have failed to stage or to apply the pool's config that no other node starts.
	PolicyHalted = "Halted"
	// ReasonFailureBudgetExhausted means that as many nodes failed as spec.failureBudget names.
	ReasonFailureBudgetExhausted = "FailureBudgetExhausted"
	// ReasonWithinFailureBudget means that fewer nodes failed.
	ReasonWithinFailureBudget = "WithinFailureBudget"
	// PolicyNodesHealthy is False while spec.health.nodeHealthyIf is false for a node that runs the pool's config, and Unknown while it cannot be
	// evaluated for one. No other node starts then. The condition is absent without that field.
	PolicyNodesHealthy = "NodesHealthy"
	// ReasonNodesHealthy means that the expression is true for all nodes that run the pool's config.
	ReasonNodesHealthy = "NodesHealthy"
	// ReasonNodeUnhealthy means that the expression is false for a node. The message names it.
	ReasonNodeUnhealthy = "NodeUnhealthy"
	// ReasonNotEvaluated means that the expression cannot be evaluated for a node. The message says why.
	ReasonNotEvaluated = "NotEvaluated"
	// PolicyJobsFailed is True while a Job of spec.jobs has failed for a node, and Unknown while none can be made. The condition is absent without that
	// field.
	PolicyJobsFailed = "JobsFailed"
	// ReasonJobFailed means that a Job failed. The message names it.
	ReasonJobFailed = "JobFailed"
	// ReasonNoJobFailed means that no Job has failed.
	ReasonNoJobFailed = "NoJobFailed"
	// ReasonJobNotCreated means that no Job can be made from a CronJob. The message says why.
	ReasonJobNotCreated = "JobNotCreated"
)

// NodeRolloutPolicy limits when the nodes of a MachineConfigPool start their update.
type NodeRolloutPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              NodeRolloutPolicySpec   `json:"spec,omitzero"`
	Status            NodeRolloutPolicyStatus `json:"status,omitzero"`
}

// NodeRolloutPolicySpec has an administrator's limits. The zero value limits nothing.
type NodeRolloutPolicySpec struct {
	// Windows are the times at which nodes start, if they are expected to be done before the window ends. Without one, nodes start at any time.
	Windows []UpdateWindow `json:"windows,omitempty"`
	// ExpectedDuration is the time that a node is expected to need, at least. Nil is 30 minutes until the status has one that was measured, and
	// nothing after that.
	ExpectedDuration *metav1.Duration `json:"expectedDuration,omitempty"`
	// FailureBudget is the number or the percentage of nodes, rounded up, whose failure stops the start of others.
	FailureBudget *intstr.IntOrString `json:"failureBudget,omitempty"`
	// DependsOn names MachineConfigPools that must be updated before a node of this pool starts.
	DependsOn []string `json:"dependsOn,omitempty"`
	// Canary makes some nodes start before the others. Nil is no such node.
	Canary *NodeCanary `json:"canary,omitempty"`
	// MaxUnavailablePerZone is the number of the pool's nodes in a zone that may be unavailable or failed at the same time. 0 is no limit.
	MaxUnavailablePerZone int32 `json:"maxUnavailablePerZone,omitempty"`
	// HoldOSImage makes the pool keep the image of the operating system that it has from the release. Other changes of its config continue.
	HoldOSImage bool `json:"holdOSImage,omitempty"`
	// RestoreContent makes a node whose files or units differ from its config restore them by itself, where node disruption policies spare it the reboot.
	RestoreContent bool `json:"restoreContent,omitempty"`
	// Health stops the start of nodes while what has been updated is not healthy.
	Health NodeRolloutHealth `json:"health,omitzero"`
	// Jobs are made for each node.
	Jobs NodeJobs `json:"jobs,omitzero"`
	// DrainRules change how the pods of the pool's nodes are drained. The first rule that selects a pod decides.
	DrainRules []DrainRule `json:"drainRules,omitempty"`
	// BlockedDrain says what happens to a drain that is blocked for long. The zero value keeps it waiting.
	BlockedDrain BlockedDrain `json:"blockedDrain,omitzero"`
}

// BlockedDrain says what happens to a drain that pods block for long.
type BlockedDrain struct {
	// ReleaseSlotAfter is the time since the start of a drain after which a node returns to its config if another node can start. It is updated after
	// all others. 0 is never.
	ReleaseSlotAfter metav1.Duration `json:"releaseSlotAfter,omitzero"`
	// DeletePodsAfter is the time for which the eviction of a pod must be refused before the pod is deleted, with its own grace period. That ignores
	// PodDisruptionBudgets. 0 is never.
	DeletePodsAfter metav1.Duration `json:"deletePodsAfter,omitzero"`
}

// DrainRule changes how pods are drained.
type DrainRule struct {
	// Namespace is the namespace of the pods; empty for all.
	Namespace string `json:"namespace,omitempty"`
	// PodSelector selects the pods by their labels. The zero value selects all.
	PodSelector metav1.LabelSelector `json:"podSelector,omitzero"`
	// Matching selects only pods that lose something by their eviction; empty for all.
	Matching PodLoss `json:"matching,omitempty"`
	// Order decides when the pods leave: once all pods with a lower order are gone. Pods without rule have 0.
	Order int32 `json:"order,omitempty"`
	// Action is what the drain does with the pods; empty for an eviction.
	Action DrainAction `json:"action,omitempty"`
}

// PodLoss is what is lost by the eviction of a pod.
type PodLoss string

// Losses.
const (
	// LossUnmanaged is the loss of a pod without a controller: it does not start elsewhere.
	LossUnmanaged PodLoss = "Unmanaged"
	// LossLocalData is the loss of the data in emptyDir volumes.
	LossLocalData PodLoss = "LocalData"
)

// DrainAction is the action of a drain rule.
type DrainAction string

// Actions of drain rules.
const (
	// DrainWaitForCompletion does not evict the pods. The drain waits until they have succeeded or failed.
	DrainWaitForCompletion DrainAction = "WaitForCompletion"
	// DrainSkip leaves the pods on the node. They end when it reboots.
	DrainSkip DrainAction = "Skip"
)

// NodeRolloutHealth says how an administrator recognizes that nodes work after their update. The zero value checks nothing.
type NodeRolloutHealth struct {
	// NodeHealthyIf is an expression of CEL over the Node, as variable node. A node that runs the pool's config is healthy while it is true.
	NodeHealthyIf string `json:"nodeHealthyIf,omitempty"`
	// PoolUnhealthyIf is a query of PromQL. The pool is unhealthy while it has a result, as an alert with this query fires.
	PoolUnhealthyIf string `json:"poolUnhealthyIf,omitempty"`
}

// NodeJobs are the Jobs for each node. Nil is no Job.
type NodeJobs struct {
	// Before must succeed before the update of the node starts.
	Before *NodeJob `json:"before,omitempty"`
	// After must succeed before the updated node leaves its slot.
	After *NodeJob `json:"after,omitempty"`
}

// NodeJob is a Job that the controller makes from a suspended CronJob.
type NodeJob struct {
	// Namespace and Name are those of the CronJob.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Deadline is the time after which the Job fails.
	Deadline metav1.Duration `json:"deadline"`
	// OnFailure is the effect of a failed Job; empty for NodeJobHold.
	OnFailure NodeJobFailure `json:"onFailure,omitempty"`
}

// NodeJobFailure is the effect of a failed Job.
type NodeJobFailure string

// Effects of failed Jobs.
const (
	// NodeJobHold keeps the node as it is: before its update it does not start, and after its update it keeps its slot.
	NodeJobHold NodeJobFailure = "Hold"
	// NodeJobFail also counts the node as failed.
	NodeJobFail NodeJobFailure = "Fail"
)

// NodeCanary limits which nodes start until some have proved that a config works.
type NodeCanary struct {
	// Nodes is the number or the percentage of nodes, rounded up, that start first.
	Nodes intstr.IntOrString `json:"nodes"`
	// Soak is the time for which that many nodes must run the config before others start.
	Soak metav1.Duration `json:"soak"`
}

// UpdateWindow is a time that repeats each week, by the clock of a time zone.
type UpdateWindow struct {
	// Days are the days on which the window starts, as Mon, Tue, Wed, Thu, Fri, Sat and Sun; none for every day.
	Days []string `json:"days,omitempty"`
	// Start and End are times such as 22:00. A window whose end is not after its start ends on the next day.
	Start string `json:"start"`
	End   string `json:"end"`
	// TimeZone is a name of the IANA database such as Europe/Prague; default UTC.
	TimeZone string `json:"timeZone,omitempty"`
}

// NodeRolloutPolicyStatus is the controller's report.
type NodeRolloutPolicyStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// NodeDuration is the time within which nine of ten recent updates of nodes were done; nil before at least five were.
	NodeDuration *metav1.Duration `json:"nodeDuration,omitempty"`
	// RecentDurations are the durations of the latest of these updates in seconds, at most 20, the newest last. Once there are five, they are written
	// only together with another change.
	RecentDurations []int32 `json:"recentDurations,omitempty"`
	// Canary is the config that enough nodes run; nil before.
	Canary *NodeCanaryStatus `json:"canary,omitempty"`
	// UnhealthyNodes is the number of nodes that run the pool's config and for which spec.health.nodeHealthyIf is false. They count as failed.
	UnhealthyNodes int32 `json:"unhealthyNodes,omitempty"`
	// FailedJobs is the number of nodes that count as failed because of a Job.
	FailedJobs int32 `json:"failedJobs,omitempty"`
}

// NodeCanaryStatus says since when enough nodes run a config.
type NodeCanaryStatus struct {
	// Config is the name of the rendered MachineConfig, and Since the time by the clock of the controller.
	Config string      `json:"config"`
	Since  metav1.Time `json:"since"`
}

// NodeRolloutPolicyList is a list of NodeRolloutPolicies.
type NodeRolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeRolloutPolicy `json:"items"`
}

// AddToScheme adds NodeRolloutPolicies to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(NodeRolloutPolicyVersion, &NodeRolloutPolicy{}, &NodeRolloutPolicyList{})
	metav1.AddToGroupVersion(scheme, NodeRolloutPolicyVersion)
	return nil
}

// DeepCopy returns a copy of the policy.
func (p *NodeRolloutPolicy) DeepCopy() *NodeRolloutPolicy {
	next := *p
	next.ObjectMeta = *p.ObjectMeta.DeepCopy()
	next.Spec.Windows = slices.Clone(p.Spec.Windows)
	for i, w := range next.Spec.Windows {
		next.Spec.Windows[i].Days = slices.Clone(w.Days)
	}
	next.Spec.ExpectedDuration = copyOf(p.Spec.ExpectedDuration)
	next.Spec.FailureBudget = copyOf(p.Spec.FailureBudget)
	next.Spec.DependsOn = slices.Clone(p.Spec.DependsOn)
	next.Spec.Canary = copyOf(p.Spec.Canary)
	next.Spec.Jobs.Before, next.Spec.Jobs.After = copyOf(p.Spec.Jobs.Before), copyOf(p.Spec.Jobs.After)
	next.Spec.DrainRules = slices.Clone(p.Spec.DrainRules)
	for i, r := range next.Spec.DrainRules {
		r.PodSelector.DeepCopyInto(&next.Spec.DrainRules[i].PodSelector)
	}
	next.Status.Canary = copyOf(p.Status.Canary)
	next.Status.Conditions = slices.Clone(p.Status.Conditions)
	next.Status.NodeDuration = copyOf(p.Status.NodeDuration)
	next.Status.RecentDurations = slices.Clone(p.Status.RecentDurations)
	return &next
}

// DeepCopyObject implements runtime.Object.
func (p *NodeRolloutPolicy) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *NodeRolloutPolicyList) DeepCopyObject() runtime.Object {
	next := *l
	next.ListMeta = *l.ListMeta.DeepCopy()
	next.Items = make([]NodeRolloutPolicy, len(l.Items))
	for i := range l.Items {
		next.Items[i] = *l.Items[i].DeepCopy()
	}
	return &next
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
