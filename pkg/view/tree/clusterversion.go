package tree

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/api"
)

// OfClusterVersion returns lines with the release, the newest history entry and the conditions. It has no side
// effects.
func OfClusterVersion(cv *configv1.ClusterVersion, now time.Time) []string {
	lines := []string{"Release  " + cmp.Or(terminal.OneLine(cv.Status.Desired.Version), "none yet") + "  " + terminal.OneLine(cv.Status.Desired.Image)}
	if len(cv.Status.History) > 0 {
		h := cv.Status.History[0]
		text := fmt.Sprintf("%s  %s, started %s ago", h.State, terminal.OneLine(h.Version), duration.HumanDuration(max(0, now.Sub(h.StartedTime.Time))))
		if h.CompletionTime != nil {
			text += fmt.Sprintf(", completed %s ago", duration.HumanDuration(max(0, now.Sub(h.CompletionTime.Time))))
		}
		lines = append(lines, text)
	}
	if cv.DeletionTimestamp != nil {
		finalizers := ""
		if len(cv.Finalizers) > 0 {
			finalizers = " and waits for its finalizers " + api.FinalizersText(cv.Finalizers)
		}
		lines = append(lines, terminal.OneLine(fmt.Sprintf("ClusterVersion %s is being deleted%s: the operator rolls out no release and repairs no object until it is created again", cv.Name, finalizers)))
	}
	for _, kind := range []configv1.ClusterStatusConditionType{configv1.OperatorProgressing, api.Failing, api.ReleaseAccepted, configv1.OperatorAvailable} {
		for _, c := range cv.Status.Conditions {
			if c.Type == kind {
				since := duration.HumanDuration(max(0, now.Sub(c.LastTransitionTime.Time)))
				lines = append(lines, fmt.Sprintf("%-16s %-8s %5s  %s", c.Type, c.Status, since, terminal.OneLine(c.Message)))
			}
		}
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}
