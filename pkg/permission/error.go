package permission

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Error says what the operator is not allowed, nor allowed to give itself.
type Error struct {
	// Missing are the rules.
	Missing []rbacv1.PolicyRule
	// Remedy is what gives them.
	Remedy string
}

// shownRules bounds how many rules an error names, and shownNames how many objects of each.
const (
	shownRules = 20
	shownNames = 10
)

// Error names the rules, a line each, and the remedy.
func (e *Error) Error() string {
	return fmt.Sprintf("the operator is not allowed what applying the release takes, and may not allow itself more; missing:\n* %s\nto allow it: %s",
		strings.Join(Describe(e.Missing, shownRules), "\n* "), e.Remedy)
}

// Describe says in a line each what rules allow, at most so many of them.
func Describe(rules []rbacv1.PolicyRule, most int) []string {
	var lines []string
	for _, rule := range rules {
		if len(lines) == most {
			return append(lines, fmt.Sprintf("and %d more rules", len(rules)-most))
		}
		var resources []string
		for _, resource := range rule.Resources {
			for _, group := range rule.APIGroups {
				resources = append(resources, strings.TrimSuffix(resource+"."+group, "."))
			}
		}
		line := strings.Join(rule.Verbs, ",") + " " + strings.Join(resources, ",")
		if names := rule.ResourceNames; len(names) > 0 {
			line += " " + strings.Join(names[:min(len(names), shownNames)], ",")
			if more := len(names) - shownNames; more > 0 {
				line += fmt.Sprintf(" and %d more", more)
			}
		}
		lines = append(lines, line)
	}
	return lines
}
