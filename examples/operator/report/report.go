// Package report derives the status of an operator of the example platform. It takes the state of its operands in the cluster and the
// switches, and returns the status of its ClusterOperator. It has no side effects.
package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/examples/operator/switches"
	"github.com/cluster-version/cvo/pkg/engine/gate"
)

// VersionVariable is the environment variable with the version of a program, which is also visible in its pods.
const VersionVariable = "RELEASE_VERSION"

// Reasons of conditions.
const (
	AsExpected         = "AsExpected"
	RollingOut         = "RollingOut"
	OperandUnavailable = "OperandUnavailable"
	OperandFailed      = "OperandFailed"
	SetBySwitch        = "SetBySwitch"
	InvalidSwitch      = "InvalidSwitch"
)

// Operand is an object that an operator watches: a Deployment, DaemonSet or StatefulSet.
type Operand struct {
	// Kind and Name identify the object in the operator's namespace.
	Kind, Name string
	// Object is nil if it does not exist in the cluster.
	Object client.Object
}

// Observed is the input of a report.
type Observed struct {
	// Version is the operator's own version. Others are additional versions that it reaches at the same time.
	Version string
	Others  []configv1.OperandVersion
	// Operands are all operands of the operator.
	Operands []Operand
	// Related are the objects of the component.
	Related []configv1.ObjectReference
	// Switches are the valid switches. SwitchError is the reason why other switches could not be read.
	Switches    switches.Set
	SwitchError error
	// SettledSince is when all operands were first observed as settled; zero if they are not.
	SettledSince time.Time
}

// Waiting lists the operands that have not settled: they are missing, have another version, or are not rolled out.
func Waiting(operands []Operand, version string) []string {
	var waiting []string
	for _, o := range operands {
		if text := waitingFor(o, version); text != "" {
			waiting = append(waiting, text)
		}
	}
	return waiting
}

func waitingFor(o Operand, version string) string {
	if o.Object == nil {
		return fmt.Sprintf("%s %s is missing", o.Kind, o.Name)
	}
	if has := versionOf(o.Object); has != version {
		return fmt.Sprintf("%s %s has version %q", o.Kind, o.Name, has)
	}
	if v := verdict(o.Object); v.State != gate.Settled {
		return v.Message
	}
	return ""
}

// versionOf returns the version in the environment of the first container that has one.
func versionOf(obj client.Object) string {
	var pod corev1.PodSpec
	switch o := obj.(type) {
	case *appsv1.Deployment:
		pod = o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		pod = o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		pod = o.Spec.Template.Spec
	}
	for _, c := range pod.Containers {
		for _, e := range c.Env {
			if e.Name == VersionVariable {
				return e.Value
			}
		}
	}
	return ""
}

func verdict(obj client.Object) gate.Verdict {
	want := gate.Want{Alone: true}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return gate.Deployment(o, want)
	case *appsv1.DaemonSet:
		return gate.DaemonSet(o, want)
	case *appsv1.StatefulSet:
		return gate.StatefulSet(o, want)
	}
	return gate.Verdict{State: gate.Waiting, Message: fmt.Sprintf("%T is not an operand", obj)}
}

// available reports whether at least one pod serves.
func available(obj client.Object) bool {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return o.Status.AvailableReplicas > 0
	case *appsv1.DaemonSet:
		return o.Status.NumberAvailable > 0 || (o.Status.DesiredNumberScheduled == 0 && o.Status.ObservedGeneration > 0)
	case *appsv1.StatefulSet:
		return o.Status.AvailableReplicas > 0
	}
	return false
}

