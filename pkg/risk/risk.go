// Package risk tells whether the risks of updates apply to a cluster. It takes risks with the rules by which they apply,
// evaluates the rules against a Prometheus, or without one over metrics that the operator itself knows, and returns for
// each risk whether it applies, or why that is not known; and for each update whether it is recommended. Alerts that
// fire are risks of every update.
package risk

import (
	"context"
	"errors"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
)

// Applies is the type of a risk's condition: whether it applies to the cluster.
const Applies = "Applies"

// Reasons of the condition Applies; that of an alert is "Alert:" and its state.
const (
	ReasonMatch            = "Match"
	ReasonNotMatch         = "NotMatch"
	ReasonEvaluationFailed = "EvaluationFailed"
	// ReasonNoCondition: whoever asked for a judgement did not say whether the risk applies.
	ReasonNoCondition = "InternalErrorFoundNoRiskCondition"
)

// Reasons of the condition Recommended of a conditional update, beside ReasonEvaluationFailed and the name of a risk.
const (
	ReasonNotExposed      = "NotExposedToRisks"
	ReasonAccepted        = "AllExposedRisksAccepted"
	ReasonExposed         = "ExposedToRisks"
	ReasonMultipleReasons = "MultipleReasons"
)

// ErrNoPrometheus tells that the cluster has no Prometheus to ask.
var ErrNoPrometheus = errors.New("there is no Prometheus to ask")

// ErrUnreachable tells that a source answers nobody, whatever the expression.
var ErrUnreachable = errors.New("the source of metrics does not answer")

// Source is what rules are evaluated against.
type Source interface {
	// Query returns the values of the instant vector that expression has now. An expression that has another type is
	// an error, and so is one that the source cannot answer honestly.
	Query(ctx context.Context, expression string) ([]float64, error)
	// Alerts returns the alerts that are pending or firing.
	Alerts(ctx context.Context) ([]promv1.Alert, error)
}

// The types of rules.
const (
	always = "Always"
	promQL = "PromQL"
)
