package apply_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestHangingWebhookIsNamed writes objects that a webhook never admits. The server ends the write before it gives the webhook up, and its
// response does not name the webhook.
func TestHangingWebhookIsNamed(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
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
	for name, annotations := range map[string]string{"applied": "{}", "created": "{" + api.CreateOnlyAnnotation + ": 'true'}"} {
		t.Run(name, func(t *testing.T) {
			var failed *failure.Error
			for try := 0; failed == nil; try++ { // the server calls a new webhook a moment later
				m := parse(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s-%d, namespace: %s, annotations: %s}\n", name, try, ns, annotations))
				if _, err := a.Apply(t.Context(), m, release.Updating); err != nil {
					require.ErrorAs(t, err, &failed)
				}
			}
			assert.Equal(t, api.ReasonClusterError, failed.Reason, failed)
			assert.Contains(t, failed.Remedy, "repair the service behind webhook hanging.example.com", failed)
			assert.True(t, failure.IsUnavailable(failed))
		})
	}
}
