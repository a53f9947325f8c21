package apply_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestHangingWebhookIsNamed writes objects that a webhook never admits. The server ends the write before it gives the webhook up, and its
// response does not name the webhook.
func TestHangingWebhookIsNamed(t *testing.T) {
	var called atomic.Bool
	ended := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		called.Store(true)
		<-ended
	}))
	t.Cleanup(func() {
		close(ended)
		server.Close()
	})
	ns := namespace(t)
	config := parse(t, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: `+ns+`}
webhooks:
- name: hanging.example.com
  clientConfig: {url: "`+server.URL+`", caBundle: `+base64.StdEncoding.EncodeToString(pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))+`}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: `+ns+`}}
  sideEffects: None
  admissionReviewVersions: [v1]
  timeoutSeconds: 1
`)
	a, record := connect(t, owner)
	must(t, a, config)

	record.before = func(r *http.Request) { // the fence of a leader gives a write less time than a webhook may take
		if query := r.URL.Query(); query.Get("dryRun") == "" {
			query.Set("timeout", "500ms")
			r.URL.RawQuery = query.Encode()
		}
	}
	write := func(name, annotations string) error {
		m := parse(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s, annotations: %s}\n", name, ns, annotations))
		_, err := a.Apply(t.Context(), m, release.Updating)
		return err
	}
	for try := 0; !called.Load(); try++ { // the server calls a new webhook a moment later
		_ = write(fmt.Sprintf("early-%d", try), "{}") // it fails if the server calls the webhook
	}
	for name, annotations := range map[string]string{"applied": "{}", "created": "{" + api.CreateOnlyAnnotation + ": 'true'}"} {
		t.Run(name, func(t *testing.T) {
			var failed *failure.Error
			require.ErrorAs(t, write(name, annotations), &failed)
			assert.Equal(t, api.ReasonClusterError, failed.Reason, failed)
			assert.Contains(t, failed.Remedy, "repair the service behind webhook hanging.example.com", failed)
			assert.True(t, failure.IsUnavailable(failed))
		})
	}
	t.Run("ignored if it fails", func(t *testing.T) {
		webhooks, _, _ := unstructured.NestedSlice(config.Object.Object, "webhooks")
		webhook, _ := webhooks[0].(map[string]any)
		webhook["failurePolicy"] = "Ignore"
		require.NoError(t, unstructured.SetNestedSlice(config.Object.Object, webhooks, "webhooks"))
		limit := record.before
		record.before = nil
		must(t, a, config)
		record.before = limit
		require.EventuallyWithT(t, func(c *assert.CollectT) { // the server sees the change a moment later
			require.ErrorContains(c, write("ignored", "{}"), "an admission webhook or the storage of the API server is slow")
		}, time.Minute, time.Millisecond)
	})
}
