package fault_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/test/fault"
)

const whole = "the whole answer, long enough to be cut"

// serve answers and counts every request. Watches never end.
func serve(t *testing.T) (url string, seen *atomic.Int64) {
	t.Helper()
	seen = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, whole)
		if r.URL.Query().Get("watch") == "true" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, seen
}

func connect(t *testing.T, o fault.Options) (*http.Client, *fault.Transport) {
	t.Helper()
	transport, err := fault.New(http.DefaultTransport, o)
	require.NoError(t, err)
	return &http.Client{Transport: transport}, transport
}

func always(kind fault.Kind) fault.Options {
	return fault.Options{Rates: map[fault.Kind]float64{kind: 1}}
}

// reply is the result of a request.
type reply struct {
	code       int
	retryAfter string
	body       string
}

func request(t *testing.T, c *http.Client, url string) (reply, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("body"))
	require.NoError(t, err)
	response, err := c.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header.Get("Retry-After"), string(body)}, err
}

func TestFaultsChangeTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		kind       fault.Kind
		code       int
		reason     metav1.StatusReason
		retryAfter string
	}{
		{fault.InternalError, 500, metav1.StatusReasonInternalError, ""},
		{fault.Conflict, 409, metav1.StatusReasonConflict, ""},
		{fault.TooManyRequests, 429, metav1.StatusReasonTooManyRequests, "1"},
	} {
		t.Run("answers "+string(tt.kind), func(t *testing.T) {
			url, seen := serve(t)
			c, transport := connect(t, always(tt.kind))
			got, err := request(t, c, url)
			require.NoError(t, err)
			assert.Equal(t, tt.code, got.code)
			assert.Equal(t, tt.retryAfter, got.retryAfter)
			var status metav1.Status
			require.NoError(t, json.Unmarshal([]byte(got.body), &status))
			assert.Equal(t, tt.reason, status.Reason)
			assert.Equal(t, tt.code, int(status.Code))
			assert.Zero(t, seen.Load(), "the server must not receive the request")
			assert.Equal(t, map[fault.Kind]int{tt.kind: 1}, transport.Count())
		})
	}
}

func TestFaultsBreakTheConnection(t *testing.T) {
	for _, tt := range []struct {
		kind fault.Kind
		seen int64
		want error
	}{
		{fault.LostRequest, 0, syscall.ECONNRESET},
		{fault.LostAnswer, 1, syscall.ECONNRESET},
		{fault.CutAnswer, 1, io.ErrUnexpectedEOF},
	} {
		t.Run("causes a "+string(tt.kind), func(t *testing.T) {
			url, seen := serve(t)
			c, _ := connect(t, always(tt.kind))
			got, err := request(t, c, url)
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, tt.seen, seen.Load())
			assert.Less(t, len(got.body), len(whole))
		})
	}
}

func TestDelayedRequestsAreAnswered(t *testing.T) {
	url, seen := serve(t)
	c, _ := connect(t, always(fault.Delay))
	got, err := request(t, c, url)
	require.NoError(t, err)
	assert.Equal(t, whole, got.body)

	o := always(fault.Delay)
	o.MaxDelay = 1000 * time.Hour
	c, _ = connect(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	_, err = c.Do(r) //nolint:bodyclose // no response
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, int64(1), seen.Load())
}

func TestClosedWatchEndsWithoutAnError(t *testing.T) {
	url, _ := serve(t)
	o := always(fault.ClosedWatch)
	o.MaxWatch = time.Millisecond
	c, transport := connect(t, o)
	_, err := request(t, c, url+"?watch=true")
	require.NoError(t, err, "the watch ends without an error")
	got, err := request(t, c, url)
	require.NoError(t, err)
	assert.Equal(t, whole, got.body)
	assert.Equal(t, map[fault.Kind]int{fault.ClosedWatch: 1}, transport.Count())
}

func TestSparedRequestsHaveNoFaults(t *testing.T) {
	url, _ := serve(t)
	o := always(fault.InternalError)
	o.Spare = func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/healthz") }
	c, _ := connect(t, o)
	got, err := request(t, c, url+"/healthz")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, got.code)
}

func TestFaultsFollowRateAndSeed(t *testing.T) {
	url, _ := serve(t)
	play := func(o fault.Options) map[fault.Kind]int {
		c, transport := connect(t, o)
		for range 400 {
			_, _ = request(t, c, url) // the transport counts the result
		}
		return transport.Count()
	}
	o := fault.Options{Seed: 7, Rates: map[fault.Kind]float64{fault.InternalError: 0.25, fault.LostRequest: 0.25}}
	count := play(o)
	assert.InDelta(t, 100, count[fault.InternalError], 40)
	assert.InDelta(t, 100, count[fault.LostRequest], 40)
	assert.Len(t, count, 2)
	assert.Equal(t, count, play(o), "a seed causes the same faults each time")
	o.Seed = 8
	assert.NotEqual(t, count, play(o))
}

func TestRandomRatesStayBelowTheSum(t *testing.T) {
	for seed := range uint64(100) {
		o := fault.Random(seed, 0.3)
		sum := 0.0
		for _, rate := range o.Rates {
			sum += rate
		}
		assert.LessOrEqual(t, sum, 0.3000001)
		assert.Equal(t, o, fault.Random(seed, 0.3))
		_, err := fault.New(http.DefaultTransport, o)
		require.NoError(t, err)
	}
	assert.NotEqual(t, fault.Random(1, 0.3), fault.Random(2, 0.3))
}

func TestInvalidRatesAreRejected(t *testing.T) {
	for _, rates := range []map[fault.Kind]float64{
		{fault.Delay: -0.1}, {fault.Delay: 1.5}, {fault.Delay: 0.6, fault.Conflict: 0.6},
	} {
		_, err := fault.New(http.DefaultTransport, fault.Options{Rates: rates})
		require.Error(t, err)
	}
}
