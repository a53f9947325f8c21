package upgradeable

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
)

// reasonOperator stands in for a reason that an operator did not give, or not as a word.
const reasonOperator = "ClusterOperatorNotUpgradeable"

// operators objects for every ClusterOperator that says it is not upgradeable. One that says nothing, or that it does
// not know, does not object.
func operators(in Input) []Obstacle {
	if err := in.OperatorsErr; err != nil {
		return []Obstacle{unread(SourceOperators, "ClusterOperators", docs("cluster-operators"), err)}
	}
	var found []Obstacle
	for i := range in.Operators {
		co := &in.Operators[i]
		at := slices.IndexFunc(co.Status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
			return c.Type == configv1.OperatorUpgradeable
		})
		if at < 0 || co.Status.Conditions[at].Status != configv1.ConditionFalse {
			continue
		}
		said := co.Status.Conditions[at]
		name, message := clean(co.Name, maxName), clean(said.Message, maxMessage)
		should := fmt.Sprintf("Cluster operator %s should not be upgraded between minor versions: ", name)
		reason := word(said.Reason, reasonOperator)
		found = append(found, Obstacle{
			Source: SourceOperators, Subject: name, Reason: reason,
			Message: should + cmp.Or(message, "it does not say why."),
			Risk:    riskName(SourceOperators, co.Name), URL: docs("cluster-operators"),
			listed: should + reason + ": " + cmp.Or(message, "it does not say why."),
		})
	}
	slices.SortFunc(found, func(a, b Obstacle) int { return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Risk, b.Risk)) })
	return found
}

// unread is the obstacle of a source that could not be asked.
func unread(source, what, url string, err error) Obstacle {
	return Obstacle{
		Source: source, Reason: "EvaluationFailed", Risk: source + "Unknown", URL: url,
		Unknown: true, Pending: errors.Is(err, ErrPending),
		Message: fmt.Sprintf("Whether %s keep the cluster from minor or major version updates is not known: %s", what, clean(err.Error(), maxMessage)),
	}
}
