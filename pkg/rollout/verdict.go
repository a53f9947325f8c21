package rollout

import (
	"fmt"
	"strings"

	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
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

// ending is the verdict on an object that somebody else deletes: it is created again as soon as it is gone.
func ending(id manifest.ID, finalizers []string) gate.Verdict {
	by := ""
	if len(finalizers) > 0 {
		by = " and waits for its finalizers " + strings.Join(finalizers, ", ")
	}
	return gate.Verdict{
		State: gate.Settled, Patience: gate.Report, Reason: ReasonDeleting,
		Message: fmt.Sprintf("%s is being deleted by somebody else%s; it is created again once it is gone", id, by),
	}
}

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
