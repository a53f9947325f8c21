package graph

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

// defaultTimeout is the maximum time for one query, including retries.
const defaultTimeout = time.Minute

// maxETag limits the stored ETag of an answer in bytes. Longer ones are ignored.
const maxETag = 256

// Query is a query to an update service.
type Query struct {
	// Service is the service's URL. A query in the URL is kept.
	Service string
	// Architecture is the Go name of the architecture, or "multi".
	Architecture string
	// Migrate is true if the cluster runs a single-architecture release and requests the same release for multiple architectures.
	Migrate bool
	Channel string
	// ClusterID is omitted if empty.
	ClusterID string
	// Version is the release that the cluster runs.
	Version string
}

// Answer is the response of a service to a query.
type Answer struct {
	Updates
	// query is the query of the answer, and etag the service's identifier of the answer.
	query Query
	etag  string
}

// Client queries update services.
type Client struct {
	// HTTP sends the requests. It has its own connection timeouts and retries.
	HTTP *http.Client
	// UserAgent identifies us to the service.
	UserAgent string
	// Timeout is the maximum time for one query; zero means 1 minute.
	Timeout time.Duration
}

// Ask queries a service for the updates of a version. before is an earlier answer that the service does not need to repeat; the zero value
// means none. Errors have type *Error.
func (c *Client) Ask(ctx context.Context, q Query, before Answer) (Answer, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	req, err := c.request(ctx, q)
	if err != nil {
		return Answer{}, &Error{Reason: ReasonInvalidRequest, Err: err}
	}
	known := before.query == q && before.etag != ""
	if known {
		req.Header.Set("If-None-Match", before.etag)
	}
	resp, err := redirect.Safe(c.HTTP).Do(req)
	if err != nil {
		return Answer{}, &Error{Reason: ReasonRemoteFailed, Err: networkError(ctx, req.URL, err)}
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && known:
		return before, nil
	case resp.StatusCode != http.StatusOK:
		// A read body allows reusing the connection. More than a few bytes are not worth it.
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
		return Answer{}, &Error{Reason: ReasonResponseFailed, Err: fmt.Errorf("unexpected HTTP status: %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))}
	}
	return read(ctx, resp, q)
}

func read(ctx context.Context, resp *http.Response, q Query) (Answer, error) {
	graph, err := Parse(resp.Body)
	if err != nil {
		if broken := (*Error)(nil); errors.As(err, &broken) && broken.Reason == ReasonResponseFailed {
			return Answer{}, &Error{Reason: ReasonResponseFailed, Err: networkError(ctx, resp.Request.URL, broken.Err)}
		}
		return Answer{}, err
	}
	answer := Answer{query: q}
	if etag := resp.Header.Get("ETag"); len(etag) <= maxETag {
		answer.etag = etag
	}
	answer.Updates, err = graph.Updates(q)
	if err != nil {
		return Answer{}, err
	}
	return answer, nil
}

// CheckService returns an error if the URL of an update service is invalid.
func CheckService(service string) error {
	u, err := url.Parse(service)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("parse %q: the scheme must be http or https", service)
	case u.Host == "":
		return fmt.Errorf("parse %q: the host is missing", service)
	}
	return nil
}

func (c *Client) request(ctx context.Context, q Query) (*http.Request, error) {
	if err := CheckService(q.Service); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.Service, http.NoBody)
	if err != nil {
		return nil, err
	}
	query := req.URL.Query()
	for name, value := range map[string]string{"arch": q.Architecture, "channel": q.Channel, "id": q.ClusterID, "version": q.Version} {
		if value != "" {
			query.Set(name, value)
		}
	}
	req.URL.RawQuery = query.Encode()
	req.URL.Fragment = ""
	req.Header.Set("Accept", "application/json")
	if c.UserAgent != "" {
		req.Header.Set("User-Agent", c.UserAgent)
	}
	return req, nil
}

// networkError describes a transport error with the same words each time. It omits our own port, and the query, which may contain private
// data.
func networkError(ctx context.Context, u *url.URL, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		plain := *op
		plain.Source = nil
		err = &plain
	}
	shown := *u
	shown.RawQuery, shown.Fragment = "", ""
	return fmt.Errorf("Get %q: %w", shown.Redacted(), err) //nolint:staticcheck // as net/http begins it, and clients know it
}
