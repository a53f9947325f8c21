package risk

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

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

// cut shortens a text to at most so many bytes, whole characters of UTF-8 alone.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	const mark = "…"
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}

// size is how many bytes of a status something takes.
func size(judged Judged) int {
	text, err := json.Marshal(judged)
	if err != nil {
		return 0 // values of Go's own types alone
	}
	return len(text)
}
