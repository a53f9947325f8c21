package risk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/firing"
)

// alerts contains the risks of the known firing alerts.
type alerts struct {
	risks []configv1.ConditionalUpdateRisk
	// dropped is the reason why some alerts are not included.
	dropped error
	// found is the time of the last successful read; zero means never. err and failures describe the reads since then.
	found    time.Time
	err      error
	failures int
	due      time.Time
}

// Alerts returns the firing alerts that are reasons against any update, as risks with their Applies condition, sorted by name. The risks
// are valid even if there is an error. The error explains why they are stale or unknown, and which alerts cannot be risks.
func (e *Evaluator) Alerts(ctx context.Context) ([]configv1.ConditionalUpdateRisk, error) {
	if e.AlertsDue().After(e.clock.Now()) {
		return e.knownAlerts()
	}
	found, err := []firing.Alert(nil), e.outageError()
	if err == nil {
		within, cancel := context.WithTimeout(ctx, e.options.Timeout)
		defer cancel()
		found, err = e.source.Alerts(within)
	}
	if ctx.Err() == nil {
		e.recordAlerts(found, err)
	}
	return e.knownAlerts()
}

// RememberAlerts restores the alerts of an earlier process from the risks that Alerts returned there. It ignores other risks. Until the
// first successful read, restored alerts are kept for the same time as alerts that were just read.
func (e *Evaluator) RememberAlerts(risks []configv1.ConditionalUpdateRisk) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.alerts.found.IsZero() {
		return
	}
	for _, risk := range risks {
		if IsAlert(risk) {
			e.alerts.risks = append(e.alerts.risks, *risk.DeepCopy())
		}
	}
	if len(e.alerts.risks) > 0 {
		e.alerts.found = e.clock.Now()
	}
}

// IsAlert reports whether a risk is a firing alert.
func IsAlert(risk configv1.ConditionalUpdateRisk) bool {
	applies := meta.FindStatusCondition(risk.Conditions, api.RiskApplies)
	return applies != nil && strings.HasPrefix(applies.Reason, alertReason)
}

// AlertsDue returns the time of the next read. The alerts do not change before that.
func (e *Evaluator) AlertsDue() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.alerts.due
}

func (e *Evaluator) recordAlerts(found []firing.Alert, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if err != nil {
		e.alerts.failures++
		e.alerts.err, e.alerts.due = fmt.Errorf("reading alerts: %w", err), now.Add(max(retryDelay.After(e.alerts.failures), e.options.AlertsFresh))
		return
	}
	e.alerts = alerts{found: now, due: now.Add(e.options.AlertsFresh)}
	e.alerts.risks, e.alerts.dropped = alertRisks(found, now)
}

func (e *Evaluator) knownAlerts() ([]configv1.ConditionalUpdateRisk, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := &e.alerts
	if a.found.IsZero() && a.err == nil {
		return nil, errors.New("reading alerts: interrupted")
	}
	if a.err != nil && e.clock.Now().Sub(a.found) > e.options.AlertsKept {
		a.risks, a.dropped = nil, nil
	}
	risks := make([]configv1.ConditionalUpdateRisk, len(a.risks))
	for i, risk := range a.risks {
		risks[i] = *risk.DeepCopy()
	}
	return risks, errors.Join(a.err, a.dropped)
}
