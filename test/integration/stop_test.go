package integration_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/env"
)

// longLease is much longer than the start of a process on a busy machine. Within that time, only a released Lease gets another holder.
const longLease = 5 * time.Minute

// rejectedManifest has an unknown field, as some manifests of real releases do. The API server responds to an apply with status 500,
// although it has stored nothing.
const rejectedManifest = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tiny-rejected, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
userNames: ["system:serviceaccount:tiny-a:x"]
`

// stopsAndFollows stops an operator and starts another one. The next operator needs only the requests of its first claim: it waits neither
// for the Lease to expire nor for its next turn.
func (p *platform) stopsAndFollows(operator *process, image string) *process {
	p.t.Helper()
	before := p.holder(func(holder string) bool { return holder != "" })
	began := time.Now()
	operator.end(p.t)
	ended := time.Since(began)
	assert.Empty(p.t, p.holder(func(string) bool { return true }), "the Lease was not released: %s", tail(operator.log))
	next := p.operator(image, "--leader-elect-lease-duration", longLease.String())
	p.holder(func(holder string) bool { return holder != "" && holder != before })
	p.t.Logf("the process ended after %s; the next one led %s after the signal", ended.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	assert.Equal(p.t, []string{"get", "update"}, p.claims(began.Add(ended)), "the first claim succeeds, without polling")
	return next
}

// claims returns the requests of the next leader election since a time, up to the first write.
func (p *platform) claims(since time.Time) (verbs []string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		verbs = nil
		for _, e := range p.audit(since) {
			if e.Object.Resource == "leases" && strings.HasSuffix(e.UserAgent, "/leader-election") {
				verbs = append(verbs, e.Verb)
				if e.Write() {
					return true
				}
			}
		}
		return false
	}, time.Minute, 50*time.Millisecond)
	return verbs
}

// TestStopReleasesTheLease stops operators right after an install has completed and during rollouts.
func TestStopReleasesTheLease(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	tiny := newTiny(t)
	files := tiny.files("1.0.0").(fstest.MapFS)
	files["manifests/0000_10_tiny_rejected.yaml"] = &fstest.MapFile{Data: []byte(rejectedManifest)}
	first := p.push(files, "1.0.0", true)
	next := p.push(tiny.files("1.1.0"), "1.1.0", true)
	_, err := p.run("install", "--no-operator", "--release-image", first.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	p.start("operators")

	began := time.Now()
	operator := p.operator(first.ByDigest(), "--leader-elect-lease-duration", longLease.String())
	p.await("the install to begin", time.Minute, func(cv *configv1.ClusterVersion) bool { return len(cv.Status.History) > 0 })
	operator = p.stopsAndFollows(operator, first.ByDigest())
	p.watchedBeforeItLed(began)
	p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	operator = p.stopsAndFollows(operator, first.ByDigest())
	p.update(configv1.Update{Image: next.ByDigest()})
	p.await("the update to begin", time.Minute, func(cv *configv1.ClusterVersion) bool { return cv.Status.History[0].Version == "1.1.0" })
	operator = p.stopsAndFollows(operator, first.ByDigest())
	p.await("1.1.0 to complete", time.Minute, completed("1.1.0"))
	p.stopsAndFollows(operator, first.ByDigest())
}

// watchedBeforeItLed checks that the first operator since a time, which has ended, started to watch the ClusterVersion before it claimed
// the Lease. A new leader therefore reconciles at once.
func (p *platform) watchedBeforeItLed(since time.Time) {
	p.t.Helper()
	var watched, claimed time.Time
	first := func(at *time.Time, e env.AuditEvent) {
		if at.IsZero() || e.Received.Before(*at) {
			*at = e.Received
		}
	}
	require.Eventually(p.t, func() bool { // the audit log has a watch only when it has ended
		for _, e := range p.audit(since) {
			switch {
			case e.Verb == "watch" && e.Object.Resource == "clusterversions" && strings.HasPrefix(e.UserAgent, operatorAgent):
				first(&watched, e)
			case e.Write() && e.Object.Resource == "leases":
				first(&claimed, e)
			}
		}
		return !watched.IsZero() && !claimed.IsZero()
	}, time.Minute, 50*time.Millisecond)
	assert.True(p.t, watched.Before(claimed), "watched at %s, claimed the Lease at %s", watched, claimed)
}

// hangingWebhook installs a webhook that does not answer writes of ConfigMaps in a namespace. The returned channel gets a value for each
// write.
func (p *platform) hangingWebhook(clients kubernetes.Interface, namespace string) <-chan struct{} {
	p.t.Helper()
	arrived, ended := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case arrived <- struct{}{}:
		default:
		}
		<-ended
	}))
	p.t.Cleanup(func() {
		close(ended)
		server.Close()
	})
	url := server.URL
	fail, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	_, err := clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(p.t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hanging"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hanging.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, FailurePolicy: &fail,
			TimeoutSeconds: new(int32(30)),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(p.t, err)
	return arrived
}

// TestStopKeepsTheLeaseDuringAHangingWrite stops an operator while the API server does not answer a write. The operator keeps the Lease
// until the write can no longer take effect, and not longer.
func TestStopKeepsTheLeaseDuringAHangingWrite(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	img := p.push(newTiny(t).files("1.0.0"), "1.0.0", true)
	_, err := p.run("install", "--no-operator", "--release-image", img.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	p.start("operators")
	operator := p.operator(img.ByDigest(), "--leader-elect-lease-duration", "15s", "--leader-elect-renew-deadline", "10s")
	p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	first := p.holder(func(holder string) bool { return holder != "" })

	clients := kubernetes.NewForConfigOrDie(p.env.Config("integration"))
	arrived := p.hangingWebhook(clients, "tiny-a")
	require.Eventually(t, func() bool {
		_ = clients.CoreV1().ConfigMaps("tiny-a").Delete(t.Context(), "settings", metav1.DeleteOptions{}) // the operator repairs the deletion
		return len(arrived) > 0
	}, time.Minute, 50*time.Millisecond)
	operator.end(t)
	lease := func() *coordinationv1.Lease {
		lease, err := clients.CoordinationV1().Leases(api.OperatorNamespace).Get(t.Context(), "version", metav1.GetOptions{})
		require.NoError(t, err)
		return lease
	}
	kept := lease()
	require.Equal(t, first, *kept.Spec.HolderIdentity)
	operator.logged(t, "keeping the Lease until an unanswered write can no longer take effect")
	assert.LessOrEqual(t, *kept.Spec.LeaseDurationSeconds, int32(9), "half of the lease duration plus a twelfth")

	require.NoError(t, clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "hanging", metav1.DeleteOptions{}))
	p.operator(img.ByDigest())
	p.holder(func(holder string) bool { return holder != "" && holder != first })
	free := kept.Spec.RenewTime.Add(time.Duration(*kept.Spec.LeaseDurationSeconds) * time.Second)
	acquired := lease().Spec.AcquireTime
	assert.False(t, acquired.Time.Before(free), "acquired at %s, although kept until %s", acquired, free)
	t.Logf("the next operator led %s later", acquired.Sub(free).Round(time.Millisecond))
}