// Status returns the operator's current status, and the time of the next report if nothing changes; zero for never. Versions change only
// when all operands have reached them, so that readers can rely on a reported version.
func Status(old configv1.ClusterOperatorStatus, o Observed, now time.Time) (configv1.ClusterOperatorStatus, time.Duration) {
	status := *old.DeepCopy()
	versions := append([]configv1.OperandVersion{{Name: "operator", Version: o.Version}}, o.Others...)
	waiting := Waiting(o.Operands, o.Version)
	var again time.Duration
	progressing := condition(configv1.OperatorProgressing, configv1.ConditionFalse, AsExpected, o.Version+" is running")
	if !slices.Equal(status.Versions, versions) {
		progressing.Status = configv1.ConditionTrue
		switch left := o.Switches.Slow - now.Sub(o.SettledSince); {
		case len(waiting) > 0:
			progressing.Reason = RollingOut
			progressing.Message = fmt.Sprintf("Moving to %s: %s", o.Version, strings.Join(waiting, "; "))
		case o.Switches.Slow > 0 && left > 0:
			again = left
			progressing.Reason = SetBySwitch
			progressing.Message = fmt.Sprintf("Moving to %s: taking %s because of a switch", o.Version, o.Switches.Slow)
		default:
			progressing.Status = configv1.ConditionFalse
			status.Versions = versions
		}
	}
	conditions := []configv1.ClusterOperatorStatusCondition{
		availability(o), progressing, degradation(o),
		condition(configv1.OperatorUpgradeable, configv1.ConditionTrue, AsExpected, ""),
	}
	if o.Switches.NotUpgradeable {
		conditions[3] = condition(configv1.OperatorUpgradeable, configv1.ConditionFalse, SetBySwitch, "A switch blocks updates of this cluster")
	}
	for _, c := range conditions {
		status.Conditions = set(status.Conditions, c, now)
	}
	for _, r := range o.Related {
		if !slices.Contains(status.RelatedObjects, r) {
			status.RelatedObjects = append(status.RelatedObjects, r)
		}
	}
	return status, again
}

func availability(o Observed) configv1.ClusterOperatorStatusCondition {
	if o.Switches.Unavailable {
		return condition(configv1.OperatorAvailable, configv1.ConditionFalse, SetBySwitch, "A switch makes this component unavailable")
	}
	var down []string
	for _, operand := range o.Operands {
		if operand.Object == nil || !available(operand.Object) {
			down = append(down, operand.Kind+" "+operand.Name)
		}
	}
	if len(down) > 0 {
		return condition(configv1.OperatorAvailable, configv1.ConditionFalse, OperandUnavailable, "No available pods: "+strings.Join(down, ", "))
	}
	return condition(configv1.OperatorAvailable, configv1.ConditionTrue, AsExpected, "The component serves")
}

func degradation(o Observed) configv1.ClusterOperatorStatusCondition {
	if o.SwitchError != nil {
		return condition(configv1.OperatorDegraded, configv1.ConditionTrue, InvalidSwitch,
			fmt.Sprintf("ConfigMap %s: %v", switches.ConfigMap, o.SwitchError))
	}
	if o.Switches.Degraded {
		return condition(configv1.OperatorDegraded, configv1.ConditionTrue, SetBySwitch, "A switch makes this component degraded")
	}
	var failed []string
	for _, operand := range o.Operands {
		if operand.Object == nil {
			continue
		}
		if v := verdict(operand.Object); v.State == gate.Failed {
			failed = append(failed, v.Message)
		}
	}
	if len(failed) > 0 {
		return condition(configv1.OperatorDegraded, configv1.ConditionTrue, OperandFailed, strings.Join(failed, "; "))
	}
	return condition(configv1.OperatorDegraded, configv1.ConditionFalse, AsExpected, "")
}

func condition(kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus, reason, message string) configv1.ClusterOperatorStatusCondition {
	return configv1.ClusterOperatorStatusCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

// set replaces the condition of the same type; its transition time changes only with its status.
func set(conditions []configv1.ClusterOperatorStatusCondition, c configv1.ClusterOperatorStatusCondition, now time.Time) []configv1.ClusterOperatorStatusCondition {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second)) // with the precision of the wire format, so that it equals the stored time
	i := slices.IndexFunc(conditions, func(old configv1.ClusterOperatorStatusCondition) bool { return old.Type == c.Type })
	if i < 0 {
		return append(conditions, c)
	}
	if conditions[i].Status == c.Status {
		c.LastTransitionTime = conditions[i].LastTransitionTime
	}
	conditions[i] = c
	return conditions
}
