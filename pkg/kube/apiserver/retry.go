package apiserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// Retrying returns a copy of a configuration. Its clients repeat each request while the API server is unavailable, for 13 seconds at most
// besides the time of the requests, and then return the last response. A new control plane often is unavailable for moments. Before the first
// repetition of a request, they call logLine with its error. client-go repeats the requests whose responses have a header Retry-After.
//
// A repeated request may find that the server has processed the first one. For example, it answers that an object exists already.
func Retrying(cfg *rest.Config, logLine func(string)) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &retrying{next, logLine} })
	return cfg
}

type retrying struct {
	next    http.RoundTripper
	logLine func(string)
}

// RoundTrip implements http.RoundTripper.
func (r *retrying) RoundTrip(req *http.Request) (*http.Response, error) {
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Steps: 5, Factor: 2.5}
	for first := true; ; first = false {
		response, err := r.next.RoundTrip(req)
		cause := err
		if err == nil {
			cause = unavailable(response)
		}
		if req.Context().Err() != nil || backoff.Steps == 0 || err != nil && !IsTransient(err) || cause == nil || req.Body != nil && req.GetBody == nil {
			return response, err
		}
		if first {
			r.logLine(fmt.Sprintf("the API server is unavailable: %v; trying again", cause))
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
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

// unavailable returns what the server says if a response means that it cannot process the request for now, and nil otherwise. The
// response's body stays readable.
func unavailable(response *http.Response) error {
	switch response.StatusCode {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return nil
	}
	if response.Header.Get("Retry-After") != "" {
		return nil
	}
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(content))
	var status metav1.Status
	if err != nil || json.Unmarshal(content, &status) != nil {
		return errors.New(response.Status)
	}
	return errors.New(cmp.Or(status.Message, response.Status))
}
