package rolloutpage_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/kube/certificate"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/operator/rolloutpage"
	testendpoint "github.com/cluster-version/cvo/test/endpoint"
	"github.com/cluster-version/cvo/test/fixture"
)

// answers starts a server with the given answer, and returns a client that trusts its certificate.
func answers(t testing.TB, answer http.HandlerFunc) *serve.Client {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	client, err := serve.NewClient(&rest.Config{}, server.URL, serve.Trust{Fingerprint: certificate.Fingerprint(server.Certificate())}, nil)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

//threat:another-server-poses
func TestHostileEndpointIsReadWithinBounds(t *testing.T) {
	endless := func(start string, status int, chunk string) http.HandlerFunc {
		chunk = strings.Repeat(chunk, 64<<10/len(chunk))
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, start)
			for {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		}
	}
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"survives an endless account", endless(`{"release":"`, http.StatusOK, "x"), "request body too large"},
		{"survives endless objects", endless(`{"objects":[`, http.StatusOK, `{},`), "request body too large"},
		{"survives endless spaces", endless("", http.StatusOK, " "), "request body too large"},
		{"survives an endless error", endless(`{"kind":"Status","message":"`, http.StatusForbidden, "x"), "403 Forbidden"},
		{"survives a deeply nested account", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(`{"objects":[`, 1_000_000))
		}, "reading the state of the rollout"},
		{"survives an HTML page", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "invalid character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := answers(t, tt.answer)
			fixture.Bounded(t, func() {
				snapshot, _, err := rolloutpage.Read(t.Context(), client, true, "")
				require.ErrorContains(t, err, tt.want)
				assert.Nil(t, snapshot)
				assert.Less(t, len(err.Error()), 2000)
			})
		})
	}
	client := answers(t, endless("", http.StatusOK, "# x\n"))
	fixture.Bounded(t, func() {
		_, err := testendpoint.Metrics(t.Context(), client)
		require.ErrorContains(t, err, "request body too large")
	})
}

// FuzzRollout parses any response with any status. A parsed response must be printable.
//
//threat:answers-operator-endpoint
func FuzzRollout(f *testing.F) {
	f.Add(uint16(0), []byte(`{"release":{"version":"1.0.0"},"objects":[{"id":"x"}]}`))
	f.Add(uint16(0), []byte(`null`))
	f.Add(uint16(104), []byte(``))
	f.Add(uint16(203), []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`))
	f.Add(uint16(303), []byte(`{"kind":"Status","details":{"retryAfterSeconds":-1}}`))
	var status int
	var body []byte
	client := answers(f, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
	f.Fuzz(func(t *testing.T, code uint16, answer []byte) {
		status, body = 200+int(code)%400, answer
		snapshot, _, err := rolloutpage.Read(t.Context(), client, true, "known")
		switch {
		case err != nil:
			assert.Nil(t, snapshot)
			_ = apierrors.ReasonForError(err)
		case status == http.StatusNotModified:
			assert.Nil(t, snapshot)
		default:
			_, err := json.Marshal(snapshot)
			require.NoError(t, err)
		}
	})
}
