// Package progress describes the update of a node as the status of its MachineConfigNode. The daemon knows the step and writes the result.
package progress

import (
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
)

// Step is a step of a node's update. The zero value is the step of a node that runs its desired config.
type Step int

// The steps in their order.
const (
	// Updated has no update in progress.
	Updated Step = iota
	// Preparing reads and checks the config.
	Preparing
	// Draining waits for the cordon and the drain.
	Draining
	// Applying changes the host.
	Applying
	// Rebooting waits for the reboot. Updates without one leave it out.
	Rebooting
	// Resuming waits until the cordon is lifted.
	Resuming
)

// Reasons of conditions. A condition that is true or in progress has its own type as reason, as in OpenShift.
const (
	notYetOccurred = "NotYetOccurred"
	asExpected     = "AsExpected"
)

// Progress is how far the update of a node is.
type Progress struct {
	Step Step
	// Current and Desired are the names of the node's configs. Current is empty on a node that never had one.
	Current, Desired string
	// Failure is the reason why the desired config could not be applied; empty if no attempt has failed. The step is that of the next attempt.
	Failure string
	// Generation is the generation of the MachineConfigNode.
	Generation int64
}

// phases are the conditions of an update. Each is in progress from the step begins until the step ends, and then true.
var phases = []struct {
	condition    mcfgv1.StateProgress
	begins, ends Step
}{
	{mcfgv1.MachineConfigNodeUpdatePrepared, Preparing, Draining},
	{mcfgv1.MachineConfigNodeUpdateExecuted, Draining, Resuming},
	{mcfgv1.MachineConfigNodeUpdateCordoned, Draining, Applying},
	{mcfgv1.MachineConfigNodeUpdateDrained, Draining, Applying},
	{mcfgv1.MachineConfigNodeUpdateFilesAndOS, Applying, Rebooting},
	{mcfgv1.MachineConfigNodeUpdatePostActionComplete, Rebooting, Resuming},
	{mcfgv1.MachineConfigNodeUpdateRebooted, Rebooting, Resuming},
	{mcfgv1.MachineConfigNodeResumed, Resuming, Resuming},
	{mcfgv1.MachineConfigNodeUpdateComplete, Resuming, never},
	{mcfgv1.MachineConfigNodeUpdateUncordoned, Resuming, never},
}

// never is a step that no update reaches.
const never = Resuming + 1

// Status returns the status of a node's MachineConfigNode. A condition is Unknown while its step is in progress, true once it is done, and
// false if it has not occurred in this update. A node that runs its desired config has only Updated. Status keeps the rest of before, and the
// transition time of a condition that keeps its status. An update has rebooted the node if before has the step Rebooting.
func Status(before mcfgv1.MachineConfigNodeStatus, p Progress, now time.Time) mcfgv1.MachineConfigNodeStatus {
	after := *before.DeepCopy()
	set := func(kind mcfgv1.StateProgress, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&after.Conditions, metav1.Condition{
			Type: string(kind), Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now),
		})
	}
	if p.Step == Updated {
		set(mcfgv1.MachineConfigNodeUpdated, metav1.ConditionTrue, string(mcfgv1.MachineConfigNodeUpdated), fmt.Sprintf("The node runs MachineConfig %s", p.Current))
	} else {
		set(mcfgv1.MachineConfigNodeUpdated, metav1.ConditionFalse, notYetOccurred, fmt.Sprintf("The node updates to MachineConfig %s", p.Desired))
	}
	reboots := p.Step == Rebooting || isTrueOrUnknown(before, mcfgv1.MachineConfigNodeUpdateRebooted)
	for _, phase := range phases {
		switch {
		case phase.condition == mcfgv1.MachineConfigNodeUpdateRebooted && !reboots:
			set(phase.condition, metav1.ConditionFalse, notYetOccurred, "")
		case p.Step >= phase.ends:
			set(phase.condition, metav1.ConditionTrue, string(phase.condition), "Done for MachineConfig "+p.Desired)
		case p.Step >= phase.begins && p.Step != Updated:
			set(phase.condition, metav1.ConditionUnknown, string(phase.condition), "In progress for MachineConfig "+p.Desired)
		default:
			set(phase.condition, metav1.ConditionFalse, notYetOccurred, "")
		}
	}
	if p.Failure == "" {
		set(mcfgv1.MachineConfigNodeNodeDegraded, metav1.ConditionFalse, asExpected, "")
	} else {
		set(mcfgv1.MachineConfigNodeNodeDegraded, metav1.ConditionTrue, string(mcfgv1.MachineConfigNodeNodeDegraded), printable.Lines(p.Failure))
	}
	after.ConfigVersion = nil
	if p.Current != "" { // the API rejects an empty name, and the client sends it
		after.ConfigVersion = &mcfgv1.MachineConfigNodeStatusMachineConfigVersion{Current: p.Current, Desired: p.Desired}
	}
	after.ObservedGeneration = max(after.ObservedGeneration, p.Generation)
	return after
}

// isTrueOrUnknown reports whether a condition is in progress or done.
func isTrueOrUnknown(s mcfgv1.MachineConfigNodeStatus, kind mcfgv1.StateProgress) bool {
	c := meta.FindStatusCondition(s.Conditions, string(kind))
	return c != nil && c.Status != metav1.ConditionFalse
}
