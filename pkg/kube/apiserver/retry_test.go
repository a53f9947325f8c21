package apiserver_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/kube/apiserver"
)

// inMemory serves requests without a network, so that synctest controls the time. It answers the n-th request with the n-th answer, and all
// further requests with the last one.
func inMemory(t *testing.T, logLine func(string), answers ...http.HandlerFunc) (*kubernetes.Clientset, *[]string) {
	t.Helper()
	var bodies []string
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		var content []byte
		if r.Body != nil {
			content, _ = io.ReadAll(r.Body)
		}
		bodies = append(bodies, string(content))
		answer := answers[min(len(bodies), len(answers))-1]
		if answer == nil {
			return nil, &net.OpError{Op: "read", Err: net.ErrClosed}
		}
		recorder := httptest.NewRecorder()
		answer(recorder, r)
		return recorder.Result(), nil
	})
	cfg := apiserver.Retrying(&rest.Config{Host: "http://api.example", Transport: transport, QPS: -1}, logLine)
	c, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return c, &bodies
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func failure(code int32, reason metav1.StatusReason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(code))
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
		})
	}
}

func created(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`)
}

func create(ctx context.Context, c *kubernetes.Clientset) error {
	_, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	return err
}

func TestRetryingRepeatsTheWholeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		plain := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
		c, bodies := inMemory(t, func(text string) { lines = append(lines, text) },
			failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the server was slow"), plain, nil, created)
		require.NoError(t, create(t.Context(), c))
		require.Len(t, *bodies, 4)
		for _, body := range *bodies {
			assert.NotEmpty(t, body)
			assert.Equal(t, (*bodies)[0], body)
		}
		assert.Equal(t, []string{"the API server is unavailable: the server was slow; trying again"}, lines)
	})
}

func TestRetryingGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, bodies := inMemory(t, func(string) {}, failure(http.StatusInternalServerError, metav1.StatusReasonInternalError, "failed calling webhook"))
		start := time.Now()
		err := create(t.Context(), c)
		require.EqualError(t, err, "failed calling webhook", "the last response stays readable")
		assert.True(t, apierrors.IsInternalError(err))
		assert.Len(t, *bodies, 7)
		assert.InDelta(t, 13, time.Since(start).Seconds(), 0.5)
	})
}

func TestRetryingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, _ := inMemory(t, func(string) {}, nil)
		start := time.Now()
		require.Error(t, create(ctx, c))
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// TestRetryingLeavesReadsOfBrokenConnectionsToClientGo uses a server that closes each connection. If both repeated such a read, a request
// would take minutes.
func TestRetryingLeavesReadsOfBrokenConnectionsToClientGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, bodies := inMemory(t, func(text string) { assert.Fail(t, text) }, nil)
		start := time.Now()
		_, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})
		require.ErrorIs(t, err, net.ErrClosed)
		assert.Len(t, *bodies, 11)
		assert.LessOrEqual(t, time.Since(start), 13*time.Second)
	})
}

func TestRetryingRepeatsNothingElse(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"success":  created,
		"conflict": failure(http.StatusConflict, metav1.StatusReasonAlreadyExists, "it exists"),
		"invalid":  failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "it is invalid"),
	} {
		t.Run(name, func(t *testing.T) {
			c, bodies := inMemory(t, func(text string) { assert.Fail(t, text) }, answer)
			_ = create(t.Context(), c)
			assert.Len(t, *bodies, 1)
		})
	}
}

// A caller may decode a large response as it arrives, and only errors of an unavailable server matter for a repetition.
func TestRetryingReadsOnlyErrorsOfUnavailableServers(t *testing.T) {
	for _, test := range []struct {
		name    string
		code    int
		header  string
		isRead  bool
		repeats int
	}{
		{name: "leaves a success to the caller", code: http.StatusOK},
		{name: "leaves a rejection to the caller", code: http.StatusUnprocessableEntity},
		{name: "leaves missing permissions to the caller", code: http.StatusForbidden},
		{name: "leaves a missing object to the caller", code: http.StatusNotFound},
		{name: "leaves a response with Retry-After to client-go", code: http.StatusTooManyRequests, header: "1"},
		{name: "reads why the server has no capacity", code: http.StatusTooManyRequests, isRead: true, repeats: 6},
		{name: "reads why the server is unavailable", code: http.StatusServiceUnavailable, isRead: true, repeats: 6},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bodies []*countedBody
				transport := roundTripper(func(*http.Request) (*http.Response, error) {
					body := &countedBody{Reader: strings.NewReader("some text")}
					bodies = append(bodies, body)
					response := &http.Response{StatusCode: test.code, Status: http.StatusText(test.code), Header: http.Header{}, Body: body}
					if test.header != "" {
						response.Header.Set("Retry-After", test.header)
					}
					return response, nil
				})
				retrying, err := rest.TransportFor(apiserver.Retrying(&rest.Config{Transport: transport}, func(string) {}))
				require.NoError(t, err)
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.example", nil)
				require.NoError(t, err)
				response, err := retrying.RoundTrip(request)
				require.NoError(t, err)
				require.Len(t, bodies, 1+test.repeats)
				for _, body := range bodies {
					assert.Equal(t, test.isRead, body.reads > 0)
				}
				content, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				assert.Equal(t, "some text", string(content))
				require.NoError(t, response.Body.Close())
			})
		})
	}
}

// countedBody counts the reads from a response.
type countedBody struct {
	io.Reader
	reads int
}

func (b *countedBody) Read(p []byte) (int, error) {
	b.reads++
	return b.Reader.Read(p)
}

func (*countedBody) Close() error { return nil }
