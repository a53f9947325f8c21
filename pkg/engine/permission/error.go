package permission

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Error lists permissions that the operator lacks and cannot grant to itself.
type Error struct {
	// Missing contains the missing rules.
	Missing []rbacv1.PolicyRule
	// Remedy explains how to grant them.
	Remedy string
}

// shownRules is the maximum number of rules in an error, shownNames the maximum number of objects per rule.
const (
	shownRules = 20
	shownNames = 10
)

// Error returns the rules, one per line, and the remedy.
func (e *Error) Error() string {
	return fmt.Sprintf("the operator lacks permissions to apply the release, and cannot grant them to itself:\n* %s\nto grant them: %s",
		strings.Join(Describe(e.Missing, shownRules), "\n* "), e.Remedy)
}

// Describe returns one line for each rule. If there are more than most rules, a last line counts the rest.
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
