package upgradeable

import (
	"cmp"
	"errors"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
)

// reasonOperator replaces the reason of an operator if it is missing or invalid.
const reasonOperator = "ClusterOperatorNotUpgradeable"

// operators returns an obstacle for every ClusterOperator that reports Upgradeable=False. If the condition is missing or Unknown, there is
// no obstacle.
func operators(in Input) []Obstacle {
	if err := in.OperatorsErr; err != nil {
		return []Obstacle{unread(SourceOperators, "ClusterOperators", docs("cluster-operators"), err)}
	}
	var found []Obstacle
	for i := range in.Operators {
		co := &in.Operators[i]
		said := Reported(co)
		if said.Status != configv1.ConditionFalse {
			continue
		}
		name, message := clean(co.Name, maxName), clean(said.Message, maxMessage)
		should := fmt.Sprintf("Cluster operator %s should not be upgraded between minor versions: ", name)
		reason := cleanWord(said.Reason, reasonOperator)
		found = append(found, Obstacle{
			Source: SourceOperators, Subject: name, Reason: reason,
			Message: should + cmp.Or(message, "it gives no reason."),
			Risk:    riskName(SourceOperators, co.Name), URL: docs("cluster-operators"),
			listed: should + reason + ": " + cmp.Or(message, "it gives no reason."),
		})
	}
	sorted.By(found, func(a, b Obstacle) int { return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Risk, b.Risk)) })
	return found
}

// Reported returns a ClusterOperator's condition Upgradeable without its time, the zero value if it reports none.
func Reported(co *configv1.ClusterOperator) configv1.ClusterOperatorStatusCondition {
	c := api.FindCondition(co.Status.Conditions, configv1.OperatorUpgradeable)
	if c == nil {
		return configv1.ClusterOperatorStatusCondition{}
	}
	said := *c
	said.LastTransitionTime = metav1.Time{}
	return said
}

// unread returns the obstacle for a source that could not be read.
func unread(source, what, url string, err error) Obstacle {
	return Obstacle{
		Source: source, Reason: "EvaluationFailed", Risk: source + "Unknown", URL: url,
		Unknown: true, Pending: errors.Is(err, ErrPending),
		Message: fmt.Sprintf("Cannot determine whether %s block minor or major version updates: %s", what, clean(err.Error(), maxMessage)),
	}
}
