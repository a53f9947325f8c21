package apiserver

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// receiveBuffer is the maximum number of bytes of a response that may arrive before its reader needs them. It is enough for 25 MB a second
// from a server that is 10 ms away.
const receiveBuffer = 256 << 10

// LimitBuffers returns the configuration with a limit on the memory for responses that arrive faster than they are read. Without it, the
// HTTP/2 client of Go buffers up to 4 MiB for each open request, and a process with many watches holds that much for each of them when
// the server sends the initial state. Call it before the first request, because client-go shares one connection among all clients with
// the same credentials.
func LimitBuffers(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(transport http.RoundTripper) http.RoundTripper {
		if t := innermost(transport); t != nil && t.HTTP2 == nil {
			t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: receiveBuffer}
		}
		return transport
	})
	return cfg
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
