package upgradeable

import (
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/internal/printable"
)

// Condition returns condition Upgradeable for obstacles. The text matches OpenShift's operator up to 4.20, in which every reason is one
// word. It returns false if there are no obstacles, because the condition is then absent.
func Condition(obstacles []Obstacle) (configv1.ClusterOperatorStatusCondition, bool) {
	condition := configv1.ClusterOperatorStatusCondition{Type: configv1.OperatorUpgradeable, Status: configv1.ConditionFalse}
	groups := summaries(obstacles, false)
	if len(groups) == 0 {
		// Known obstacles take precedence over unknown ones.
		condition.Status = configv1.ConditionUnknown
		groups = summaries(obstacles, true)
	}
	switch len(groups) {
	case 0:
		return configv1.ClusterOperatorStatusCondition{}, false
	case 1:
		condition.Reason, condition.Message = groups[0].reason, groups[0].message
	default:
		reasons, messages := make([]string, len(groups)), make([]string, len(groups))
		for i, g := range groups {
			reasons[i], messages[i] = g.reason, g.message
		}
		condition.Reason = "MultipleReasons"
		condition.Message = list("Cluster should not be upgraded between minor versions for multiple reasons: "+
			strings.Join(reasons, ","), messages, maxCondition)
	}
	if condition.Status == configv1.ConditionUnknown {
		condition.Reason = "EvaluationFailed"
	}
	return condition, true
}

// Weigh returns the condition for the obstacles whose risks an administrator accepts by name, and the condition for the
// others. A condition is nil without obstacles.
func Weigh(obstacles []Obstacle, acceptedRisks []string) (accepted, open *configv1.ClusterOperatorStatusCondition) {
	isAccepted := func(o Obstacle) bool { return slices.Contains(acceptedRisks, o.Risk) }
	isOpen := func(o Obstacle) bool { return !isAccepted(o) }
	conditionWithout := func(drop func(Obstacle) bool) *configv1.ClusterOperatorStatusCondition {
		condition, ok := Condition(slices.DeleteFunc(slices.Clone(obstacles), drop))
		if !ok {
			return nil
		}
		return &condition
	}
	return conditionWithout(isOpen), conditionWithout(isAccepted)
}

// summary is the text about one source, or about gates with the same reason.
type summary struct{ reason, message string }

// summaries groups either the known or the unknown obstacles.
func summaries(obstacles []Obstacle, unknown bool) []summary {
	type group struct{ source, reason string }
	var order []group
	members := map[group][]Obstacle{}
	for _, o := range obstacles {
		if o.Unknown != unknown {
			continue
		}
		g := group{o.Source, ""}
		if o.Source == SourceAdminAck {
			g.reason = o.Reason
		}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], o)
	}
	out := make([]summary, len(order))
	for i, g := range order {
		out[i] = summarize(members[g])
	}
	return out
}

func summarize(obstacles []Obstacle) summary {
	first := obstacles[0]
	if len(obstacles) == 1 {
		return summary{first.Reason, first.Message}
	}
	texts := make([]string, len(obstacles))
	for i, o := range obstacles {
		texts[i] = o.listed
	}
	if first.Source == SourceAdminAck {
		return summary{first.Reason, printable.Excerpt(strings.Join(texts, " "), maxSummary)}
	}
	return summary{"ClusterOperatorsNotUpgradeable", list("Multiple cluster operators should not be upgraded between minor versions:", texts, maxSummary)}
}

// list adds items below a heading, one per line. It indents further lines of an item, so that one author's text cannot imitate an item of
// another. It truncates the first item if that does not fit, and only counts other items that do not fit.
func list(heading string, items []string, limit int) string {
	const room = 32 // for the number of omitted items
	text := heading
	for i, item := range items {
		line := "\n* " + strings.ReplaceAll(item, "\n", "\n  ")
		free := limit - room - len(text)
		if i == 0 {
			line = printable.Excerpt(line, free)
		}
		if len(line) > free {
			return text + fmt.Sprintf("\n* and %d more", len(items)-i)
		}
		text += line
	}
	return text
}
