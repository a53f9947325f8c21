package integration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/test/env"
)

const (
	// longWait is the number of consecutive failures after which the backoff exceeds repairLimit: 6.4 s, or 5 s with an unresponsive
	// webhook, plus or minus a fifth.
	longWait    = 6
	repairLimit = 2500 * time.Millisecond
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

	failures := func(since time.Time) (n int) {
		for _, e := range p.audit(since) {
			if strings.HasPrefix(e.UserAgent, operatorAgent) && e.Verb == "patch" && e.Object.Name == "retention" && e.Code >= 400 {
				n++
			}
		}
		return n
	}
	broken := func(since time.Time) {
		require.Eventually(t, func() bool { return failures(since) >= longWait }, time.Minute, 50*time.Millisecond)
	}
	applied := func() bool {
		return slices.ContainsFunc(p.audit(time.Now().Add(-time.Minute)), func(e env.AuditEvent) bool {
			return strings.HasPrefix(e.UserAgent, operatorAgent) && e.Object.Name == "retention" && e.Write() && time.Since(e.Received) < repairLimit
		})
	}
	repaired := func(what string, begin time.Time) {
		require.Eventually(t, applied, 30*time.Second, 20*time.Millisecond)
		took := time.Since(begin)
		t.Logf("%s: applied %s after the repair", what, took.Round(time.Millisecond))
		assert.Less(t, took, repairLimit, what)
	}

	// Another client replaces the object by an immutable one without our label.
	begin := time.Now()
	frozen := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "retention"}, Immutable: new(true), Data: map[string]string{"k": "v"}}
	require.Eventually(t, func() bool {
		_ = configMaps.Delete(t.Context(), "retention", metav1.DeleteOptions{})
		_, err := configMaps.Create(t.Context(), frozen, metav1.CreateOptions{})
		return err == nil
	}, time.Minute, time.Millisecond)
	broken(begin)
	repair := time.Now()
	require.NoError(t, configMaps.Delete(t.Context(), "retention", metav1.DeleteOptions{}))
	repaired("the object", repair)

	// An unresponsive webhook rejects every write.
	_, err = webhooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
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
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	require.Eventually(t, func() bool {
		_, err := configMaps.Create(t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "failed calling webhook")
	}, time.Minute, 20*time.Millisecond)
	begin = time.Now()
	require.NoError(t, configMaps.Delete(t.Context(), "retention", metav1.DeleteOptions{}))
	broken(begin)
	repair = time.Now()
	require.NoError(t, webhooks.Delete(t.Context(), "away", metav1.DeleteOptions{}))
	repaired("the webhook", repair)

	// The audit log records a watch when it ends.
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(p.audit(begin), func(e env.AuditEvent) bool {
			return e.Verb == "watch" && e.Object.Resource == "validatingwebhookconfigurations" && strings.HasPrefix(e.UserAgent, operatorAgent) && !e.Done.IsZero()
		})
	}, time.Minute, 50*time.Millisecond, "waiting for the watch on webhooks to end")
}
