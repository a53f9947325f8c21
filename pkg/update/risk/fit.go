package risk

import (
	"encoding/json"
	"fmt"
	"net/url"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/nearest"
)

// unfit returns the reason why an API server would reject an update with these risks, or "" if it would not.
func unfit(risks []configv1.ConditionalUpdateRisk) string {
	if len(risks) == 0 {
		return "conditional, but without risks"
	}
	names := map[string]bool{}
	for _, risk := range risks {
		switch {
		case risk.Name == "" || len(risk.Name) > api.MaxRiskName:
			return fmt.Sprintf("the name of a risk must have 1 to %d characters, not %d", api.MaxRiskName, len(risk.Name))
		case names[risk.Name]:
			return fmt.Sprintf("two risks have the name %q", risk.Name)
		case risk.Message == "":
			return fmt.Sprintf("risk %q has no message", risk.Name)
		case !isURL(risk.URL):
			return fmt.Sprintf("risk %q has the invalid URL %.200q", risk.Name, risk.URL)
		case len(risk.MatchingRules) == 0:
			return fmt.Sprintf("risk %q has no rules", risk.Name)
		}
		names[risk.Name] = true
	}
	return ""
}

// isURL reports whether an API server accepts a text with format "uri".
func isURL(text string) bool {
	_, err := url.ParseRequestURI(text)
	return err == nil
}

// message is a text of several paragraphs. It stops growing once it exceeds a limit.
type message string

func (m *message) add(text, end string, limit int) {
	if len(*m) > limit {
		return
	}
	if *m != "" {
		*m += "\n\n"
	}
	*m += message(text[:min(len(text), limit+1)] + end)
}

// fitting returns the maximum length of messages, and the number of updates that fit into the status, beginning with the first. used is the
// size of the updates without risks.
func (j *judgement) fitting(updates []configv1.ConditionalUpdate, used int) (limit, n int) {
	const maxEstimate = maxStatus - maxStatus/5 // escaped characters need more bytes than estimated
	for _, limit = range messageLimits() {
		total := used
		listed := map[string]bool{}
		for n = 0; n < len(updates); n++ {
			if total += j.updateSize(updates[n], limit, listed); total > maxEstimate {
				break
			}
		}
		if n == len(updates) {
			break
		}
	}
	return limit, n
}

// fittingAvailable returns the updates without risks that fit into their part of the status, and their size in bytes.
func (j *judgement) fittingAvailable(updates []configv1.Release) (fitting []configv1.Release, used int) {
	if used = size(updates); used <= maxAvailable {
		return updates, used
	}
	first := nearest.First(updates, j.Current, func(r configv1.Release) string { return r.Version })
	j.problem("the %d updates without risks do not fit into a ClusterVersion: "+nearest.Kept, len(first))
	used = 0
	for i, release := range first {
		next := used + size(release) + len(",")
		if next > maxAvailable {
			return first[:i], used
		}
		used = next
	}
	return first, used
}

// Sizes in bytes of a condition without its message, and of a risk and an update without their parts.
const (
	conditionCost = 150
	riskCost      = 100
	updateCost    = 300
)

// updateSize returns the approximate size in bytes of an update, including those of its risks that are not listed yet.
func (j *judgement) updateSize(update configv1.ConditionalUpdate, limit int, listed map[string]bool) int {
	total, messageSize := updateCost+2*size(update.Release), 0 // a recommended update is also in the list of available updates
	for _, risk := range update.Risks {
		riskSize := riskCost + len(risk.Name) + len(risk.URL) + min(len(risk.Message), limit)
		for _, rule := range risk.MatchingRules {
			riskSize += 50
			if rule.PromQL != nil {
				riskSize += len(rule.PromQL.PromQL)
			}
		}
		applies := min(len(j.condition(risk.Name).Message), limit)
		messageSize += max(len(risk.Message), applies) + len(risk.URL)
		if !j.Plain {
			riskSize += conditionCost + applies
			if !listed[risk.Name] {
				listed[risk.Name] = true
				total += riskSize
			}
			riskSize += len(risk.Name)
		}
		total += riskSize
	}
	return total + min(messageSize, limit)
}

// size returns the size in bytes of a part of the status.
func size(part any) int {
	text, err := json.Marshal(part)
	if err != nil {
		return 0 // impossible for these types
	}
	return len(text)
}
