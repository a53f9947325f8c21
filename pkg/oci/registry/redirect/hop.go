// Package redirect checks addresses that servers choose for a client: the targets of redirects, and the token servers and upload locations
// that registries name. It returns transports and clients that reject addresses outside the server's own reach. It leaves retries and
// limits to package transport.
package redirect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// Error means that a server directed the client to an address that it must not choose: an address in the client's own network, which the
// server itself may not be able to reach.
type Error struct {
	// Cause is how the server did that: "redirect", "token server" or "upload location".
	Cause string
	// From and To are the hosts of the server and its target.
	From, To string
	// Address is the dialed address of the target. If the host is an address in a nonstandard form, it is the host.
	Address string
	// Kind is the kind of the address, such as "link-local".
	Kind string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("refusing the %s from %s to %s: %s is a %s address; configure %s itself to allow it", e.Cause, e.From, e.To, e.Address, e.Kind, e.To)
}

// First returns the request at the start of the chain of redirects that led to req.
func First(req *http.Request) *http.Request {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return req
}

// DialFunc opens a connection to host:port. It passes each address to allow before connecting, and skips the address if allow returns an
// error. A nil allow accepts every address.
type DialFunc func(ctx context.Context, network, address string, allow func(netip.Addr) error) (net.Conn, error)

// Dial is a DialFunc that resolves names and connects.
func Dial(ctx context.Context, network, address string, allow func(netip.Addr) error) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	if allow != nil {
		// The name is resolved only once. Control checks each of its addresses before the connection.
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			resolved, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return allow(resolved.Addr())
		}
	}
	return dialer.DialContext(ctx, network, address)
}

// Judge returns a transport over inner (nil for http.DefaultTransport) that rejects redirects to an address that the redirecting server
// must not choose (Error). A server at a public address may redirect to public addresses only. A server at a private address may also
// redirect to private addresses, but not to loopback, link-local and metadata addresses. The host of the first request is configured and
// never checked. If a request uses a proxy, or if inner is not an *http.Transport, Judge can only check addresses in the URL, not names.
func Judge(inner http.RoundTripper) http.RoundTripper {
	switch inner := inner.(type) {
	case nil:
		return NewTransport(http.DefaultTransport, Dial, nil, nil)
	case *Transport:
		return inner
	default:
		return NewTransport(inner, Dial, nil, nil)
	}
}

// Transport checks the dialed address of each request that follows a redirect (a hop). It opens a new connection for each hop, because a
// reused connection would hide the address. Resolving the name before dialing would not be safe, because the name may resolve to another
// address later.
type Transport struct {
	inner http.RoundTripper
	// base is inner if it is an *http.Transport; otherwise nil.
	base *http.Transport
	dial DialFunc
	// configured reports whether the configuration names a host, including the port if the URL has one.
	configured func(host string) bool
	// introduced holds the hosts that registries chose without a redirect; nil if every first request goes to a configured host.
	introduced *Hosts
}

// NewTransport returns a transport over inner. configured reports whether the configuration names a host, including the port if the URL
// has one. If configured is nil, only the host of the first request is configured. hosts are the known hosts of a registry client. If
// hosts is nil, every first request goes to a configured host.
func NewTransport(inner http.RoundTripper, dial DialFunc, configured func(host string) bool, hosts *Hosts) *Transport {
	if configured == nil {
		configured = func(string) bool { return false }
	}
	base, _ := inner.(*http.Transport)
	return &Transport{inner: inner, base: base, dial: dial, configured: configured, introduced: hosts}
}

// hop is a request with the known facts about the server that responds to it. It is stored in the request's context. The next request
// finds it through its Response field, which refers to the previous request.
type hop struct {
	url *url.URL
	// address is the address of the server; invalid if unknown.
	address netip.Addr
	// previous is the request whose response led to this hop; nil for the first one. cause is how it did.
	previous *hop
	cause    string
}

