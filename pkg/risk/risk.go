// Package risk tells whether the risks of updates apply to a cluster. It takes risks with the rules by which they apply,
// evaluates the rules against a Prometheus, or without one over metrics that the operator itself knows, and returns for
// each risk whether it applies, or why that is not known; and for each update whether it is recommended. Alerts that
// fire are risks of every update.
package risk

import "time"

// ruleTimeout is how long the evaluation of one rule may take.
const ruleTimeout = time.Minute

var _ = newEngine
