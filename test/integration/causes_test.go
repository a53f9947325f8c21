package integration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/test/env"
)

const (
	// longWait is the number of consecutive failures before a repair.
	longWait = 6
	// minBackoff is the minimum backoff after them: 5 s with an unresponsive webhook, 6.4 s otherwise, less a fifth.
	minBackoff = 4 * time.Second
)

// TestRepairedCauseEndsTheBackoff checks that a rejected object is applied as soon as the cause is repaired. The watches for the repair end
// with the error.
func TestRepairedCauseEndsTheBackoff(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	first := p.build("../../examples/platform/1.0.0", "1.0.0")
	_, err := p.run("install", "--no-operator", "--release-image", first.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	p.start("operators")
	p.operator(first.ByDigest())
	p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	kube, err := kubernetes.NewForConfig(p.env.Config("administrator"))
	require.NoError(t, err)
	p.awaitRecreated(kube.CoreV1())
	configMaps := kube.CoreV1().ConfigMaps("example-backup")
	webhooks := kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()

	// attempts returns the operator's writes of the object since a time in their order, without dry runs.
	attempts := func(since time.Time) (list []env.AuditEvent) {
		for _, e := range p.audit(since) {
			if strings.HasPrefix(e.UserAgent, operatorAgent) && e.Verb == "patch" && e.Object.Name == "retention" && !strings.Contains(e.URI, "dryRun=") {
				list = append(list, e)
			}
		}
		slices.SortFunc(list, func(a, b env.AuditEvent) int { return a.Received.Compare(b.Received) })
		return list
	}
	rejected := func(e env.AuditEvent) bool { return e.Code >= 400 }
	rejections := func(since time.Time) []env.AuditEvent {
		return slices.DeleteFunc(attempts(since), func(e env.AuditEvent) bool { return !rejected(e) })
	}
	// triggers checks that a repair triggers the attempt that succeeds: it starts before the timer would start it. A busy machine may delay
	// an attempt, but not each one, so triggers breaks and repairs the cause until an attempt is early.
	triggers := func(what string, broken, repair func()) {
		for limit := time.Now().Add(patience); ; {
			begin := time.Now()
			broken()
			require.Eventually(t, func() bool { return len(rejections(begin)) >= longWait }, patience, 50*time.Millisecond)
			repair()
			var last, success env.AuditEvent
			require.Eventually(t, func() bool {
				list := attempts(begin)
				for i := 1; i < len(list); i++ {
					if last, success = list[i-1], list[i]; rejected(last) && !rejected(success) {
						return true
					}
				}
				return false
			}, patience, 20*time.Millisecond)
			took := success.Received.Sub(last.Done)
			t.Logf("%s: applied %s after the last rejection", what, took.Round(time.Millisecond))
			if took < minBackoff {
				return
			}
			require.True(t, time.Now().Before(limit), "%s: only the timer ends the wait", what)
		}
	}

	// Another client replaces the object by an immutable one without our label.
	frozen := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "retention"}, Immutable: new(true), Data: map[string]string{"k": "v"}}
	remove := func() { require.NoError(t, configMaps.Delete(t.Context(), "retention", metav1.DeleteOptions{})) }
	triggers("the object", func() {
		require.Eventually(t, func() bool {
			_ = configMaps.Delete(t.Context(), "retention", metav1.DeleteOptions{})
			_, err := configMaps.Create(t.Context(), frozen, metav1.CreateOptions{})
			return err == nil
		}, patience, time.Millisecond)
	}, remove)

	// An unresponsive webhook rejects every write.
	away := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "away"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "away.example.com", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			FailurePolicy: new(admissionregistrationv1.Fail), TimeoutSeconds: new(int32(1)),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "example-backup"}},
		}},
	}
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	begin := time.Now()
	triggers("the webhook", func() {
		_, err := webhooks.Create(t.Context(), away, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := configMaps.Create(t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), "failed calling webhook")
		}, patience, 20*time.Millisecond)
		remove()
	}, func() { require.NoError(t, webhooks.Delete(t.Context(), away.Name, metav1.DeleteOptions{})) })

	// A policy denies every write.
	policies, bindings := kube.AdmissionregistrationV1().ValidatingAdmissionPolicies(), kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err = policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "frozen"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: away.Webhooks[0].Rules[0],
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "frozen"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "frozen"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "frozen", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: away.Webhooks[0].NamespaceSelector},
		},
	}
	triggers("the policy", func() {
		_, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := configMaps.Create(t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), "frozen")
		}, patience, 20*time.Millisecond)
		remove()
	}, func() { require.NoError(t, bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{})) })

	// The audit log records a watch when it ends.
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(p.audit(begin), func(e env.AuditEvent) bool {
			return e.Verb == "watch" && e.Object.Resource == "validatingwebhookconfigurations" && strings.HasPrefix(e.UserAgent, operatorAgent) && !e.Done.IsZero()
		})
	}, time.Minute, 50*time.Millisecond, "waiting for the watch on webhooks to end")
}
