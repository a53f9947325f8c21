package risk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/update/firing"
	"github.com/cluster-version/cvo/pkg/update/risk"
)

// alert returns a firing alert. more contains alternating names and values of labels; names of annotations start with "@".
func alert(name, severity string, more ...string) firing.Alert {
	a := firing.Alert{
		State: firing.StateFiring, Annotations: map[string]string{},
		Labels: map[string]string{"alertname": name, "severity": severity},
	}
	for i := 0; i < len(more); i += 2 {
		if name, ok := strings.CutPrefix(more[i], "@"); ok {
			a.Annotations[name] = more[i+1]
		} else {
			a.Labels[more[i]] = more[i+1]
		}
	}
	return a
}

func alertsOf(t *testing.T, found ...firing.Alert) ([]configv1.ConditionalUpdateRisk, error) {
	t.Helper()
	s := &source{alerts: func(context.Context) ([]firing.Alert, error) { return found, nil }}
	return risk.New(clock.RealClock{}, s, risk.Options{}).Alerts(t.Context())
}

//threat:alerts-labels-chosen cleans texts
func TestAlertsBecomeRisks(t *testing.T) {
	const (
		issues  = "suggesting significant cluster issues worth investigating"
		drains  = "which might slow node drains"
		slows   = "which may slow workload redistribution during rolling node updates"
		noPage  = "https://github.com/openshift/runbooks/tree/master/alerts?runbook=notfound"
		noStory = " The alert has no description."
	)
	pending := alert("Etcd", "critical")
	pending.State = firing.StatePending
	for _, tc := range []struct {
		name    string
		alerts  []firing.Alert
		message string
		url     string
	}{
		{"includes critical alerts", []firing.Alert{alert("Etcd", "critical", "@summary", "No quorum", "@description", "Bad.", "@runbook_url", "https://example.com/e")}, "critical alert Etcd firing, " + issues + ". No quorum. The alert description is: Bad.", "https://example.com/e"},
		{"uses the message without a description", []firing.Alert{alert("Etcd", "critical", "@message", "Bad.")}, "critical alert Etcd firing, " + issues + ". Etcd. The alert description is: Bad.", noPage},
		{"omits pending alerts", []firing.Alert{pending}, "", ""},
		{"omits other alerts", []firing.Alert{alert("Etcd", "warning"), alert("", ""), {}}, "", ""},
		{"includes budgets at their limit", []firing.Alert{alert("PodDisruptionBudgetAtLimit", "warning", "namespace", "a", "poddisruptionbudget", "b")}, "warning alert PodDisruptionBudgetAtLimit firing, " + drains + ". Namespace=a, PodDisruptionBudget=b. PodDisruptionBudgetAtLimit." + noStory, noPage},
		{"counts KubeContainerWaiting", []firing.Alert{alert("KubeContainerWaiting", "warning")}, "warning alert KubeContainerWaiting firing, " + slows + ". KubeContainerWaiting." + noStory, noPage},
		{"counts KubeletHealthState", []firing.Alert{alert("KubeletHealthState", "")}, "alert KubeletHealthState firing, " + slows + ". KubeletHealthState." + noStory, noPage},
		{"counts a critical KubeNodeNotReady", []firing.Alert{alert("KubeNodeNotReady", "critical")}, "critical alert KubeNodeNotReady firing, " + issues + ". KubeNodeNotReady." + noStory, noPage},
		{"counts KubeNodeReadinessFlapping", []firing.Alert{alert("KubeNodeReadinessFlapping", "warning")}, "warning alert KubeNodeReadinessFlapping firing, " + slows + ". KubeNodeReadinessFlapping." + noStory, noPage},
		{"counts KubeNodeUnreachable", []firing.Alert{alert("KubeNodeUnreachable", "warning")}, "warning alert KubeNodeUnreachable firing, " + slows + ". KubeNodeUnreachable." + noStory, noPage},
		{"counts VirtHandlerDaemonSetRolloutFailing", []firing.Alert{alert("VirtHandlerDaemonSetRolloutFailing", "warning")}, "warning alert VirtHandlerDaemonSetRolloutFailing firing, " + slows + ". VirtHandlerDaemonSetRolloutFailing." + noStory, noPage},
		{"counts VMCannotBeEvicted", []firing.Alert{alert("VMCannotBeEvicted", "warning")}, "warning alert VMCannotBeEvicted firing, " + slows + ". VMCannotBeEvicted." + noStory, noPage},
		{"includes alerts with the precheck label", []firing.Alert{alert("Mine", "info", "openShiftUpdatePrecheck", "true")}, "info alert Mine firing, suggesting issues worth investigating before updating the cluster. Mine." + noStory, noPage},
		{"omits alerts without the precheck label", []firing.Alert{alert("Mine", "info", "openShiftUpdatePrecheck", "false")}, "", ""},
		{"joins sorted instances without duplicates", []firing.Alert{alert("Etcd", "critical", "@summary", "b"), alert("Etcd", "critical", "@summary", "a", "@runbook_url", "https://example.com/a"), alert("Etcd", "critical", "@summary", "b", "x", "y")}, "critical alert Etcd firing, " + issues + ". a." + noStory + "; critical alert Etcd firing, " + issues + ". b." + noStory, "https://example.com/a"},
		{"drops an invalid runbook URL", []firing.Alert{alert("Etcd", "critical", "@runbook_url", "javascript:alert(1)")}, "critical alert Etcd firing, " + issues + ". Etcd." + noStory, noPage},
		{"cleans texts", []firing.Alert{alert("Etcd", "critical\n", "severity", "critical", "@summary", "a\n\tb\x1b[31m\u202e\xff")}, "critical alert Etcd firing, " + issues + ". a b [31m \uFFFD." + noStory, noPage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, err := alertsOf(t, tc.alerts...)
			require.NoError(t, err)
			if tc.message == "" {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Equal(t, tc.alerts[0].Labels["alertname"], found[0].Name)
			assert.Equal(t, tc.message, found[0].Message)
			assert.Equal(t, tc.url, found[0].URL)
			assert.Equal(t, []configv1.ClusterCondition{{Type: "Always"}}, found[0].MatchingRules)
			require.Len(t, found[0].Conditions, 1)
			condition := found[0].Conditions[0]
			assert.Equal(t, metav1.Condition{Type: "Applies", Status: "True", Reason: "Alert:firing", Message: tc.message, LastTransitionTime: condition.LastTransitionTime}, condition)
			assert.False(t, condition.LastTransitionTime.IsZero())
		})
	}
}

