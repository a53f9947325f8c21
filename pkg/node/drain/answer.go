package drain

import (
	"errors"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Meaning is the result of an eviction request.
type Meaning int

// Results of an eviction request.
const (
	// Accepted means that the server deletes the pod.
	Accepted Meaning = iota
	// Gone means that the pod no longer exists, or that another pod has its name.
	Gone
	// Budget means that a PodDisruptionBudget refuses the eviction. A change of the budget or of its pods may allow it.
	Budget
	// Busy means that the server limits requests.
	Busy
	// Refused means that a webhook, a policy or the server refuses the eviction. No watch shows when it would succeed.
	Refused
)

// Answer is the API server's answer to an eviction request.
type Answer struct {
	Meaning Meaning
	// Message explains why the pod stays; empty for Accepted and Gone.
	Message string
	// After is the delay that the server requests before the next attempt; 0 if it requests none.
	After time.Duration
	// IsUnknown reports whether the server has not decided: it cannot be reached, or is not ready. Meaning is Refused then. An internal error is a
	// decision, because that is the answer for a pod of several budgets.
	IsUnknown bool
}

// Read interprets the error of an eviction request. A nil error means that the server accepted the eviction.
func Read(err error) Answer {
	if err == nil {
		return Answer{Meaning: Accepted}
	}
	var status apierrors.APIStatus
	a := Answer{Meaning: Refused, Message: err.Error(), IsUnknown: !errors.As(err, &status) || status.Status().Code > http.StatusInternalServerError}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		a.After = time.Duration(seconds) * time.Second
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // a conflict: the UID of the request is not the pod's
		return Answer{Meaning: Gone}
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		a.Message = "its namespace is being deleted"
	case apierrors.IsTooManyRequests(err):
		a.Meaning = Busy
		if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
			a.Meaning, a.Message = Budget, cause.Message
		}
	}
	return a
}

// NamesBudget reports whether a text has the API server's message about an eviction that a PodDisruptionBudget with a name refuses. No field has the name.
func NamesBudget(text, name string) bool {
	return strings.Contains(text, "The disruption budget "+name+" ")
}
