package fault

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// PortPatience is how long a server waits for a port at which it has listened before. A closed connection keeps a port for a minute.
const PortPatience = 90 * time.Second

// Listen listens at a TCP address at which an earlier listener of the caller was closed. An outgoing connection may have taken the port
// meanwhile, so Listen tries again for a while.
func Listen(address string) (net.Listener, error) {
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		listener, err := net.Listen("tcp", address)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(begin) > PortPatience {
			return listener, err
		}
	}
}
