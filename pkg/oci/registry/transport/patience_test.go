package transport

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// silent never responds.
type silent struct{}

func (silent) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func TestPatienceLimitsTheWaitForAResponse(t *testing.T) {
	for _, tt := range []struct {
		name, method, path string
		limit, want        time.Duration
	}{
		{"it ends a read at the limit", http.MethodGet, "/v2/", 5 * time.Second, 5 * time.Second},
		{"it accepts a limit above the stall", http.MethodHead, "/v2/a/manifests/b", 3 * time.Minute, 3 * time.Minute},
		{"it leaves blobs", http.MethodGet, "/v2/a/blobs/sha256:b", 5 * time.Second, 2 * time.Minute},
		{"it leaves writes", http.MethodPut, "/v2/a/manifests/b", 5 * time.Second, 5 * time.Minute},
		{"it leaves reads without a limit", http.MethodGet, "/v2/", 0, 2 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var noticed []string
				ctx := WithPatience(t.Context(), Patience{Limit: tt.limit, Notice: func(host string) { noticed = append(noticed, host) }})
				req := httptest.NewRequestWithContext(ctx, tt.method, "https://registry.example"+tt.path, http.NoBody)
				start := time.Now()
				_, err := Retry(&stallTransport{inner: silent{}, limit: time.Minute}, time.Nanosecond).RoundTrip(req) //nolint:bodyclose // there is no response
				require.ErrorIs(t, err, failure.ErrStalled)
				assert.Equal(t, tt.want, time.Since(start).Truncate(time.Second))
				if tt.method == http.MethodPut {
					assert.Empty(t, noticed, "a registry may need time to store content")
				} else {
					assert.Contains(t, noticed, "registry.example")
				}
			})
		})
	}
}

// TestCopiesOutlastASlowRegistry has a registry that responds to the first request only.
func TestCopiesOutlastASlowRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := WithPatience(t.Context(), Patience{Limit: 5 * time.Second, FirstOnly: true})
		get := func(inner http.RoundTripper, host string) time.Duration {
			start := time.Now()
			resp, err := Retry(&stallTransport{inner: inner, limit: time.Minute}, time.Nanosecond).
				RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/v2/", http.NoBody))
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			return time.Since(start).Truncate(time.Second)
		}
		assert.Equal(t, 5*time.Second, get(silent{}, "a.example"))
		assert.Zero(t, get(&script{answers: []answer{{status: http.StatusOK}}}, "a.example"))
		assert.Equal(t, 2*time.Minute, get(silent{}, "a.example"), "it has responded before")
		assert.Equal(t, 5*time.Second, get(silent{}, "b.example"), "another host")
	})
}

func TestPatienceGivesNoNoticeOfAResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := WithPatience(t.Context(), Patience{Notice: func(host string) { t.Errorf("notice of %s", host) }})
		inner := &script{answers: []answer{{status: http.StatusOK}}}
		resp, err := (&stallTransport{inner: inner, limit: time.Minute}).RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "/v2/", http.NoBody))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, resp.Body.Close())
	})
}
