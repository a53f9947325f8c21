package risk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// alerts are the risks of the alerts that fire, as far as they are known.
type alerts struct {
	risks []configv1.ConditionalUpdateRisk
	// dropped is why alerts are not among them.
	dropped error
	// found is when they were told, zero for never; err and failures are what came since.
	found    time.Time
	err      error
	failures int
	due      time.Time
}

// Alerts returns the alerts that fire and speak against any update, as risks with their condition Applies, sorted by
// name. They count whatever the error says: it tells why they are old or not known, and of alerts that cannot be risks.
func (e *Evaluator) Alerts(ctx context.Context) ([]configv1.ConditionalUpdateRisk, error) {
	if e.AlertsDue().After(e.clock.Now()) {
		return e.knownAlerts()
	}
	found, err := []promv1.Alert(nil), e.isOut()
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

// RememberAlerts takes over what was last known of alerts, as by an earlier process: the risks that Alerts returned, whatever
// others are among them. They count as long as others that were just read, until they can be read.
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

// IsAlert reports whether a risk is an alert that fires.
func IsAlert(risk configv1.ConditionalUpdateRisk) bool {
	applies := meta.FindStatusCondition(risk.Conditions, Applies)
	return applies != nil && strings.HasPrefix(applies.Reason, alertReason)
}

// AlertsDue is when to ask for alerts again: until then they stay what they are.
func (e *Evaluator) AlertsDue() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.alerts.due
}

func (e *Evaluator) recordAlerts(found []promv1.Alert, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if err != nil {
		e.alerts.failures++
		e.alerts.err, e.alerts.due = fmt.Errorf("asking for alerts: %w", err), now.Add(max(retry(e.alerts.failures), e.options.AlertsFresh))
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
		return nil, errors.New("asking for alerts was broken off")
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
