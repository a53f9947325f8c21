package request

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// TestWritesFindTheCauseOfATimeout has a server that aborts the stream of each write, and whose response to a dry run names a webhook.
func TestWritesFindTheCauseOfATimeout(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("dryRun") == "" {
			panic(http.ErrAbortHandler)
		}
		status := apierrors.NewInternalError(context.DeadlineExceeded).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		status.Message = "failed calling webhook slow.example.com"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		assert.NoError(t, json.NewEncoder(w).Encode(status))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}}
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	c, err := Connect(config, httpClient)
	require.NoError(t, err)

	target := Target{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "default", Name: "a"}
	object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}}
	for name, write := range map[string]func(context.Context) error{
		"apply":        func(ctx context.Context) error { _, _, err := c.Apply(ctx, target, object, true); return err },
		"create":       func(ctx context.Context) error { _, _, err := c.Create(ctx, target, object); return err },
		"replace":      func(ctx context.Context) error { _, err := c.Replace(ctx, target, object); return err },
		"set managers": func(ctx context.Context) error { _, err := c.SetManagers(ctx, target, "1", nil); return err },
		"patch status": func(ctx context.Context) error { return c.PatchStatus(ctx, target, object) },
		"delete": func(ctx context.Context) error {
			_, err := c.Delete(ctx, target, &metav1.PartialObjectMetadata{}, false, metav1.DeletePropagationBackground)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := write(t.Context())
			assert.True(t, apierrors.IsInternalError(err), "%v", err)
			assert.ErrorContains(t, err, "slow.example.com")
		})
	}
}
