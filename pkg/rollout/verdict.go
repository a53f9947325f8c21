package rollout

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
)

// Reasons of what a pass waits for or has to tell beside the verdicts of gates.
const (
	// ReasonDeleting: an object has to be gone before anything else can be done.
	ReasonDeleting = "Deleting"
	// ReasonFight: somebody else changes the object again and again, so that repairs are held back.
	ReasonFight = "ChangedByOthersAgainAndAgain"
)

func waiting(reason, format string, args ...any) gate.Verdict {
	return gate.Verdict{
		State: gate.Waiting, Patience: gate.UntilSlow, Reason: reason, Message: fmt.Sprintf(format, args...),
	}
}

// ending is the verdict on an object that somebody else deletes: it is created again as soon as it is gone. left is what
// keeps it, if that is known.
func ending(id manifest.ID, finalizers []string, left string) gate.Verdict {
	return gate.Verdict{
		State: gate.Settled, Patience: gate.Report, Reason: ReasonDeleting, Message: endingText(id, finalizers, remedy(id, finalizers, left)),
	}
}

func endingText(id manifest.ID, finalizers []string, remedy string) string {
	by := ""
	if len(finalizers) > 0 {
		by = " and waits for its finalizers " + strings.Join(finalizers, ", ")
	}
	return fmt.Sprintf("%s is being deleted by somebody else%s%s; it is created again once it is gone", id, by, remedy)
}

// stuck is the verdict on an object that somebody else deletes, and that the release cannot do without: what depends on it
// waits for its end, which may need an administrator.
func stuck(id manifest.ID, state *observe.State, left string) gate.Verdict {
	var finalizers []string
	if state != nil {
		finalizers = state.Finalizers
	}
	v := waiting(ReasonDeleting, "%s", endingText(id, finalizers, remedy(id, finalizers, left)))
	v.Patience = gate.None
	return v
}

func remedy(id manifest.ID, finalizers []string, left string) string {
	switch {
	case slices.Contains(finalizers, definitionCleanup):
		return " (objects of its kind have to go first: look for those that do not, and at their finalizers)"
	case left != "":
		return " (" + left + ")"
	case id.Group == "" && id.Kind == "Namespace":
		return " (its conditions tell what is left in it)"
	}
	return ""
}

// maxRemains bounds what a condition of a namespace adds to a message.
const maxRemains = 500

// remains are the conditions by which a namespace that is being deleted tells what is left in it, and what cannot be
// deleted: the namespace controller's words name finalizers and kinds.
func remains(namespace map[string]any) string {
	conditions, _, _ := unstructured.NestedSlice(namespace, "status", "conditions")
	var said []string
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		status, _, _ := unstructured.NestedString(condition, "status")
		message, _, _ := unstructured.NestedString(condition, "message")
		if message = strings.TrimSpace(message); status != "True" || message == "" {
			continue
		}
		if len(message) > maxRemains {
			message = strings.ToValidUTF8(message[:maxRemains], "") + "…"
		}
		said = append(said, message)
	}
	slices.Sort(said)
	return strings.Join(said, "; ")
}

// definitionCleanup is the finalizer by which the API server deletes all objects of a CRD before the CRD itself.
const definitionCleanup = "customresourcecleanup.apiextensions.k8s.io"

// fighting is the verdict on an object whose repair is held back: it keeps nothing from going on, but is told.
func fighting(id manifest.ID, r *repairs) gate.Verdict {
	by := ""
	if r.last.Manager != "" {
		by = fmt.Sprintf(" by field manager %q", r.last.Manager)
	}
	return gate.Verdict{
		State: gate.Settled, Patience: gate.Report, Reason: ReasonFight, Message: fmt.Sprintf(
			"%s was %s%s again and again: find out why, or leave the object alone with an override of the ClusterVersion; the next repair is at %s",
			id, r.last.Reason, by, r.until.UTC().Format("15:04:05Z")),
	}
}