// TestAlertsWithForeignLabelsAreCleaned uses labels from another author.
//
//threat:alerts-labels-chosen
func TestAlertsWithForeignLabelsAreCleaned(t *testing.T) {
	var many []firing.Alert
	for i := range 1000 {
		many = append(many, alert(fmt.Sprintf("Alert%03d", i%100), "critical", "@summary", fmt.Sprint(strings.Repeat("é", 9000), i), "@runbook_url", "https://example.com/"+strings.Repeat("a", 5000)))
	}
	found, err := alertsOf(t, append(many, alert("lower", "critical"), alert("A B", "critical"), alert("A\x1b[31m", "critical"), alert(strings.Repeat("A", 9000), "critical"))...)
	require.Len(t, found, 50)
	for _, f := range found {
		assert.LessOrEqual(t, len(f.Message), 2<<10)
		assert.LessOrEqual(t, len(f.URL), 1<<10)
	}
	require.ErrorContains(t, err, "100 alerts are firing, but only the first 50 by name are risks")
	require.ErrorContains(t, err, `alert "lower" is firing but cannot be a risk: its name does not match ^[A-Z][A-Za-z0-9.-]*$`)
	require.ErrorContains(t, err, `alert "A\x1b[31m" is firing`)
	assert.Less(t, len(err.Error()), 2000)
}

// TestAlertsSurviveAnOutageOfTheirSource follows alerts through an outage of their source.
func TestAlertsSurviveAnOutageOfTheirSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found, err := []firing.Alert{alert("Etcd", "critical")}, error(nil)
		s := &source{alerts: func(ctx context.Context) ([]firing.Alert, error) {
			if err != nil {
				return nil, err
			}
			return found, ctx.Err()
		}}
		e := risk.New(clock.RealClock{}, s, risk.Options{})
		ended, end := context.WithCancel(t.Context())
		end()
		_, early := e.Alerts(ended)
		require.EqualError(t, early, "reading alerts: interrupted")

		for range 10 {
			known, err := e.Alerts(t.Context())
			require.NoError(t, err)
			require.Len(t, known, 1)
			known[0].Name = "changed by the caller"
		}
		assert.Equal(t, int64(2), s.calls.Load())
		assert.Equal(t, time.Minute, time.Until(e.AlertsDue()))

		err = errors.New("away")
		start := time.Now()
		time.Sleep(time.Minute)
		for time.Since(start) <= 15*time.Minute {
			known, err := e.Alerts(t.Context())
			require.EqualError(t, err, "reading alerts: away")
			require.Len(t, known, 1, "after %s", time.Since(start))
			assert.Equal(t, "Etcd", known[0].Name)
			time.Sleep(30 * time.Second)
		}
		known, alertsErr := e.Alerts(t.Context())
		require.Error(t, alertsErr)
		assert.Empty(t, known)
		assert.Less(t, s.calls.Load(), int64(12))

		err, found = nil, nil
		time.Sleep(time.Until(e.AlertsDue()))
		known, alertsErr = e.Alerts(t.Context())
		require.NoError(t, alertsErr)
		assert.Empty(t, known)
	})
}

// TestAlertsOfAnEarlierProcessCountUntilTheFirstRead checks restored alerts: they are valid until the first read, but no longer than
// without a restart.
func TestAlertsOfAnEarlierProcessCountUntilTheFirstRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found, err := alertsOf(t, alert("Etcd", "critical"))
		require.NoError(t, err)
		err = errors.New("away")
		s := &source{alerts: func(context.Context) ([]firing.Alert, error) { return nil, err }}
		e := risk.New(clock.RealClock{}, s, risk.Options{})
		e.RememberAlerts(append(risks(3), found...))
		assert.Zero(t, e.AlertsDue(), "alerts are read immediately")
		start := time.Now()
		for time.Since(start) <= 15*time.Minute {
			known, err := e.Alerts(t.Context())
			require.EqualError(t, err, "reading alerts: away")
			require.Equal(t, found, known, "resolved alerts are not risks")
			time.Sleep(time.Minute)
		}
		known, _ := e.Alerts(t.Context())
		assert.Empty(t, known)

		e = risk.New(clock.RealClock{}, s, risk.Options{})
		err = nil
		known, alertsErr := e.Alerts(t.Context())
		require.NoError(t, alertsErr)
		assert.Empty(t, known)
		e.RememberAlerts(found)
		known, alertsErr = e.Alerts(t.Context())
		require.NoError(t, alertsErr)
		assert.Empty(t, known, "the alerts from the read replace them")
	})
}
