package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/internal/backoff"
)

// Retrying returns a copy of a configuration. Its clients repeat each request while the API server is unavailable, for 13 seconds at most
// besides the time of the requests, and then return the last response. A new control plane often is unavailable for moments. Before the
// first repetition of a request, they call logLine with its error. Requests that client-go repeats itself are not repeated here: requests
// whose responses have a header Retry-After, and reads whose connection breaks (ten times, after a second each).
//
// A rejected request is not repeated, although an API server also answers 403 until it has read the roles. Most rejections are permanent: by
// roles, admission or quotas. Each would take 13 seconds.
//
// A repeated request may find that the server has processed the first one. For example, it answers that an object exists already.
func Retrying(cfg *rest.Config, logLine func(string)) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &retrying{next, logLine} })
	return cfg
}

// A request is repeated six times, the last time after 12.6 s.
const maxRepeats = 6

var repeatDelay = backoff.Doubling{First: 200 * time.Millisecond}

type retrying struct {
	next    http.RoundTripper
	logLine func(string)
}

// RoundTrip implements http.RoundTripper.
func (r *retrying) RoundTrip(req *http.Request) (*http.Response, error) {
	for failures := 1; ; failures++ {
		response, err := r.next.RoundTrip(req)
		cause := err
		if err == nil {
			cause = failure(response)
		}
		if failures > maxRepeats || !isRepeatable(req) || !IsTransient(cause) || req.Method == http.MethodGet && isBroken(err) {
			return response, err
		}
		if failures == 1 {
			r.logLine(fmt.Sprintf("the API server is unavailable: %v; trying again", cause))
		}
		if backoff.Sleep(req.Context(), repeatDelay.After(failures)) != nil {
			return response, err
		}
		req = req.Clone(req.Context()) // a RoundTripper must not change its request
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// isRepeatable reports whether a request can be sent once more.
func isRepeatable(req *http.Request) bool {
	return req.Context().Err() == nil && (req.Body == nil || req.GetBody != nil)
}

// isBroken reports whether the connection broke, as client-go decides it for the reads that it repeats.
func isBroken(err error) bool {
	return utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// failure returns the server's error in a response that may be worth repeating. It returns nil for all other responses, and for those that
// client-go repeats, without reading them. The response's body stays readable.
func failure(response *http.Response) error {
	isTransient := response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError
	if !isTransient || response.Header.Get("Retry-After") != "" {
		return nil
	}
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(content))
	var status metav1.Status
	if err == nil && json.Unmarshal(content, &status) == nil && status.Kind == "Status" {
		return apierrors.FromObject(&status)
	}
	generic := apierrors.NewGenericServerResponse(response.StatusCode, "", schema.GroupResource{}, "", "", 0, false)
	generic.ErrStatus.Message = response.Status
	return generic
}
