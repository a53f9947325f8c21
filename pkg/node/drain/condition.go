package drain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// repeat is the shortest time between two writes of a condition whose message alone changes. It is also the shortest time for which a drain is shown as
// blocked, because a tight budget accepts and refuses evictions in turn.
const repeat = time.Minute

// types are the conditions of Kubernetes that describe the maintenance of a node, in the order of an update (KEP-5683).
var types = []corev1.NodeConditionType{
	corev1.NodeMaintenancePlanned, corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenanceInProgress,
}

// Conditions returns the conditions of a node, with those that describe its update as they must be at a time. A node without a pending update
// has none of them. blocker says what delays the drain; empty for nothing. changed reports whether the result differs from the node's. after is
// the time until a message may be written that is too early now; 0 if there is none.
func Conditions(n *corev1.Node, blocker string, now time.Time) (conditions []corev1.NodeCondition, changed bool, after time.Duration) {
	wanted := phase(n, blocker)
	for _, c := range n.Status.Conditions {
		next, isWanted := wanted[c.Type]
		delete(wanted, c.Type)
		canWait := isWanted && c.Status == next.Status && (c.Reason == next.Reason || c.Reason == blocked)
		isSame := canWait && c.Reason == next.Reason && c.Message == next.Message
		var wait time.Duration
		if canWait && !isSame {
			if wait = c.LastHeartbeatTime.Add(repeat).Sub(now); wait > 0 && (after == 0 || wait < after) {
				after = wait
			}
		}
		if !slices.Contains(types, c.Type) || isSame || wait > 0 {
			conditions = append(conditions, c)
			continue
		}
		changed = true
		if isWanted {
			next.LastHeartbeatTime, next.LastTransitionTime = metav1.NewTime(now), c.LastTransitionTime
			conditions = append(conditions, next)
		}
	}
	for _, kind := range types {
		if next, ok := wanted[kind]; ok {
			next.LastHeartbeatTime, next.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
			conditions, changed = append(conditions, next), true
		}
	}
	return conditions, changed, after
}

// blocked is the reason of DrainInProgress while a pod delays the drain.
const blocked = "Blocked"

// InProgress returns the start of a node's drain and whether a pod delays it, as the node's conditions show it. The time is zero if no drain is in
// progress.
func InProgress(n *corev1.Node) (since time.Time, isBlocked bool) {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeDrainInProgress && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, c.Reason == blocked
		}
	}
	return time.Time{}, false
}

// Blocker returns the sentence about what delays a node's drain, as the node's conditions show it; empty if nothing does.
func Blocker(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeDrainInProgress && c.Reason == blocked {
			return c.Message
		}
	}
	return ""
}

// Described returns the conditions of a node that describe its update.
func Described(n *corev1.Node) []corev1.NodeCondition {
	var described []corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		if slices.Contains(types, c.Type) {
			described = append(described, c)
		}
	}
	return described
}

func isDrained(c corev1.NodeCondition) bool { return c.Type == corev1.NodeDrained }

// phase returns the conditions of the current phase of a node's update, without times.
func phase(n *corev1.Node, blocker string) map[corev1.NodeConditionType]corev1.NodeCondition {
	notes := n.Annotations
	config, state := notes[api.DesiredConfigAnnotation], notes[api.NodeStateAnnotation]
	isSettled := config == notes[api.CurrentConfigAnnotation] && (state == api.NodeDone || !IsRequested(n) && IsAnswered(n) && api.IsNodeDegraded(state))
	if config == "" || isSettled { // the host of a settled node may differ from its config
		return nil
	}
	conditions := map[corev1.NodeConditionType]corev1.NodeCondition{}
	add := func(kind corev1.NodeConditionType, reason, message string) {
		conditions[kind] = corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	switch {
	case IsPending(n) && blocker != "":
		add(corev1.NodeDrainInProgress, blocked, blocker)
	case IsPending(n):
		add(corev1.NodeDrainInProgress, "Draining", "Pods are evicted before the update to MachineConfig "+config)
	case IsRequested(n), notes[api.DesiredDrainAnnotation] == EndOf(config):
		if n.Spec.Unschedulable || slices.ContainsFunc(n.Status.Conditions, isDrained) {
			add(corev1.NodeDrained, "Drained", "The pods are gone") // otherwise the pods could run nowhere else, and stay
		}
		add(corev1.NodeMaintenanceInProgress, state, "The host is updated to MachineConfig "+config)
	case api.IsNodeDegraded(state):
		add(corev1.NodeMaintenancePlanned, state, "The update to MachineConfig "+config+" failed and is tried again")
	default:
		add(corev1.NodeMaintenancePlanned, "Targeted", "The node is to be updated to MachineConfig "+config)
	}
	return conditions
}
