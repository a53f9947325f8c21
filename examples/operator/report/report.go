// Package report works out what an operator of the example platform says about itself. It takes what the cluster shows
// of its operands and what the switches say, and returns the status of its ClusterOperator; all of it is pure.
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
	"github.com/cluster-version/cvo/pkg/gate"
)

// VersionVariable is the environment variable that gives a program, and whoever looks at its pods, its version.
const VersionVariable = "RELEASE_VERSION"

// Reasons of conditions.
const (
	AsExpected          = "AsExpected"
	RollingOut          = "RollingOut"
	OperandUnavailable  = "OperandUnavailable"
	OperandFailed       = "OperandFailed"
	ToldBySwitch        = "ToldBySwitch"
	SwitchNotUnderstood = "SwitchNotUnderstood"
)

// Operand is what an operator looks after: a Deployment, DaemonSet or StatefulSet.
type Operand struct {
	// Kind and Name identify it in the operator's namespace.
	Kind, Name string
	// Object is nil if the cluster does not have it.
	Object client.Object
}

// Observed is what an operator knows.
type Observed struct {
	// Version is the operator's own, Others are further versions that are reached with it.
	Version string
	Others  []configv1.OperandVersion
	// Operands are all that it looks after.
	Operands []Operand
	// Related is what belongs to the component.
	Related []configv1.ObjectReference
	// Switches, and why some of them could not be read.
	Switches    switches.Set
	SwitchError error
	// SettledSince is when all operands were first seen to be settled; zero if they are not.
	SettledSince time.Time
}

// Waiting says what keeps the operands from being settled: those that are missing, of another version or not rolled out.
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
		return fmt.Sprintf("%s %s is of version %q", o.Kind, o.Name, has)
	}
	if v := verdict(o.Object); v.State != gate.Settled {
		return v.Message
	}
	return ""
}

// versionOf is what the first container with a version says in its environment.
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
	return gate.Verdict{State: gate.Waiting, Message: fmt.Sprintf("%T is no operand", obj)}
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

// Status is what the operator reports at this moment, and when it should look again though nothing changes; zero for
// never. Versions move only when all operands have reached them, so what waits for a version may rely on it.
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
			progressing.Reason = ToldBySwitch
			progressing.Message = fmt.Sprintf("Moving to %s: taking %s, as a switch says", o.Version, o.Switches.Slow)
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
		conditions[3] = condition(configv1.OperatorUpgradeable, configv1.ConditionFalse, ToldBySwitch, "A switch says that this cluster must not be updated")
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
		return condition(configv1.OperatorAvailable, configv1.ConditionFalse, ToldBySwitch, "A switch says that this component is not available")
	}
	var down []string
	for _, operand := range o.Operands {
		if operand.Object == nil || !available(operand.Object) {
			down = append(down, operand.Kind+" "+operand.Name)
		}
	}
	if len(down) > 0 {
		return condition(configv1.OperatorAvailable, configv1.ConditionFalse, OperandUnavailable, "No pod is available of "+strings.Join(down, ", "))
	}
	return condition(configv1.OperatorAvailable, configv1.ConditionTrue, AsExpected, "The component serves")
}

func degradation(o Observed) configv1.ClusterOperatorStatusCondition {
	if o.SwitchError != nil {
		return condition(configv1.OperatorDegraded, configv1.ConditionTrue, SwitchNotUnderstood,
			fmt.Sprintf("ConfigMap %s: %v", switches.ConfigMap, o.SwitchError))
	}
	if o.Switches.Degraded {
		return condition(configv1.OperatorDegraded, configv1.ConditionTrue, ToldBySwitch, "A switch says that this component is degraded")
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

// set puts a condition in the place of the one of its type; the time of transition is that of the status.
func set(conditions []configv1.ClusterOperatorStatusCondition, c configv1.ClusterOperatorStatusCondition, now time.Time) []configv1.ClusterOperatorStatusCondition {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second)) // as precise as it is on the wire, or it would differ from what is read back
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
