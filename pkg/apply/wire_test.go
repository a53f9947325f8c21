package apply_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/release"
)

// reply returns a response that a test's own transport makes up.
func reply(r *http.Request, code int, headers http.Header, body string) *http.Response {
	if headers == nil {
		headers = http.Header{}
	}
	headers.Set("Content-Type", "application/json")
	return &http.Response{
		StatusCode: code, Header: headers, Body: io.NopCloser(strings.NewReader(body)), Request: r, ContentLength: int64(len(body)),
	}
}

const appliedThing = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"u","resourceVersion":"9"}}`

func tooMany(r *http.Request, after string) *http.Response {
	return reply(r, http.StatusTooManyRequests, http.Header{"Retry-After": {after}},
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"wait"}`)
}

func TestRetryAfterIsHonored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			assert.Contains(t, string(body), `"Thing"`, "the body must be sent each time")
			at = append(at, time.Since(began))
			if len(at) < 3 {
				return tooMany(r, "4"), nil
			}
			return reply(r, 200, nil, appliedThing), nil
		})}
		change, err := to(t, "http://busy.example", client).Apply(t.Context(), thing(t, ""), release.Updating)
		require.NoError(t, err)
		assert.Equal(t, apply.Applied, change.Action)
		assert.Equal(t, []time.Duration{0, 4 * time.Second, 8 * time.Second}, at)
	})
}

func TestOverloadedServerIsReportedAsOverloaded(t *testing.T) {
	for _, after := range []string{"1", "20", "3600"} {
		t.Run("retry after "+after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				requests := 0
				client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					requests++
					return tooMany(r, after), nil
				})}
				_, err := to(t, "http://busy.example", client).Apply(t.Context(), thing(t, ""), release.Updating)
				var failed *failure.Error
				require.ErrorAs(t, err, &failed)
				t.Logf("%d requests, %s: %v", requests, time.Since(began), err)
				assert.Equal(t, api.ReasonClusterOverloaded, failed.Reason, "%v", err)
				assert.LessOrEqual(t, time.Since(began), request.Timeout)
			})
		})
	}
}

func TestBrokenConnectionsAreReported(t *testing.T) {
	status := func(code int, reason string) roundTripper {
		return func(r *http.Request) (*http.Response, error) {
			return reply(r, code, nil, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"`+reason+`","code":`+
				strconv.Itoa(code)+`,"message":"because"}`), nil
		}
	}
	for _, tt := range []struct {
		name string
		do   roundTripper
		want string
	}{
		{"reports a dropped connection as ClusterDown", func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNRESET }, api.ReasonClusterDown},
		{"reports a connection that ends early as ClusterDown", func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, api.ReasonClusterDown},
		{"reports a truncated response as ClusterDown", func(r *http.Request) (*http.Response, error) {
			resp := reply(r, 200, nil, "")
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(appliedThing[:20]), broken{}))
			resp.ContentLength = -1
			return resp, nil
		}, api.ReasonClusterDown},
		{"waits for a response no longer than the request timeout", func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, api.ReasonClusterDown},
		{"waits for the rest of a response no longer than the timeout", func(r *http.Request) (*http.Response, error) {
			resp := reply(r, 200, nil, "")
			resp.Body = io.NopCloser(slow{r})
			resp.ContentLength = -1
			return resp, nil
		}, api.ReasonClusterDown},
		{"reports an internal error", status(500, "InternalError"), api.ReasonClusterError},
		{"reports a conflict", status(409, "Conflict"), api.ReasonResourceConflict},
		{"reports a missing server", status(503, "ServiceUnavailable"), api.ReasonClusterDown},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := to(t, "http://broken.example", &http.Client{Transport: tt.do}).
					Apply(t.Context(), thing(t, ""), release.Updating)
				var failed *failure.Error
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, tt.want, failed.Reason, "%v", err)
				assert.LessOrEqual(t, time.Since(began), request.Timeout)
			})
		})
	}
}

// broken is the body of a response whose connection is lost.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, syscall.ECONNRESET }

// slow is the body of a response that never ends.
type slow struct{ r *http.Request }

func (s slow) Read([]byte) (int, error) {
	<-s.r.Context().Done()
	return 0, s.r.Context().Err()
}

// TestRequestsWithLostResponsesAreRepeated lets the server process each request but loses the response.
func TestRequestsWithLostResponsesAreRepeated(t *testing.T) {
	ns := namespace(t)
	for _, tt := range []struct {
		name, annotations, method string
		want                      apply.Action
	}{
		{"create", `{release.openshift.io/create-only: "true"}`, http.MethodPost, apply.Kept},
		{"apply", "{}", http.MethodPatch, apply.Applied},
		{"delete", tombstone, http.MethodDelete, apply.Deleted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			m := configMap(t, ns, tt.name, tt.annotations, "{a: x}")
			if m.Tombstone() {
				require.NoError(t, otherClient(t).Create(t.Context(), m.Object.DeepCopy()))
			}
			next := record.next
			record.next = roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil && r.Method == tt.method {
					return nil, errors.Join(syscall.ECONNRESET, resp.Body.Close())
				}
				return resp, err
			})
			_, err := a.Apply(t.Context(), m, release.Updating)
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, api.ReasonClusterDown, failed.Reason)
			record.next = next
			assert.Equal(t, tt.want, must(t, a, m).Action)
		})
	}
}