type hopKey struct{}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	h := &hop{url: req.URL, previous: previousHop(req), cause: causeRedirect}
	if h.previous == nil {
		h.previous, h.cause = t.introduced.introducer(req)
	}
	ctx := context.WithValue(req.Context(), hopKey{}, h)
	judged := h.previous != nil && !t.exempt(h)
	carrier := t.inner
	switch dialed, err := t.dials(req); {
	case err != nil:
		return nil, closeBody(req, err)
	case dialed:
		ctx = h.traced(ctx)
		if judged {
			carrier = t.transportOf(h)
		}
	default:
		// The proxy resolves a name, so its address is unknown here.
		address, literal := literalAddress(req.URL.Hostname())
		if h.address = address; judged && literal {
			if err := h.judge(address); err != nil {
				return nil, closeBody(req, err)
			}
		}
	}
	resp, err := carrier.RoundTrip(req.WithContext(ctx))
	if refused, ok := errors.AsType[*Error](err); ok {
		return nil, refused // without the surrounding connection error, which looks transient
	}
	t.introduced.learn(h, resp)
	return resp, err
}

// CloseIdleConnections implements the interface of http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if t.base != nil {
		t.base.CloseIdleConnections()
	}
}

// dials reports whether the request connects to its own host instead of a proxy.
func (t *Transport) dials(req *http.Request) (bool, error) {
	if t.base == nil || t.base.Proxy == nil {
		return t.base != nil, nil
	}
	proxy, err := t.base.Proxy(req)
	return proxy == nil, err
}

// exempt reports whether the hop leads to a configured host.
func (t *Transport) exempt(h *hop) bool {
	return hostPort(h.first().url) == hostPort(h.url) || t.configured(h.url.Host)
}

// transportOf returns a transport for this hop only.
func (t *Transport) transportOf(h *hop) *http.Transport {
	own := t.base.Clone()
	own.DisableKeepAlives = true
	own.Proxy = nil
	own.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return t.dial(ctx, network, address, h.judge)
	}
	return own
}

// previousHop returns the request that was redirected to req; nil if there was none.
func previousHop(req *http.Request) *hop {
	if req.Response == nil || req.Response.Request == nil {
		return nil
	}
	previous := req.Response.Request
	if h, ok := previous.Context().Value(hopKey{}).(*hop); ok {
		return h
	}
	return &hop{url: previous.URL, previous: previousHop(previous)}
}

// first returns the first request of the chain, whose host is configured.
func (h *hop) first() *hop {
	for h.previous != nil {
		h = h.previous
	}
	return h
}

// traced returns a context in which a new connection sets the hop's address.
func (h *hop) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if remote, err := netip.ParseAddrPort(info.Conn.RemoteAddr().String()); err == nil {
			h.address = remote.Addr()
		}
	}})
}

// judge returns an error if the servers that led to this hop must not choose the address.
func (h *hop) judge(address netip.Addr) error {
	first := h.first()
	if address.IsValid() && address == first.address && h.url.Hostname() == first.url.Hostname() {
		return nil // the configured host at another port
	}
	kind, scope := kindOf(address)
	if scope == scopePublic || scope == scopePrivate && !h.fromPublic() {
		return nil
	}
	refused := &Error{Cause: h.cause, From: h.previous.url.Host, To: h.url.Host, Address: h.url.Hostname(), Kind: kind}
	if address.IsValid() {
		refused.Address = address.String()
	}
	return refused
}

// fromPublic reports whether a server that led to this hop is at a public address, or may be.
func (h *hop) fromPublic() bool {
	for p := h.previous; p != nil; p = p.previous {
		if p.public() {
			return true
		}
	}
	return false
}

// public reports whether the server is at a public address, or may be.
func (h *hop) public() bool { return !h.address.IsValid() || mayBePublic(h.address) }

func hostPort(u *url.URL) string { return net.JoinHostPort(strings.ToLower(u.Hostname()), port(u)) }

// port returns the port of a URL, or the default port of its scheme.
func port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

func closeBody(req *http.Request, err error) error {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return err
}
