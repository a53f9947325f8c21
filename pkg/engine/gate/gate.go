// Package gate decides whether one object has settled. It compares the live object with the expectations and returns a Verdict. All
// functions are pure: they have no client and no clock, and never wait. The caller decides when to check again.
package gate

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// State is the outcome of a gate.
type State string

const (
	// Settled means that dependents may start.
	Settled State = "Settled"
	// Waiting means not settled yet, without any sign of an error.
	Waiting State = "Waiting"
	// Failed means not settled, with a sign of an error. The object may still recover by itself.
	Failed State = "Failed"
)

// Patience is the effect of an unsettled gate on the whole rollout. OpenShift's operator calls it the update effect of an error.
type Patience string

const (
	// None counts as a failure immediately.
	None Patience = ""
	// UntilSlow is a normal wait. After a while it is reported as slow, but never as a failure.
	UntilSlow Patience = "UntilSlow"
	// UntilFailed is a normal wait that becomes a failure after a while.
	UntilFailed Patience = "UntilFailed"
	// Report delays nothing, but is reported in the status.
	Report Patience = "Report"
	// Notice delays nothing and is never a failure of the release. Only views and metrics show it.
	Notice Patience = "Notice"
)

// Verdict is the answer of a gate.
type Verdict struct {
	State    State
	Patience Patience
	// Reason is a CamelCase word, from package api if existing tools read it. A settled verdict has a reason only if there is something to
	// report.
	Reason string
	// Message explains to an administrator why the gate is not settled. It depends only on the object's state.
	Message string
	// Since is the time when the object entered this state, according to the object; zero if it does not report a time.
	Since time.Time
}

// Want contains the expectations of an object.
type Want struct {
	Manifest *manifest.Manifest
	Mode     release.Mode
	// UID and Generation come from the response to the apply. An object with another UID or an older generation is outdated.
	UID        types.UID
	Generation int64
	// Alone is true if no ClusterOperator represents the component's workloads. Then the gate checks their rollout itself, except for
	// workloads that opt out; see optsOut.
	Alone bool
}

// Gated reports whether this kind of object has a gate, in any version. All others are settled once applied.
func Gated(m *manifest.Manifest) bool {
	gk := m.GVK().GroupKind()
	return slices.ContainsFunc(kinds, func(k Kind) bool { return k.GroupKind() == gk })
}

// Check returns the verdict on obj. obj is a nil interface if the cluster or its watch does not have the object yet. Objects without a gate
// are settled once they exist.
func Check(obj Object, want Want) Verdict {
	ignored := want.Manifest.GVK().Group == appsGroup && optsOut(obj, want.Manifest)
	if ignored {
		want.Alone = false
	}
	if want.Mode == release.Initializing && lenientAtInstall(want) {
		return Verdict{State: Settled}
	}
	if obj == nil {
		return waiting(api.ReasonNotObserved, "%s has not been observed yet", want.Manifest.ID())
	}
	if (want.UID != "" && obj.GetUID() != want.UID) || obj.GetGeneration() < want.Generation {
		return waiting(api.ReasonNotObserved, "the latest state of %s has not been observed yet", want.Manifest.ID())
	}
	if obj.GetDeletionTimestamp() != nil && !isComplete(obj) {
		return failed(api.ReasonDeleting, "%s is being deleted; finalizers: %v", want.Manifest.ID(), obj.GetFinalizers())
	}
	if ignored {
		return Verdict{State: Settled} // also if its pods have failed to start
	}
	for _, k := range kinds {
		if verdict, ok := k.check(obj, want); ok {
			return verdict
		}
	}
	return Verdict{State: Settled}
}

// lenientAtInstall reports whether an install ignores a gate. The parts of a new platform depend on each other in no documented order, so
// workloads and aggregated APIs are left to their ClusterOperators. These gates remain: without its CRD no resource can be created, Jobs
// are barriers, ClusterOperators show whether the platform works, and so do the workloads that no ClusterOperator represents.
func lenientAtInstall(want Want) bool {
	gvk := want.Manifest.GVK()
	return gvk.Group == appsGroup && !want.Alone || gvk.Group == "apiregistration.k8s.io"
}

func waiting(reason, format string, args ...any) Verdict {
	return Verdict{State: Waiting, Patience: UntilSlow, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func failed(reason, format string, args ...any) Verdict {
	return Verdict{State: Failed, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
