package apiserver

import (
	"context"
	"net"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// receiveBuffer is the maximum number of bytes of a response that may arrive before its reader needs them. It is enough for 25 MB a second
// from a server that is 10 ms away.
const receiveBuffer = 256 << 10

// Tune returns the configuration of a long-running process that writes as a leader. Call it before the first request: unless the
// configuration has its own Dial or Proxy, client-go shares one connection among all clients with the same credentials. The connections
// differ from the usual ones in two ways:
//
// They limit the memory for responses that arrive faster than they are read. Otherwise the HTTP/2 client of Go buffers up to 4 MiB for each
// open request, and a process with many watches holds that much for each of them when the server sends the initial state.
//
// They drop requests that the network has not delivered when the process ends. Otherwise the kernel keeps sending them for minutes after
// the end of the process. After an interruption of the network, a write of a former leader would arrive while another process leads. This
// does not cover connections that client-go wraps, to reload client certificates from files or to run an exec plugin.
func Tune(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(transport http.RoundTripper) http.RoundTripper {
		// Without TLS, client-go uses Go's default transport, which other clients share.
		if t := innermost(transport); t != nil && t.HTTP2 == nil && t != http.DefaultTransport {
			t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: receiveBuffer}
			t.DialContext = dropping(t.DialContext)
		}
		return transport
	})
	return cfg
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dropping returns dial for connections that drop what they have not delivered when they are closed, also by the end of the process.
func dropping(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // fails only if the connection has ended
		}
		return conn, err
	}
}

// innermost returns the transport that keeps the connections, or nil if it is not Go's. client-go wraps it to reload certificates and to
// free unused connections.
func innermost(transport http.RoundTripper) *http.Transport {
	for {
		switch t := transport.(type) {
		case *http.Transport:
			return t
		case utilnet.RoundTripperWrapper:
			transport = t.WrappedRoundTripper()
		default:
			return nil
		}
	}
}
