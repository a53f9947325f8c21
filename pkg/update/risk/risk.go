// Package risk decides whether the risks of updates apply to a cluster. It evaluates their matching rules with a Prometheus, or with the
// operator's own metrics if there is none. For each risk it returns whether the risk applies, or why that is unknown. For each update it
// returns whether the update is recommended. Firing alerts are risks of every update.
package risk

import (
	"context"
	"errors"

	"github.com/cluster-version/cvo/pkg/update/firing"
)

// Reasons of the Applies condition. An alert has the reason "Alert:" followed by its state.
const (
	ReasonMatch            = "Match"
	ReasonNotMatch         = "NotMatch"
	ReasonEvaluationFailed = "EvaluationFailed"
	// ReasonNoCondition means that the caller passed no condition for the risk.
	ReasonNoCondition = "InternalErrorFoundNoRiskCondition"
)

// Reasons of a conditional update's Recommended condition, besides ReasonEvaluationFailed and the names of risks.
const (
	ReasonNotExposed      = "NotExposedToRisks"
	ReasonAccepted        = "AllExposedRisksAccepted"
	ReasonExposed         = "ExposedToRisks"
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
