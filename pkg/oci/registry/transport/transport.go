// Package transport makes requests to registries reliable on unreliable networks. It retries requests, resumes interrupted downloads,
// closes connections with too little progress, and limits the size of responses and the number of concurrent requests. It wraps a given
// transport, which handles connections, credentials and redirects.
package transport

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

// Options configure a transport. Every field is required.
type Options struct {
	// AnswerBytes is the maximum size of every response except blobs.
	AnswerBytes int64
	// MaxPerRegistry is the maximum number of concurrent downloads from one registry. The same maximum applies separately to other
	// requests.
	MaxPerRegistry int
	// Stall is the time after which a connection is closed that sends no response, accepts no data, or sends less than 1 KiB/s.
	Stall time.Duration
	// Backoff is the approximate pause before the first retry.
	Backoff time.Duration
	// Client returns a client over inner with credentials to read a repository. It is for resumed downloads.
	Client func(ctx context.Context, inner http.RoundTripper, host, repository string) (*http.Client, error)
}

// New wraps inner with the layers that handle a request. The registry library adds authentication and redirects around the result, so each
// hop and each token request passes through the layers separately.
func New(inner http.RoundTripper, opts Options) http.RoundTripper {
	t := inner
	t = &stallTransport{inner: t, limit: opts.Stall}
	t = Retry(t, opts.Backoff)
	t = &resumeTransport{inner: t, backoff: backoff.Doubling{First: opts.Backoff}, client: opts.Client}
	// A download keeps its slot while it is resumed, so it never waits for a slot halfway.
	t = newLimitTransport(t, opts.MaxPerRegistry)
	return boundedTransport{inner: t, limit: opts.AnswerBytes}
}

// blobRequest reports whether a request is for a blob, or was redirected from one.
func blobRequest(req *http.Request) bool {
	return strings.Contains(redirect.First(req).URL.Path, "/blobs/")
}
