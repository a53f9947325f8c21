// Package gate answers one question about one object: has it settled? It takes the object as the cluster has it and
// what is expected of it, and returns a Verdict. All functions are pure: no client, no clock, no waiting. Whoever asks
// decides when to ask again.
package gate

import (
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// State is the short answer of a gate.
type State string

const (
	// Settled: what comes after may start.
	Settled State = "Settled"
	// Waiting: not there yet, and nothing says that it won't be.
	Waiting State = "Waiting"
	// Failed: not there, and something says that it is broken. It may still recover by itself.
	Failed State = "Failed"
)

// Patience says how a gate that is not settled counts for the rollout as a whole. OpenShift's operator calls this the
// update effect of an error.
type Patience string

const (
	// None: it counts as a failure at once.
	None Patience = ""
	// UntilSlow: waiting is normal; after a while it is reported as slow, never as a failure.
	UntilSlow Patience = "UntilSlow"
	// UntilFailed: waiting is normal for a while, and a failure after that.
	UntilFailed Patience = "UntilFailed"
	// Report: it is told, but holds nothing back.
	Report Patience = "Report"
)

// Verdict is the answer of a gate.
type Verdict struct {
	State    State
	Patience Patience
	// Reason is a CamelCase word, of package api where existing tools read it. It is empty if settled, unless there is
	// something to report all the same.
	Reason string
	// Message says what is waited for, for an administrator; deterministic for one state of the object.
	Message string
	// Since is when the object entered this state by its own account; zero if it does not say.
	Since time.Time
}

// NotObserved is the reason of a gate that has not seen the object as it was applied; watches soon deliver it.
const NotObserved = "NotObserved"

// Want is what is expected of an object.
type Want struct {
	Manifest *manifest.Manifest
	Mode     release.Mode
	// UID and Generation are those that applying returned; an object that shows others is not yet the one applied.
	UID        types.UID
	Generation int64
	// Alone says that the component brings no ClusterOperator to speak for its workloads, so they must be rolled out.
	Alone bool
}

// Gated reports whether objects like this one have a gate at all; all others are settled once applied.
func Gated(m *manifest.Manifest) bool {
	switch gvk := m.GVK(); gvk.Group {
	case "config.openshift.io":
		return gvk.Kind == "ClusterOperator"
	case "apiextensions.k8s.io":
		return gvk.Kind == "CustomResourceDefinition"
	case "apiregistration.k8s.io":
		return gvk.Kind == "APIService"
	case "apps":
		return gvk.Kind == "Deployment" || gvk.Kind == "DaemonSet" || gvk.Kind == "StatefulSet"
	case "batch":
		return gvk.Kind == "Job"
	default:
		return false
	}
}

// Check returns the verdict on obj, which is nil (the interface itself) if the cluster, or the watch on it, does not
// have the object yet. Objects that have no gate are settled once they are there.
func Check(obj client.Object, want Want) Verdict {
	if want.Mode == release.Initializing && lenientAtInstall(want.Manifest) {
		return Verdict{State: Settled}
	}
	if obj == nil {
		return waiting(NotObserved, "%s is not observed yet", want.Manifest.ID())
	}
	if (want.UID != "" && obj.GetUID() != want.UID) || obj.GetGeneration() < want.Generation {
		return waiting(NotObserved, "the latest state of %s is not observed yet", want.Manifest.ID())
	}
	if obj.GetDeletionTimestamp() != nil {
		return failed("Deleting", "%s is being deleted; finalizers: %v", want.Manifest.ID(), obj.GetFinalizers())
	}
	switch o := obj.(type) {
	case *configv1.ClusterOperator:
		return ClusterOperator(o, want)
	case *CRD:
		return established(o.Conditioned, want)
	case *APIService:
		return available(o.Conditioned, want)
	case *appsv1.Deployment:
		return Deployment(o, want)
	case *appsv1.DaemonSet:
		return DaemonSet(o, want)
	case *appsv1.StatefulSet:
		return StatefulSet(o, want)
	case *batchv1.Job:
		return Job(o)
	}
	return Verdict{State: Settled}
}

// lenientAtInstall names the kinds whose gate an install does not wait for. While a platform is installed for the first
// time its parts need each other in no order that anyone wrote down, so workloads and aggregated APIs are left to
// their ClusterOperators; CRDs stay gated because their resources cannot be created before, Jobs because they are
// barriers, ClusterOperators because they say whether the platform is there.
func lenientAtInstall(m *manifest.Manifest) bool {
	gvk := m.GVK()
	return gvk.Group == "apps" || gvk.Group == "apiregistration.k8s.io"
}

func waiting(reason, format string, args ...any) Verdict {
	return Verdict{State: Waiting, Patience: UntilSlow, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func failed(reason, format string, args ...any) Verdict {
	return Verdict{State: Failed, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
