package transport

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// drip is a response whose body sends size bytes after each pause, times times.
type drip struct {
	size, times int
	pause       time.Duration
	ctx         context.Context
}

func (d drip) RoundTrip(req *http.Request) (*http.Response, error) {
	d.ctx = req.Context()
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(&d), Request: req}, nil
}

func (d *drip) Read(p []byte) (int, error) {
	if d.times == 0 {
		return 0, io.EOF
	}
	d.times--
	select {
	case <-time.After(d.pause):
		return min(d.size, len(p)), nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

//threat:slow-silent-registries
func TestSlowResponsesEnd(t *testing.T) {
	for _, tt := range []struct {
		name    string
		drip    drip
		reading time.Duration // the pause of the reader after each read
		want    time.Duration // zero if the response is complete
	}{
		{"it ends a byte at a time", drip{size: 1, times: 1000, pause: 50 * time.Second}, 0, time.Minute},
		{"it ends one that becomes slow", drip{size: 30 << 10, times: 1000, pause: 45 * time.Second}, 0, time.Minute},
		{"it allows a slow link", drip{size: 3 << 10, times: 1000, pause: 2 * time.Second}, 0, 0},
		{"it allows pauses between large parts", drip{size: 60 << 10, times: 10, pause: 59 * time.Second}, 0, 0},
		{"it allows a small response at the end of the minute", drip{size: 100, times: 1, pause: 59 * time.Second}, 0, 0},
		{"it allows a slow reader", drip{size: 1, times: 50, pause: time.Second}, time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				resp, err := (&stallTransport{inner: tt.drip, limit: time.Minute}).RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/v2/", http.NoBody))
				require.NoError(t, err)
				defer resp.Body.Close()
				for buffer := make([]byte, 64<<10); err == nil; time.Sleep(tt.reading) {
					_, err = resp.Body.Read(buffer)
				}
				if tt.want == 0 {
					require.ErrorIs(t, err, io.EOF)
					return
				}
				require.ErrorIs(t, err, failure.ErrStalled)
				require.EqualError(t, err, "a.example: no progress: fewer than 61440 bytes in 1m0s")
				assert.Equal(t, tt.want, time.Since(start))
			})
		})
	}
}
