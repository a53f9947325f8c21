package risk

import (
	"encoding/json"
	"fmt"
	"net/url"

	configv1 "github.com/openshift/api/config/v1"
)

// unfit tells why an API server would refuse an update with these risks; empty if it would not.
func unfit(risks []configv1.ConditionalUpdateRisk) string {
	if len(risks) == 0 {
		return "it is conditional, and has no risk"
	}
	names := map[string]bool{}
	for _, risk := range risks {
		switch {
		case risk.Name == "" || len(risk.Name) > maxRiskName:
			return fmt.Sprintf("the name of a risk has 1 to %d characters, not %d", maxRiskName, len(risk.Name))
		case names[risk.Name]:
			return fmt.Sprintf("it has two risks %q", risk.Name)
		case risk.Message == "":
			return fmt.Sprintf("risk %q has no message", risk.Name)
		case !isURL(risk.URL):
			return fmt.Sprintf("risk %q has the URL %.200q, which is none", risk.Name, risk.URL)
		case len(risk.MatchingRules) == 0:
			return fmt.Sprintf("risk %q has no rule", risk.Name)
		}
		names[risk.Name] = true
	}
	return ""
}

// isURL holds for what an API server takes as the format "uri".
func isURL(text string) bool {
	_, err := url.ParseRequestURI(text)
	return err == nil
}

// message is a text of paragraphs that does not grow any more once it is longer than a limit.
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

// fitting returns how long a message may be, and how many updates, the highest, can be told of.
func (j *judgement) fitting(updates []configv1.ConditionalUpdate) (limit, n int) {
	for _, limit = range messageLimits() {
		var total int
		listed := map[string]bool{}
		for n = 0; n < len(updates); n++ {
			if total += j.cost(updates[n], limit, listed); total > maxStatus {
				break
			}
		}
		if n == len(updates) {
			break
		}
	}
	return limit, n
}

// The bytes that a condition takes beside its message, and a risk or an update beside its parts.
const (
	conditionCost = 150
	riskCost      = 100
	updateCost    = 600
)

// cost is about how many bytes an update takes, and those of its risks that are not listed yet.
func (j *judgement) cost(update configv1.ConditionalUpdate, limit int, listed map[string]bool) int {
	total, told := updateCost, 0
	for _, risk := range update.Risks {
		one := riskCost + len(risk.Name) + len(risk.URL) + min(len(risk.Message), limit)
		for _, rule := range risk.MatchingRules {
			one += 50
			if rule.PromQL != nil {
				one += len(rule.PromQL.PromQL)
			}
		}
		applies := min(len(j.condition(risk.Name).Message), limit)
		told += max(len(risk.Message), applies) + len(risk.URL)
		if !j.Plain {
			one += conditionCost + applies
			if !listed[risk.Name] {
				listed[risk.Name] = true
				total += one
			}
			one += len(risk.Name)
		}
		total += one
	}
	return total + min(told, limit)
}

// size is how many bytes of a status something takes.
func size(judged Judged) int {
	text, err := json.Marshal(judged)
	if err != nil {
		return 0 // values of Go's own types alone
	}
	return len(text)
}
