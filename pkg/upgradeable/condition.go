package upgradeable

import (
	"fmt"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// Condition is what condition Upgradeable says of obstacles, in the words of OpenShift's operator up to 4.20, in which
// every reason is one word. It reports false if nothing objects: then there is no such condition.
func Condition(obstacles []Obstacle) (configv1.ClusterOperatorStatusCondition, bool) {
	condition := configv1.ClusterOperatorStatusCondition{Type: configv1.OperatorUpgradeable, Status: configv1.ConditionFalse}
	groups := summaries(obstacles, false)
	if len(groups) == 0 {
		// What is known to object is told rather than what is not known.
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

// summary is what is said of one source, or of the gates that object for one reason.
type summary struct{ reason, message string }

// summaries groups obstacles that are known, or those that are not.
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
		return summary{first.Reason, api.Excerpt(strings.Join(texts, " "), maxSummary)}
	}
	return summary{"ClusterOperatorsNotUpgradeable", list("Multiple cluster operators should not be upgraded between minor versions:", texts, maxSummary)}
}

// list puts items below a heading, each on a line of its own; further lines of an item are indented, so that nobody's text
// passes for an item of somebody else. Of items that do not fit the first is cut, and the others are counted.
func list(heading string, items []string, limit int) string {
	const room = 32 // for the count
	text := heading
	for i, item := range items {
		line := "\n* " + strings.ReplaceAll(item, "\n", "\n  ")
		free := limit - room - len(text)
		if i == 0 {
			line = api.Excerpt(line, free)
		}
		if len(line) > free {
			return text + fmt.Sprintf("\n* and %d more", len(items)-i)
		}
		text += line
	}
	return text
}
