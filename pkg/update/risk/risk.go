// Package risk decides whether the risks of updates apply to a cluster. It evaluates their matching rules with a Prometheus, or with the
// operator's own metrics if there is none. For each risk it returns whether the risk applies, or why that is unknown. For each update it
// returns whether the update is recommended. Firing alerts are risks of every update.
package risk

import (
	"context"
	"errors"

	"github.com/cluster-version/cvo/pkg/update/firing"
)

// Reasons for the Applies condition of a risk. An alert has the reason "Alert:" followed by its state.
const (
	// The rule of the risk applies to this cluster: docs/user/choose-update.md#risks.
	ReasonMatch = "Match"
	// The rule of the risk does not apply to this cluster.
	ReasonNotMatch = "NotMatch"
	// The rule could not be evaluated, and the message says why. A conditional update has this reason too.
	ReasonEvaluationFailed = "EvaluationFailed"
	// ReasonNoCondition means that the caller passed no condition for the risk. Wait a minute; if it stays, look at the operator's log.
	ReasonNoCondition = "InternalErrorFoundNoRiskCondition"
)

// Reasons for the Recommended condition of a conditional update. If one risk applies, its name is the reason, and the message describes it.
const (
	// No risk applies.
	ReasonNotExposed = "NotExposedToRisks"
	// Every risk that applies is accepted.
	ReasonAccepted = "AllExposedRisksAccepted"
	// A risk applies whose name cannot be a reason, such as one with a dash.
	ReasonExposed = "ExposedToRisks"
	// Several risks apply, or one does and another could not be evaluated.
	ReasonMultipleReasons = "MultipleReasons"
)

// ErrNoPrometheus means that the cluster has no Prometheus.
var ErrNoPrometheus = errors.New("no Prometheus is available")

// ErrUnreachable means that a source does not respond to any query.
var ErrUnreachable = errors.New("the metrics source does not respond")

// Source answers the queries of rules.
type Source interface {
	// Query returns the current values of expression, which must be an instant vector. It returns an error for other types, and for an
	// expression that the source cannot answer correctly.
	Query(ctx context.Context, expression string) ([]float64, error)
	// Alerts returns the pending and firing alerts.
	Alerts(ctx context.Context) ([]firing.Alert, error)
}

// The types of rules.
const (
	always = "Always"
	promQL = "PromQL"
)
