package updategraph

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/cluster-version/cvo/pkg/registry"
)

// defaultTimeout is how long one question may take, with everything that is repeated.
const defaultTimeout = time.Minute

// Query is a question to an update service.
type Query struct {
	// Service is its URL; a query in it stays.
	Service string
	// Architecture is as Go names it, or "multi".
	Architecture string
	// Migrate: the cluster runs a release of one architecture, and asks for the same of many.
	Migrate bool
	Channel string
	// ClusterID is left out if it is empty.
	ClusterID string
	// Version is the release that the cluster runs.
	Version string
}

// Answer is what a service has said to a question.
type Answer struct {
	Updates
	// query and etag are what it was the answer to, and how the service calls it.
	query Query
	etag  string
}

// Client asks update services.
type Client struct {
	// HTTP carries the requests, with the timeouts for connections and the repetitions that it has.
	HTTP *http.Client
	// UserAgent is how the service sees us.
	UserAgent string
	// Timeout bounds one question; default 1 minute.
	Timeout time.Duration
}

// Ask asks a service for the updates of a version. before is an earlier answer, of which the service is told that it is
// known; the zero value is none. Errors are of type *Error.
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
	resp, err := registry.StayInTLS(c.HTTP).Do(req)
	if err != nil {
		return Answer{}, &Error{Reason: ReasonRemoteFailed, Err: networkError(ctx, req.URL, err)}
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && known:
		return before, nil
	case resp.StatusCode != http.StatusOK:
		// What is read lets the connection be used again; it is not worth more than that.
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
	if etag := resp.Header.Get("ETag"); len(etag) <= maxName {
		answer.etag = etag
	}
	answer.Updates, err = graph.Updates(q)
	if err != nil {
		return Answer{}, err
	}
	return answer, nil
}

// CheckService says what is wrong with the URL of an update service.
func CheckService(service string) error {
	u, err := url.Parse(service)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("parse %q: the scheme has to be http or https", service)
	case u.Host == "":
		return fmt.Errorf("parse %q: it names no host", service)
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

// networkError is what went wrong on the way, in words that are the same each time: without our own port, and without
// the query, which may hold what is nobody's business.
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
