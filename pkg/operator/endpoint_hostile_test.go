package operator

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

	"github.com/cluster-version/cvo/test/fixture"
)

// answers is a client of a server whose certificate it trusts and that answers as the test wants.
func answers(t testing.TB, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	client, err := NewClient(&rest.Config{}, server.URL, Trust{Fingerprint: Fingerprint(server.Certificate())}, nil)
	require.NoError(t, err)
	client.http.Timeout = 0 // what ends an answer here is its size, and no machine that is too slow to read that much in time
	t.Cleanup(client.Close)
	return client
}

func TestHostileEndpoint(t *testing.T) {
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
		{"an account without end", endless(`{"release":"`, http.StatusOK, "x"), "request body too large"},
		{"objects without end", endless(`{"objects":[`, http.StatusOK, `{},`), "request body too large"},
		{"spaces without end", endless("", http.StatusOK, " "), "request body too large"},
		{"an error without end", endless(`{"kind":"Status","message":"`, http.StatusForbidden, "x"), "403 Forbidden"},
		{"a deep account", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(`{"objects":[`, 1_000_000))
		}, "reading the account of the rollout"},
		{"a page", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "invalid character"},
	} {
		t.Run("it survives "+tt.name, func(t *testing.T) {
			client := answers(t, tt.answer)
			fixture.Bounded(t, func() {
				snapshot, _, err := client.Rollout(t.Context(), true, "")
				require.ErrorContains(t, err, tt.want)
				assert.Nil(t, snapshot)
				assert.Less(t, len(err.Error()), 2000)
			})
		})
	}
	client := answers(t, endless("", http.StatusOK, "# x\n"))
	fixture.Bounded(t, func() {
		_, err := client.Metrics(t.Context())
		require.ErrorContains(t, err, "request body too large")
	})
}

// FuzzRollout reads whatever a server may answer with any status; what is read can be printed.
func FuzzRollout(f *testing.F) {
	f.Add(uint16(0), []byte(`{"release":{"version":"1.0.0"},"objects":[{"id":"x"}]}`))
	f.Add(uint16(0), []byte(`null`))
	f.Add(uint16(104), []byte(``))
	f.Add(uint16(203), []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`))
	f.Add(uint16(303), []byte(`{"kind":"Status","details":{"retryAfterSeconds":-1}}`))
	f.Fuzz(func(t *testing.T, code uint16, body []byte) {
		status := 200 + int(code)%400
		recorder := httptest.NewRecorder()
		recorder.WriteHeader(status)
		_, _ = recorder.Write(body)
		client := &Client{url: "https://replica", http: &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			resp := recorder.Result()
			resp.Request = req
			return resp, nil
		})}}
		snapshot, _, err := client.Rollout(t.Context(), true, "known")
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
